"""The cases by which gRPC's implementations prove that they understand each other, asked of our calls.

Each test is named after a case of gRPC's interoperability suite. What that suite's own service does is done
here by models: `echo` gives back what it gets, `staged` waits and notes, `repeat` answers many times.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.testing import until

from .conftest import Stage
from .grpc_cases import infer
from .raw import SERVICE

REQUEST_SIZES = (27_182, 8, 1828, 45_904)
RESPONSE_SIZES = (31_415, 9, 2653, 58_979)
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"

Infer = service_pb2.ModelInferRequest


def request(model: str, contents: bytes, id: str = "") -> Any:
    return Infer.FromString(infer(model, contents, id))


def repeat(*sizes: int) -> Any:
    """Ask for one response after the other, each a number that stands for a size."""
    message = Infer(model_name="repeat")
    delays = np.zeros(len(sizes), np.uint32)
    for name, datatype, values in (
        ("IN", "INT32", np.array(sizes, np.int32)),
        ("DELAY", "UINT32", delays),
        ("WAIT", "UINT32", np.zeros(1, np.uint32)),
    ):
        message.inputs.add(name=name, datatype=datatype, shape=[len(values)])
        message.raw_input_contents.append(values.tobytes())
    return message


class Requests:
    """What a client sends in a stream, one by one; None ends it."""

    def __init__(self) -> None:
        self._next: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(self, message: Any) -> None:
        self._next.put(message)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._next.get, None)


@pytest.fixture
def channel(interop_port: int) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{interop_port}", options=UNLIMITED) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.Channel) -> Any:
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def contents(response: Any) -> bytes:
    (raw,) = response.infer_response.raw_output_contents
    return bytes(raw)


def test_empty_unary(channel: grpc.Channel) -> None:
    answer, call = channel.unary_unary(SERVICE + "ServerLive").with_call(b"", timeout=30)

    assert answer == b"\x08\x01"
    assert call.code() is grpc.StatusCode.OK
    assert not call.trailing_metadata()


@pytest.mark.parametrize("size", [271_828, 4_000_000])
def test_large_unary(stub: Any, size: int) -> None:
    sent = np.random.default_rng(size).bytes(size)

    assert stub.ModelInfer(request("echo", sent), timeout=30).raw_output_contents == [sent]


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_client_compressed_unary(stub: Any, compression: grpc.Compression) -> None:
    sent = bytes(271_828)

    answer = stub.ModelInfer(request("echo", sent), timeout=30, compression=compression)

    assert answer.raw_output_contents == [sent]


def test_server_compressed_unary(compressing_port: int) -> None:
    sent = bytes(271_828)
    with grpc.insecure_channel(f"127.0.0.1:{compressing_port}", options=UNLIMITED) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        answer, call = stub.ModelInfer.with_call(request("echo", sent), timeout=30)

    assert answer.raw_output_contents == [sent]
    assert call.code() is grpc.StatusCode.OK


def test_client_streaming(stub: Any) -> None:
    sent = [bytes([number]) * size for number, size in enumerate(REQUEST_SIZES)]

    answers = list(stub.ModelStreamInfer((request("echo", each) for each in sent), timeout=30))

    assert [contents(answer) for answer in answers] == sent


def test_client_compressed_streaming(stub: Any) -> None:
    sent = [bytes([number]) * size for number, size in enumerate(REQUEST_SIZES)]

    answers = stub.ModelStreamInfer(
        (request("echo", each) for each in sent), timeout=30, compression=grpc.Compression.Gzip
    )

    assert [contents(answer) for answer in answers] == sent


def test_server_streaming(stub: Any) -> None:
    answers = stub.ModelStreamInfer(iter([repeat(*RESPONSE_SIZES)]), timeout=30)

    outputs = [answer.infer_response.raw_output_contents[0] for answer in answers]
    assert [int.from_bytes(output, "little") for output in outputs] == list(RESPONSE_SIZES)


def test_ping_pong(stub: Any) -> None:
    requests = Requests()
    call = stub.ModelStreamInfer(iter(requests), timeout=30)
    for size in (*REQUEST_SIZES, *RESPONSE_SIZES):
        requests.send(request("echo", bytes([size % 251]) * size))
        assert contents(next(call)) == bytes([size % 251]) * size
    requests.send(None)

    assert list(call) == []
    assert call.code() is grpc.StatusCode.OK


def test_empty_stream(stub: Any) -> None:
    call = stub.ModelStreamInfer(iter([]), timeout=30)

    assert list(call) == []
    assert call.code() is grpc.StatusCode.OK


def test_custom_metadata(stub: Any, stage: Stage) -> None:
    stage.is_open.set()
    metadata = [
        ("x-grpc-test-echo-initial", "test_initial_metadata_value"),
        ("x-twice", "1"),
        ("x-twice", "2"),
    ]

    stub.ModelInfer(request("staged", b"x", "metadata"), timeout=30, metadata=metadata)

    (parameters,) = [parameters for id, parameters in stage.executed if id == "metadata"]
    assert parameters["x-grpc-test-echo-initial"] == "test_initial_metadata_value"
    assert parameters["x-twice"] in ("1", "2")


def test_binary_metadata(stub: Any) -> None:
    metadata = [("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"), ("x-none-bin", b"")]

    assert stub.ModelInfer(request("echo", b"x"), timeout=30, metadata=metadata).raw_output_contents == [b"x"]


def failure(text: str) -> Any:
    return request("staged", text.encode(), "fail")


def test_status_code_and_message(stub: Any, stage: Stage) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(failure("test status message"), timeout=30)

    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert refused.value.details() == "test status message"


def test_status_code_and_message_of_a_stream(stub: Any, stage: Stage) -> None:
    metadata = [("triton_grpc_error", "true")]
    call = stub.ModelStreamInfer(iter([failure("test status message")]), timeout=30, metadata=metadata)
    with pytest.raises(grpc.RpcError) as refused:
        list(call)

    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert refused.value.details() == "test status message"


def test_special_status_message(stub: Any, stage: Stage) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(failure(SPECIAL), timeout=30)

    assert refused.value.details() == SPECIAL


def test_unimplemented_method(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(SERVICE + "Unimplemented")(b"", timeout=30)

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_unimplemented_service(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        channel.stream_stream("/inference.Unimplemented/Call")(iter([b""]), timeout=30).next()

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_cancel_after_begin(stub: Any) -> None:
    requests = Requests()
    call = stub.ModelStreamInfer(iter(requests), timeout=30)

    call.cancel()
    requests.send(None)

    assert call.code() is grpc.StatusCode.CANCELLED


def test_cancel_after_begin_of_a_unary_call(stub: Any, stage: Stage) -> None:
    running = stub.ModelInfer.future(request("staged", b"x", "running"), timeout=30)
    until(lambda: "running" in stage.ids)
    waiting = stub.ModelInfer.future(request("staged", b"x", "waiting"), timeout=30)
    stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=30)  # it goes the same way, so that has arrived

    waiting.cancel()
    stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=30)
    stage.is_open.set()
    running.result(30)
    stub.ModelInfer(request("staged", b"x", "last"), timeout=30)

    assert stage.ids == ["running", "last"]


def test_cancel_after_first_response(stub: Any) -> None:
    requests = Requests()
    call = stub.ModelStreamInfer(iter(requests), timeout=30)
    requests.send(request("echo", b"first"))
    assert contents(next(call)) == b"first"

    call.cancel()
    requests.send(None)

    assert call.code() is grpc.StatusCode.CANCELLED


def test_timeout_on_sleeping_server(stub: Any, stage: Stage) -> None:
    requests = Requests()
    requests.send(request("staged", b"x"))
    call = stub.ModelStreamInfer(iter(requests), timeout=0.05)
    with pytest.raises(grpc.RpcError) as refused:
        next(call)
    requests.send(None)

    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_concurrent_large_unary(stub: Any) -> None:
    sent = [bytes([number]) * 100_000 for number in range(50)]

    calls = [stub.ModelInfer.future(request("echo", each), timeout=30) for each in sent]

    assert [call.result(30).raw_output_contents for call in calls] == [[each] for each in sent]
