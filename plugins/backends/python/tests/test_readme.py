"""What the README shows works as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from tritonpy.ipc import frame

MODEL, BATCHED, BY_HAND = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parent.parent / "README.md").read_text(), re.DOTALL
)


def test_the_model_completes_its_configuration_and_answers(set_up):
    worker = set_up(MODEL, config={"output": []})

    completed = json.loads(worker.ask(frame.COMPLETE)[2])
    worker.initialize(config=completed)
    answers = worker.infer(worker.request(X=np.array([[1, 2, 3]], np.float32)))

    assert completed["max_batch_size"] == 8
    assert answers[0]["Y"].tolist() == [[2, 4, 6]]


def test_the_shorter_model_answers_the_same(load):
    worker = load(BATCHED, outputs={"Y": "TYPE_FP32"})

    assert worker.infer(worker.request(X=np.array([1, 2], np.float32)))[0]["Y"].tolist() == [2, 4]


def test_the_model_can_be_tested_by_hand():
    names = {"np": np, "pb_utils": pb_utils}
    exec(MODEL, names)

    exec(BY_HAND, names)
