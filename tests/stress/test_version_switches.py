"""A hundred loads that switch versions or instances, while HTTP and gRPC clients ask all the time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonpy_sdk.repository import ModelRepository

from .clients import HttpClient, Traffic
from .holdings import Holdings

LOADS = 100
GROUP_EVERY = 10  # every so many loads change nothing but the number of instances
CONFIG: dict[str, Any] = {
    "backend": "python",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [8]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [8]}],
    "version_policy": {"latest": {"num_versions": 1}},
}
# Each version adds its own number.
MODEL = """
    import time

    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.number = int(args["model_version"])

        def execute(self, requests):
            time.sleep(0.002)
            responses = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + self.number)]))
            return responses
"""
X = np.arange(8, dtype=np.float32).reshape(1, 8)


class GrpcClient:
    """One channel; used by one thread."""

    def __init__(self, port: int) -> None:
        self._client = grpcclient.InferenceServerClient(f"127.0.0.1:{port}")
        self._input = grpcclient.InferInput("X", [1, 8], "FP32")
        self._input.set_data_from_numpy(X)

    def infer(self) -> np.ndarray[Any, Any]:
        """Send the request; raises when it fails."""
        answer = self._client.infer("changing", [self._input], client_timeout=30).as_numpy("Y")
        assert answer is not None
        return answer

    def close(self) -> None:
        self._client.close()


class Served:
    """Which version may answer: the one before the load under way, or the one that is being loaded."""

    def __init__(self) -> None:
        self.oldest = self.newest = 1

    def check(self, oldest: int, y: np.ndarray[Any, Any] | None, error: str = "") -> None:
        """Compare an answer with what may answer; `oldest` is that of the moment the request was sent."""
        newest = self.newest
        assert y is not None, f"a good request failed: {error}"
        number = round(float(y.flat[0]))
        assert np.array_equal(y.reshape(1, 8), X + number)
        assert oldest <= number <= newest, f"answered by version {number}, expected {oldest} to {newest}"

    def ask_http(self, client: HttpClient) -> None:
        oldest = self.oldest
        self.check(oldest, *client.infer("changing", X))

    def ask_grpc(self, client: GrpcClient) -> None:
        oldest = self.oldest
        self.check(oldest, client.infer())


def load(client: HttpClient) -> None:
    status, _, body = client.ask("POST", "/v2/repository/models/changing/load", b"{}")
    assert status == 200, body


@pytest.mark.stress
@pytest.mark.timeout(600)
def test_a_hundred_switches_fail_no_request_and_no_old_version_answers_after_its_switch(
    corectl: Callable[..., Any], tmp_path: Path, progress: Callable[[str], None]
) -> None:
    models = ModelRepository(tmp_path)
    models.python("changing", MODEL, CONFIG)
    server = corectl(
        "--model-repository", str(tmp_path), "--model-control-mode=explicit", "--load-model=changing"
    )
    http_port = server.ports["HTTPService"]
    client = HttpClient(http_port)
    grpc_clients = [GrpcClient(server.ports["GRPCInferenceService"]) for _ in range(3)]
    served = Served()
    asks: list[Callable[[HttpClient], None]] = [served.ask_http] * 2
    asks += [
        lambda _, grpc_client=grpc_client: served.ask_grpc(grpc_client) for grpc_client in grpc_clients[1:]
    ]
    started = time.monotonic()
    switched = kept_workers = 0

    with Traffic(http_port, asks) as traffic:
        for number in range(1, LOADS + 1):
            if number % GROUP_EVERY:
                served.newest += 1
                models.python("changing", MODEL, version=served.newest)
                load(client)
                served.oldest = served.newest  # whoever asks from now on is answered by the new version
                switched += 1
                shutil.rmtree(tmp_path / "changing" / str(served.newest - 1))
            else:
                before = Holdings.of(server.process.pid).children.keys()
                count = number // GROUP_EVERY % 2 + 1
                groups = [{"kind": "KIND_CPU", "count": count}]
                models.model("changing", {**CONFIG, "instance_group": groups})
                load(client)
                kept_workers += bool(before & Holdings.of(server.process.pid).children.keys())
            served.ask_http(client)
            served.ask_grpc(grpc_clients[0])
            traffic.check()
        answers = traffic.answer_count
    progress(
        f"{switched} switches and {LOADS - switched} updates of instances in "
        f"{time.monotonic() - started:.0f} s, {answers:,} answers beside them"
    )
    client.close()
    for grpc_client in grpc_clients:
        grpc_client.close()

    assert answers > LOADS
    assert kept_workers == LOADS - switched  # only instances changed: the others went on as they were
    assert server.stop() == 0
