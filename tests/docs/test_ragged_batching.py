"""What the page on ragged batches shows works: its model, its client and its numbers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tritonpy.batches.batch_inputs import BatchInput
from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/ragged-batching.md").read_text()
(CONFIG,) = re.findall(r"```protobuf\n(.*?)```", PAGE, re.DOTALL)
MAKE, ASK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(TOLD,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
KINDS = re.findall(r"^\| `(BATCH_[A-Z_]+)` \| [^|]*\| ([^|:;]*)", PAGE, re.MULTILINE)


def test_the_page_s_requests_are_one_batch_and_its_answers_right(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-c", MAKE], cwd=tmp_path, check=True, timeout=60)
    patient = "preferred_batch_size: [ 3 ] max_queue_delay_microseconds: 10000000"  # however slow we are here
    config = CONFIG.replace("max_queue_delay_microseconds: 100000", patient)
    ModelRepository(tmp_path / "models").model("means", config)
    server = serve(tmp_path / "models")
    code = ASK.replace("localhost:8000", f"127.0.0.1:{server.http_port}")

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert printed == TOLD
    url = f"http://127.0.0.1:{server.http_port}/v2/models/means/stats"
    with urllib.request.urlopen(url, timeout=20) as answer:
        [statistics] = json.load(answer)["model_stats"]
    assert (statistics["inference_count"], statistics["execution_count"]) == (3, 1)


def test_every_kind_of_batch_input_has_the_values_of_the_page() -> None:
    shapes = [(1, 3), (1, 4), (1, 5)]

    assert len(KINDS) == 6
    for kind, told in KINDS:
        values = BatchInput(kind, ("B",), "VALUES", "INT32").make(shapes)
        numbers = [int(number) for number in re.findall(r"\d+", told)] or [0] * 5
        assert np.array_equal(values.reshape(-1), numbers), kind
