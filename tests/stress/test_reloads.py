"""Five hundred reloads of a model whose code changes each time, while it is asked all the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy_sdk.repository import ModelRepository

from .clients import HttpClient, Traffic
from .holdings import WARM_UP_ROUNDS, Watch

RELOADS = 500
SIZES = (16, 16_384)  # a tensor that travels in the frame, and one in shared memory
CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}
# The code that is loaded adds its number to every element. All numbers have three digits: neither the size of
# the file nor, to the second, its time tells one from the other.
FIRST = 100
MODEL = """
    import time

    import triton_python_backend_utils as pb_utils

    NUMBER = %d


    class TritonPythonModel:
        def execute(self, requests):
            time.sleep(0.002)
            responses = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + NUMBER)]))
            return responses
"""


class LoadedCode:
    """Which code may answer: the one that served before the load under way, or the one that is being loaded.

    Written by the thread that loads, before and after each load; the others only read.
    """

    def __init__(self) -> None:
        self.oldest = self.newest = FIRST

    def ask(self, client: HttpClient, model: str, size: int) -> None:
        """Send a request that must succeed, whatever is being loaded; one at a time in each thread."""
        x = np.arange(size, dtype=np.float32) % 512
        oldest = self.oldest
        y, error = client.infer(model, x)
        newest = self.newest
        assert y is not None, f"{model} answered a good request: {error}"
        number = round(float(y[0] - x[0]))
        assert np.array_equal(y, x + number)
        assert oldest <= number <= newest, f"answered by code {number}, expected {oldest} to {newest}"


@pytest.mark.stress
@pytest.mark.timeout(600)
def test_five_hundred_reloads_cost_no_request_and_nothing_leaks(
    corectl: Callable[..., Any], tmp_path: Path, progress: Callable[[str], None]
) -> None:
    repository = ModelRepository(tmp_path)
    repository.python("changing", MODEL % FIRST, CONFIG)
    server = corectl(
        "--model-repository", str(tmp_path), "--model-control-mode=explicit", "--load-model=changing"
    )
    port = server.ports["HTTPService"]
    client = HttpClient(port)
    code = LoadedCode()
    others = [lambda client, size=size: code.ask(client, "changing", size) for size in SIZES]
    started = time.monotonic()

    with Traffic(port, others) as traffic:
        for number in range(RELOADS):
            if number == WARM_UP_ROUNDS:
                watch = Watch(server.process.pid)
            code.newest += 1
            repository.python("changing", MODEL % code.newest, CONFIG)
            status, _, body = client.ask("POST", "/v2/repository/models/changing/load", b"{}")
            assert status == 200, body
            code.oldest = code.newest  # whoever asks from now on is answered by the new code
            for size in SIZES:
                code.ask(client, "changing", size)
            assert client.is_ready("changing")
            if number >= WARM_UP_ROUNDS:
                watch.sample()
            traffic.check()
            if number % 100 == 99:
                progress(
                    f"{number + 1} reloads in {time.monotonic() - started:.0f} s, "
                    f"{traffic.answer_count:,} answers beside them"
                )
        answers = traffic.answer_count
        progress(watch.check())
    client.close()

    assert answers > RELOADS
    assert server.stop() == 0
