"""A thousand workers that die in the middle of a request, while others are asked all the time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy_sdk.repository import ModelRepository

from .clients import HttpClient, Traffic
from .holdings import WARM_UP_ROUNDS, Watch

CRASHES = 1000
SIZES = (16, 16_384)  # a tensor that travels in the frame, and one in shared memory
CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}
MODEL = """
    import ctypes
    import json
    import os
    import resource
    import signal
    import threading
    import time

    import triton_python_backend_utils as pb_utils


    def call(model, x):
        response = pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor("X", x)], requested_output_names=["Y"]
        ).exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "Y").as_numpy()


    def crash(how, x):
        if how == "exit":
            os._exit(3)
        if how == "SIGSEGV":
            ctypes.string_at(0)
        if how == "SIGKILL in a call":
            threading.Thread(target=call, args=("neighbour", x), daemon=True).start()
            time.sleep(0.002)  # the call takes longer
        os.kill(os.getpid(), signal.SIGKILL)


    class TritonPythonModel:
        def initialize(self, args):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            parameters = json.loads(args["model_config"])["parameters"]
            self.delay_s = float(parameters["delay_s"]["string_value"])
            self.calls = parameters["calls"]["string_value"]

        def execute(self, requests):
            responses = []
            for request in requests:
                how = json.loads(request.parameters() or "{}").get("how")
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                if how:
                    crash(how, x)
                time.sleep(self.delay_s)
                if self.calls:
                    x = call(self.calls, x) / 2
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)]))
            return responses
"""
ENDS = {
    "SIGKILL": "was killed by signal 9 (SIGKILL)",
    "exit": "exited with code 3",
    "SIGSEGV": "was killed by signal 11 (SIGSEGV)",
    "SIGKILL in a call": "was killed by signal 9 (SIGKILL)",
}


def ask(client: HttpClient, model: str, size: int) -> None:
    """Send a request that must succeed."""
    x = np.arange(size, dtype=np.float32)
    y, error = client.infer(model, x)
    assert y is not None, f"{model} answered a good request: {error}"
    assert np.array_equal(y, x * 2)


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_a_thousand_crashes_cost_one_request_each_and_nothing_leaks(
    corectl: Callable[..., Any], tmp_path: Path, progress: Callable[[str], None]
) -> None:
    repository = ModelRepository(tmp_path)
    for model, delay_s, calls in (
        ("crashing", "0.001", ""),
        ("neighbour", "0.005", ""),
        ("calling", "0.005", "crashing"),
    ):
        parameters = {"delay_s": {"string_value": delay_s}, "calls": {"string_value": calls}}
        repository.python(model, MODEL, {**CONFIG, "parameters": parameters})
    server = corectl("--model-repository", str(tmp_path))
    port = server.ports["HTTPService"]
    client = HttpClient(port)
    others = [
        lambda client: ask(client, "neighbour", SIZES[0]),
        lambda client: ask(client, "neighbour", SIZES[1]),
        lambda client: ask(client, "crashing", SIZES[0]),  # one that had not begun goes to the next worker
        lambda client: ask(client, "crashing", SIZES[1]),
        lambda client: ask(client, "calling", SIZES[1]),  # so does one that a model has sent
    ]
    started = time.monotonic()

    with Traffic(port, others) as traffic:
        for number, how in enumerate(itertools.islice(itertools.cycle(ENDS), CRASHES)):
            if number == WARM_UP_ROUNDS:
                watch = Watch(server.process.pid)
            y, error = client.infer("crashing", np.zeros(SIZES[number % 2], np.float32), {"how": how})
            assert y is None, f"'{how}' was answered with an output"
            assert error == (
                f"Stub process 'crashing_0' is not healthy. It {ENDS[how]} while it executed this request"
            )
            client.wait_until_ready("crashing")
            ask(client, "crashing", SIZES[number % 2])
            if number >= WARM_UP_ROUNDS:
                watch.sample()
            traffic.check()
            if number % 100 == 99:
                progress(
                    f"{number + 1} crashes in {time.monotonic() - started:.0f} s, "
                    f"{traffic.answer_count:,} answers beside them"
                )
        answers = traffic.answer_count
        progress(watch.check())
    client.close()

    assert answers > CRASHES
    assert server.stop() == 0
