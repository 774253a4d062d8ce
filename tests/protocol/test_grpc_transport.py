"""gRPC against whole servers: large tensors, many clients, cancellation, and the end of the server."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client_library
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import GRPC_TRANSPORTS, local_options

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


def identity(name: str, delay_ms: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "backend": "identity",
        "input": [{"name": "INPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}],
        "parameters": {"execute_delay_ms": {"string_value": str(delay_ms)}},
        "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
        **more,
    }


def infer(model: str, data: bytes, **more: Any) -> Any:
    message = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[data], **more)
    message.inputs.add(name="INPUT0", datatype="UINT8", shape=[len(data)])
    return message


@pytest.fixture(scope="module", params=GRPC_TRANSPORTS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("models")
    repository = ModelRepository(root)
    repository.model("thread", identity("thread"))
    isolated = {"TRITONPY_ISOLATION": {"string_value": "process"}}
    repository.model("process", identity("process", parameters=isolated))
    repository.model("slow", identity("slow", delay_ms=300))
    options = local_options(root, allow_http=False, allow_metrics=False, grpc_transport=request.param)
    with Server(options) as server:
        yield server


@pytest.fixture
def stub(server: Server) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=UNLIMITED) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.mark.parametrize("model", ["thread", "process"])
def test_large_tensors_of_many_calls_do_not_mix(stub: Any, model: str) -> None:
    sent = [np.full(1_000_000 + index, index, np.uint8).tobytes() for index in range(12)]

    calls = [stub.ModelInfer.future(infer(model, data, id=str(i)), timeout=50) for i, data in enumerate(sent)]

    for index, call in enumerate(calls):
        response = call.result(50)
        assert response.id == str(index)
        assert response.raw_output_contents[0] == sent[index]


def test_one_message_of_60_megabytes_is_read_to_its_end(corectl: Callable[..., Any], tmp_path: Path) -> None:
    both = {
        direction: [
            {"name": f"{direction.upper()}{number}", "data_type": "TYPE_UINT8", "dims": [-1]}
            for number in (0, 1)
        ]
        for direction in ("input", "output")
    }
    ModelRepository(tmp_path).model("pair", identity("pair", **both))
    server = corectl(f"--model-repository={tmp_path}")  # elsewhere: each side has copies of the message
    message = infer("pair", bytes(60_000_000))
    message.inputs.add(name="INPUT1", datatype="UINT8", shape=[5])
    message.raw_input_contents.append(b"after")
    message.outputs.add(name="OUTPUT1")
    text = message.SerializeToString()
    del message
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=UNLIMITED) as channel:
        answer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(text, timeout=100)

    assert service_pb2.ModelInferResponse.FromString(answer).raw_output_contents == [b"after"]


@pytest.mark.parametrize("model", ["thread", "process"])
def test_large_responses_to_a_slow_reader_keep_every_byte(stub: Any, model: str) -> None:
    sent = [np.random.default_rng(index).bytes(2_000_000) for index in range(6)]

    received = []
    for response in stub.ModelStreamInfer(iter([infer(model, data) for data in sent]), timeout=50):
        time.sleep(0.05)  # while the server recycles the blocks of what it has answered
        received.append(response.infer_response.raw_output_contents[0])

    assert received == sent


def test_descriptions_of_a_served_model_reach_tritonclient(server: Server) -> None:
    with client_library.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        ready = client.is_server_ready() and client.is_model_ready("thread")
        metadata = client.get_model_metadata("thread")
        config = client.get_model_config("thread").config
        before = client.get_inference_statistics("thread").model_stats[0].inference_stats.success.count
        tensor = client_library.InferInput("INPUT0", [3], "UINT8")
        tensor.set_data_from_numpy(np.arange(3, dtype=np.uint8))
        client.infer("thread", [tensor])
        after = client.get_inference_statistics("thread").model_stats[0].inference_stats.success.count

    assert ready
    assert (metadata.name, list(metadata.versions)) == ("thread", ["1"])
    assert [(spec.name, spec.datatype, list(spec.shape)) for spec in metadata.inputs] == [
        ("INPUT0", "UINT8", [-1])
    ]
    assert (config.name, config.backend, list(config.input[0].dims)) == ("thread", "identity", [-1])
    assert after == before + 1


def test_cancelled_calls_leave_the_queue(server: Server, stub: Any) -> None:
    stats = server.runtime.registry.find("slow").stats
    before = stats.execution_count
    running = stub.ModelInfer.future(infer("slow", b"x"), timeout=50)
    queued = [stub.ModelInfer.future(infer("slow", b"x"), timeout=50) for _ in range(50)]
    stream = stub.ModelStreamInfer(iter([infer("slow", b"x")] * 50), timeout=50)
    time.sleep(0.1)

    for call in [*queued, stream]:
        call.cancel()
    running.result(50)
    stub.ModelInfer(infer("slow", b"x"), timeout=50)

    # Of a hundred and two, those that were executed before it was heard of.
    assert stats.execution_count - before < 30


def ask_until_refused(port: int, outcomes: list[str]) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=OWN_CONNECTION) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        while True:
            try:
                stub.ModelInfer(infer("echo", b"x"), timeout=50)
            except grpc.RpcError as error:
                outcomes.append(f"{error.code().name}: {error.details()}")
                return
            outcomes.append("OK")


def ask_in_a_stream_until_refused(port: int, outcomes: list[str]) -> None:
    answered = threading.Semaphore(4)

    def requests() -> Iterator[Any]:
        while not outcomes or outcomes[-1] == "OK":
            answered.acquire()
            yield infer("echo", b"x")

    with grpc.insecure_channel(f"127.0.0.1:{port}", options=OWN_CONNECTION) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            for response in stub.ModelStreamInfer(requests(), timeout=50):
                outcomes.append(response.error_message or "OK")
                answered.release()
        except grpc.RpcError as error:
            outcomes.append(f"{error.code().name}: {error.details()}")
        answered.release()


def test_terminated_server_answers_or_refuses_every_call(corectl: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("echo", identity("echo", delay_ms=5))
    server = corectl(f"--model-repository={tmp_path}")
    port = server.ports["GRPCInferenceService"]
    outcomes: list[list[str]] = [[] for _ in range(9)]
    asks = [ask_until_refused] * 8 + [ask_in_a_stream_until_refused]
    threads = [
        threading.Thread(target=ask, args=(port, ends)) for ask, ends in zip(asks, outcomes, strict=True)
    ]
    for thread in threads:
        thread.start()
    until(lambda: min(map(len, outcomes)) >= 3)

    status = server.stop(signal.SIGTERM)

    for thread in threads:
        thread.join()
    assert status == 0, server.log
    for ends in outcomes:
        assert set(ends[:-1]) == {"OK"}
        # CANCELLED is grpcio's word for a call that came while the port closed and that nobody saw.
        assert ends[-1].startswith(("UNAVAILABLE: ", "CANCELLED: ")), ends[-1]
    assert any("has stopped accepting new requests" in ends[-1] for ends in outcomes)
