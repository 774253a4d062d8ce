"""gRPC clients that go away at any moment: every request is counted once, and nothing of it stays behind."""

from __future__ import annotations

import logging
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2
from tritonpy.model.model import LoadedModel
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..on_loop import on_loop
from ..servers import GRPC_TRANSPORTS, local_options

SERVICE = "/inference.GRPCInferenceService/"
CLIENTS = 4
CHANNELS = 5  # of each client, one after the other
CALLS = 12  # over each channel
# Such a client takes no more than some thousand bytes before it asks for a message.
TAKES_LITTLE = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16 * 1024)]
SIZES = (4, 200_000, 1_000_000)

# Asks for more than it takes, until it is killed.
CLIENT = """
import sys
import grpc

target, body = sys.argv[1], open(sys.argv[2], "rb").read()
channel = grpc.insecure_channel(target, options=[("grpc.http2.lookahead_bytes", 16 * 1024)])
calls = [channel.stream_stream(name)(iter([body] * 8)) for name in sys.argv[3:]]
for call in calls:
    call.initial_metadata()
print("begun", flush=True)
sys.stdin.read()
"""


def identity(delay_ms: int) -> dict[str, Any]:
    return {
        "backend": "identity",
        "input": [{"name": "INPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}],
        "parameters": {"execute_delay_ms": {"string_value": str(delay_ms)}},
    }


def body(model: str, byte_size: int) -> bytes:
    message = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[bytes(byte_size)])
    message.inputs.add(name="INPUT0", datatype="UINT8", shape=[byte_size])
    serialized: bytes = message.SerializeToString()
    return serialized


class Accepted:
    """Counts what the server takes, which then has to be answered."""

    count = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        take = LoadedModel.infer

        def infer(model: LoadedModel, request: InferRequest, sink: ResponseSink) -> None:
            take(model, request, sink)
            self.count += 1

        monkeypatch.setattr(LoadedModel, "infer", infer)


@pytest.fixture(params=GRPC_TRANSPORTS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    repository = ModelRepository(tmp_path / "models")
    repository.model("quick", identity(0))
    repository.model("slow", identity(3))
    options = local_options(
        repository.path, allow_http=False, allow_metrics=False, grpc_transport=request.param
    )
    with Server(options) as server:
        yield server


@pytest.fixture
def accepted(server: Server, monkeypatch: pytest.MonkeyPatch) -> Accepted:
    return Accepted(monkeypatch)


def leave_at_random(target: str, choose: random.Random) -> None:
    """Ask in all ways, take some answers, cancel some calls, and close the channel with the others."""
    for _ in range(CHANNELS):
        own = ("grpc.use_local_subchannel_pool", 1)
        with grpc.insecure_channel(target, options=[own, *choose.choice([[], TAKES_LITTLE])]) as channel:
            calls = []
            for _ in range(CALLS):
                method = choose.choice(["ModelInfer", "ModelStreamInfer"])
                count = 1 if method == "ModelInfer" else choose.randint(1, 4)
                bodies = [
                    body(choose.choice(["quick", "slow", "none"]), choose.choice(SIZES)) for _ in range(count)
                ]
                timeout_s = choose.choice([0.005, 0.05, DEADLINE_S])
                calls.append(channel.stream_stream(SERVICE + method)(iter(bodies), timeout=timeout_s))
            for call in calls:
                time.sleep(choose.random() / 100)
                match choose.choice(["cancel", "take", "stay"]):
                    case "cancel":
                        call.cancel()
                    case "take":
                        with suppress(grpc.RpcError):
                            next(call)


def counts(server: Server) -> tuple[int, int, int]:
    """Requests that have had their end, those that wait, and the bytes that are held for requests."""
    stats = [server.runtime.registry.find(name).stats for name in ("quick", "slow")]
    ended = sum(each.success_count + each.fail_count for each in stats)
    return ended, sum(each.pending_count for each in stats), server.runtime.admission.held


def settle(server: Server, accepted: Accepted) -> None:
    """Wait until all that was taken has had its end, and nothing is held."""

    def found() -> tuple[int, int, int, int]:
        return on_loop(server, lambda: (*counts(server), accepted.count))

    def is_settled() -> bool:
        ended, pending, held, taken = found()
        return (pending, held, ended) == (0, 0, taken)

    until(is_settled, found)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_whoever_leaves_at_whatever_moment_is_counted_once_and_no_error(
    server: Server, accepted: Accepted, caplog: pytest.LogCaptureFixture
) -> None:
    target = f"127.0.0.1:{server.grpc_port}"
    with ThreadPoolExecutor(CLIENTS) as pool:
        for left in [
            pool.submit(leave_at_random, target, random.Random(number)) for number in range(CLIENTS)
        ]:
            left.result()

    settle(server, accepted)
    assert accepted.count > CLIENTS * CHANNELS
    assert errors(caplog) == []
    with grpc.insecure_channel(target) as channel:
        assert channel.unary_unary(SERVICE + "ModelInfer")(body("quick", 4), timeout=DEADLINE_S)


def test_a_client_whose_process_is_killed_is_no_error_either(
    server: Server, accepted: Accepted, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "body"
    path.write_bytes(body("quick", 1_000_000))
    names = [SERVICE + "ModelStreamInfer"] * 3
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, f"127.0.0.1:{server.grpc_port}", str(path), *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with client:
        assert client.stdout is not None
        begun = client.stdout.readline()
        client.send_signal(signal.SIGKILL)

    assert begun == b"begun\n"
    settle(server, accepted)
    assert accepted.count >= len(names)
    assert errors(caplog) == []
