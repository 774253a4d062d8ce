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
    import time

    import triton_python_backend_utils as pb_utils

    CRASHES = {
        "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "exit": lambda: os._exit(3),
        "SIGSEGV": lambda: ctypes.string_at(0),
    }


    class TritonPythonModel:
        def initialize(self, args):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            self.delay_s = float(json.loads(args["model_config"])["parameters"]["delay_s"]["string_value"])

        def execute(self, requests):
            responses = []
            for request in requests:
                how = json.loads(request.parameters() or "{}").get("how")
                if how:
                    CRASHES[how]()
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                time.sleep(self.delay_s)
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)]))
            return responses
"""
ENDS = {
    "SIGKILL": "was killed by signal 9 (SIGKILL)",
    "exit": "exited with code 3",
    "SIGSEGV": "was killed by signal 11 (SIGSEGV)",
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
    for model, delay_s in (("crashing", "0.001"), ("neighbour", "0.005")):
        config = {**CONFIG, "parameters": {"delay_s": {"string_value": delay_s}}}
        repository.python(model, MODEL, config)
    server = corectl("--model-repository", str(tmp_path))
    port = server.ports["HTTPService"]
    client = HttpClient(port)
    others = [
        lambda client: ask(client, "neighbour", SIZES[0]),
        lambda client: ask(client, "neighbour", SIZES[1]),
        lambda client: ask(client, "crashing", SIZES[0]),  # one that had not begun goes to the next worker
        lambda client: ask(client, "crashing", SIZES[1]),
    ]
    started = time.monotonic()

    with Traffic(port, others) as traffic:
        for number, how in enumerate(itertools.islice(itertools.cycle(ENDS), CRASHES)):
            if number == WARM_UP_ROUNDS:
                watch = Watch(server.process.pid)
            y, error = client.infer("crashing", np.zeros(SIZES[number % 2], np.float32), {"how": how})
            assert y is None, f"'{how}' was answered with an output"
            assert error == (
                f"Stub process 'crashing_0' is not healthy: it {ENDS[how]} while it executed this request"
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
