"""Ten thousand requests that go wrong, eight clients, and good requests between them."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.repository import ModelRepository

from .clients import Array, HttpClient
from .holdings import WARM_UP_ROUNDS, Watch

CLIENTS = 8
ROUNDS = 250
FAILURES_PER_ROUND = 5  # of each client: 8 × 250 × 5 = 10,000
GOOD_PER_ROUND = 2
SIZES = (16, 16_384)  # a tensor that travels in the frame, and one in shared memory
CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
    "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
}
MODEL = """
    import asyncio
    import json
    import sys

    import numpy as np
    import triton_python_backend_utils as pb_utils


    class NoString:
        def __str__(self):
            raise ValueError("asked not to be a string")


    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            for request in requests:
                how = json.loads(request.parameters() or "{}").get("how", "good")
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                y = pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)])
                if how == "exception":
                    raise ValueError("asked to raise")
                if how == "error in a response":
                    error = pb_utils.TritonError("asked to refuse", pb_utils.TritonError.INVALID_ARG)
                    y = pb_utils.InferenceResponse([], error)
                if how == "raised error":
                    raise pb_utils.TritonError("asked to be unavailable", pb_utils.TritonError.UNAVAILABLE)
                if how == "exit":
                    sys.exit(3)
                if how == "interrupt":
                    raise KeyboardInterrupt
                if how == "cancelled":
                    raise asyncio.CancelledError
                if how == "no responses":
                    return []
                if how == "too many responses":
                    return [y] * (len(requests) + 1)
                if how == "no list":
                    return y
                if how == "no response":
                    y = "Y"
                if how == "dropped":
                    y = None
                if how == "unknown datatype":
                    y = pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.astype(np.complex64))])
                if how == "not a string":
                    objects = np.full(x.shape, NoString(), dtype=np.object_)
                    y = pb_utils.InferenceResponse([pb_utils.Tensor("Y", objects)])
                responses.append(y)
            return responses
"""
FAILURES = {
    "exception": "ValueError: asked to raise",
    "error in a response": "asked to refuse",
    "raised error": "asked to be unavailable",
    "exit": "SystemExit: 3",
    "interrupt": "KeyboardInterrupt: ",
    "cancelled": "CancelledError: ",
    "no responses": "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0",
    "too many responses": "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2",
    "no list": "Expected a list in the execute return, found type",
    "no response": "Expected an 'InferenceResponse' object in the execute function return list",
    "dropped": "dropped the request without a final response",
    "unknown datatype": "NumPy dtype is not supported.",
    "not a string": "asked not to be a string",
}


class GrpcClient:
    """NVIDIA's client, asked as `HttpClient` is."""

    def __init__(self, port: int) -> None:
        self._client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{port}")

    def infer(
        self, model: str, array: Array, parameters: dict[str, str] | None = None
    ) -> tuple[Array | None, str]:
        """Send `array` as FP32 input X and return output Y, or None and the error's text."""
        x = tritonclient.grpc.InferInput("X", array.shape, "FP32")
        x.set_data_from_numpy(array)
        try:
            result = self._client.infer(model, [x], parameters=parameters, client_timeout=30)
        except InferenceServerException as error:
            return None, str(error)
        return result.as_numpy("Y"), ""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@pytest.mark.stress
@pytest.mark.timeout(240)
def test_every_one_of_ten_thousand_failing_requests_is_answered_and_nothing_leaks(
    corectl: Callable[..., Any], tmp_path: Path, progress: Callable[[str], None]
) -> None:
    ModelRepository(tmp_path).python("failing", MODEL, CONFIG)
    server = corectl("--model-repository", str(tmp_path))
    ports = server.ports["HTTPService"], server.ports["GRPCInferenceService"]
    clients: list[HttpClient | GrpcClient] = [
        GrpcClient(ports[1]) if number % 2 else HttpClient(ports[0]) for number in range(CLIENTS)
    ]
    answers = 0

    def turn(client: HttpClient | GrpcClient, number: int) -> int:
        """One client's share of one round; returns the number of answers."""
        order = random.Random(number)
        hows = itertools.islice(itertools.cycle(FAILURES), number, None)
        todo = [*itertools.islice(hows, FAILURES_PER_ROUND), *[""] * GOOD_PER_ROUND]
        order.shuffle(todo)
        for how in todo:
            x = np.full(order.choice(SIZES), order.random(), np.float32)
            y, error = client.infer("failing", x, {"how": how} if how else None)
            if how:
                assert y is None, f"'{how}' was answered with an output"
                assert FAILURES[how] in error, f"'{how}' was answered: {error}"
            else:
                assert y is not None, f"a good request was answered: {error}"
                assert np.array_equal(y, x * 2)
        return len(todo)

    with ThreadPoolExecutor(CLIENTS) as pool:
        started = time.monotonic()
        for number in range(ROUNDS):
            if number == WARM_UP_ROUNDS:
                watches = Watch.with_children(server.process.pid)
            numbers = range(number * CLIENTS, (number + 1) * CLIENTS)
            answers += sum(pool.map(turn, clients, numbers))
            if number >= WARM_UP_ROUNDS:
                for watch in watches:
                    watch.sample()
            if number % 50 == 49:
                progress(f"{answers:,} answers in {time.monotonic() - started:.0f} s")
        for watch in watches:
            progress(watch.check())
    for client in clients:
        client.close()

    assert answers == CLIENTS * ROUNDS * (FAILURES_PER_ROUND + GOOD_PER_ROUND)
    assert server.stop() == 0
