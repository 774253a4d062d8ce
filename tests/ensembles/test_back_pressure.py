"""A model that sends faster than those behind it work: it waits, and what is held has a bound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tritonpy.ipc import window
from tritonpy_sdk.repository import ModelRepository

from .conftest import Start
from .models import step, write_ensemble, write_model

COUNT = 800

# Sends many responses, and writes down how many it has sent.
SENDER = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(pb_utils.get_input_tensor_by_name(request, "X").as_numpy().item()):
                tensor = pb_utils.Tensor("Y", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
                with open({sent!r}, "w") as file:
                    file.write(str(number + 1))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

# Holds the first request until the sender has sent everything or stopped for so long; writes down how far it
# has come.
SLOW = """
import time
import triton_python_backend_utils as pb_utils

def read():
    with open({sent!r}) as file:
        return file.read() or "0"

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x.item() == 0:
                sent, since = read(), time.monotonic()
                while sent != {count!r} and time.monotonic() - since < {patience_s!r}:
                    time.sleep(0.002)
                    if read() != sent:
                        sent, since = read(), time.monotonic()
                with open({seen!r}, "w") as file:
                    file.write(sent)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return responses
"""

# Calls the sender for one response, and answers what it was given.
CALLING = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name={target!r},
                inputs=[pb_utils.Tensor({name!r}, np.array([1], np.int32))],
                requested_output_names=[{output!r}],
            )
            count = sum(bool(answer.output_tensors()) for answer in call.exec(decoupled=True))
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + 1000 * count)]))
        return responses
"""


@pytest.mark.parametrize("limit", [0, 4])
def test_a_fast_sender_is_only_as_far_ahead_as_the_limit_lets_it(
    start_ours: Start, tmp_path: Path, limit: int
) -> None:
    sent, seen = tmp_path / "sent", tmp_path / "seen"
    sent.touch()
    models = ModelRepository(tmp_path / "models")
    write_model(models, "sender", SENDER.format(sent=str(sent)), decoupled=True)
    patience_s = 2 if limit else 15  # without a limit it never stops for good
    slow = SLOW.format(sent=str(sent), seen=str(seen), count=str(COUNT), patience_s=patience_s)
    write_model(models, "slow", slow)
    steps = [step("sender", {"X": "IN"}, {"Y": "T"}), step("slow", {"X": "T"}, {"Y": "OUT"})]
    write_ensemble(models, "e", steps, max_inflight_requests=limit)
    side = start_ours(models.path)

    responses = side.stream("e", COUNT)

    assert [outputs["OUT"] for outputs, _ in responses] == [[number] for number in range(COUNT)]
    if limit:  # beside those of the step, what was under way when the sender was told to wait
        assert int(seen.read_text()) <= limit + window.MOST_RESPONSES + 8
    else:
        assert int(seen.read_text()) == COUNT


def test_a_sender_whose_responses_come_back_to_its_own_model_does_not_wait_for_itself(
    start_ours: Start, tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path / "models")
    write_model(models, "sender", SENDER.format(sent=os.devnull), decoupled=True)
    steps = [step("sender", {"X": "IN"}, {"Y": "T"}), step("sender", {"X": "T"}, {"Y": "OUT"})]
    write_ensemble(models, "e", steps, max_inflight_requests=1)
    side = start_ours(models.path)

    responses = side.stream("e", 20)

    assert len(responses) == sum(range(20))


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_sender_that_is_called_by_what_works_on_its_responses_does_not_wait_for_that(
    start_ours: Start, tmp_path: Path, is_nested: bool
) -> None:
    models = ModelRepository(tmp_path / "models")
    names = {"target": "inner", "name": "IN", "output": "OUT"} if is_nested else {}
    write_model(models, "sender", SENDER.format(sent=os.devnull), decoupled=True)
    write_model(
        models, "calling", CALLING.format(**{"target": "sender", "name": "X", "output": "Y", **names})
    )
    write_ensemble(models, "inner", [step("sender", {"X": "IN"}, {"Y": "OUT"})])
    steps = [step("sender", {"X": "IN"}, {"Y": "T"}), step("calling", {"X": "T"}, {"Y": "OUT"})]
    write_ensemble(models, "e", steps, max_inflight_requests=1)
    side = start_ours(models.path)

    responses = side.stream("e", 300)

    assert [outputs["OUT"] for outputs, _ in responses] == [[1000 + number] for number in range(300)]
