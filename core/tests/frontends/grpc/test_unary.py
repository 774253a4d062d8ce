"""ModelInfer over a real socket, by the synchronous and the asyncio client."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client_library
import tritonclient.grpc.aio as aio_client_library
from tritonpy.buffers import MemoryType
from tritonpy.errors import NotFound
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor

ARRAYS = {
    "BOOL": np.array([[True, False]]),
    "UINT8": np.array([[1, 255]], np.uint8),
    "UINT16": np.array([[1, 65535]], np.uint16),
    "UINT32": np.array([[1, 2**32 - 1]], np.uint32),
    "UINT64": np.array([[1, 2**64 - 1]], np.uint64),
    "INT8": np.array([[-128, 127]], np.int8),
    "INT16": np.array([[-(2**15), 1]], np.int16),
    "INT32": np.array([[-(2**31), 1]], np.int32),
    "INT64": np.array([[-(2**63), 1]], np.int64),
    "FP16": np.array([[0.5, np.inf]], np.float16),
    "FP32": np.array([[0.1, -np.inf]], np.float32),
    "FP64": np.array([[0.1, 1e300]]),
    "BYTES": np.array([[b"", b"\0\xff"]], object),
}


def inputs(library: Any, datatype: str, array: Any) -> list[Any]:
    tensor = library.InferInput("INPUT0", list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return [tensor]


@pytest.mark.parametrize("datatype", ARRAYS)
def test_every_datatype_comes_back_to_tritonclient(harness: Any, datatype: str) -> None:
    array = ARRAYS[datatype]

    with client_library.InferenceServerClient(harness.url) as client:
        result = client.infer("echo", inputs(client_library, datatype, array), request_id="i")

    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)
    response = result.get_response()
    assert (response.model_name, response.model_version, response.id) == ("echo", "3", "i")
    assert response.outputs[0].datatype == datatype


def test_bf16_comes_back_bit_by_bit(harness: Any, make_request: Callable[..., Any]) -> None:
    request = make_request(data=b"\x00\x3f\x00\xc0")
    request.inputs[0].datatype = "BF16"
    request.inputs[0].shape[:] = [2]

    response = harness.stub.ModelInfer(request, timeout=20)

    assert (response.outputs[0].datatype, list(response.outputs[0].shape)) == ("BF16", [2])
    assert response.raw_output_contents[0] == b"\x00\x3f\x00\xc0"


def test_asyncio_client_is_answered(harness: Any) -> None:
    array = ARRAYS["FP32"]

    async def ask() -> Any:
        async with aio_client_library.InferenceServerClient(harness.url) as client:
            return await client.infer("echo", inputs(aio_client_library, "FP32", array))

    np.testing.assert_array_equal(harness.run(ask()).as_numpy("OUTPUT0"), array)


def test_asyncio_client_sees_errors(harness: Any) -> None:
    async def ask() -> Any:
        async with aio_client_library.InferenceServerClient(harness.url) as client:
            await client.infer("nope", inputs(aio_client_library, "FP32", ARRAYS["FP32"]))

    with pytest.raises(client_library.InferenceServerException) as refused:
        harness.run(ask())
    assert refused.value.message() == "Request for unknown model: 'nope' is not found"
    assert refused.value.status() == "StatusCode.NOT_FOUND"


def test_options_of_the_client_reach_the_data_plane(harness: Any) -> None:
    with client_library.InferenceServerClient(harness.url) as client:
        client.infer(
            "echo",
            inputs(client_library, "FP32", ARRAYS["FP32"]),
            model_version="3",
            outputs=[client_library.InferRequestedOutput("OUTPUT0")],
            request_id="r",
            sequence_id=42,
            sequence_start=True,
            sequence_end=True,
            priority=7,
            timeout=1234,
            parameters={"custom": "text", "number": 5},
        )

    request = harness.dataplane.seen
    assert (request.model_version, request.id, request.requested_outputs) == ("3", "r", ("OUTPUT0",))
    assert (request.correlation_id, request.flags) == (42, 3)
    assert (request.priority, request.timeout_us) == (7, 1234)
    assert request.parameters == {"custom": "text", "number": 5}
    assert request.arrival_ns > 0


@pytest.mark.parametrize("mebibytes", [1, 5, 9])
def test_large_tensors_come_back_whole(
    harness: Any, make_request: Callable[..., Any], mebibytes: int
) -> None:
    data = np.random.default_rng(0).bytes(mebibytes * 1024 * 1024)

    response = harness.stub.ModelInfer(make_request(data=data, id="i"), timeout=50)

    assert response.raw_output_contents[0] == data
    assert response.id == "i"


def test_compressed_requests_are_read(harness: Any, make_request: Callable[..., Any]) -> None:
    response = harness.stub.ModelInfer(
        make_request(data=bytes(100_000)), timeout=20, compression=grpc.Compression.Gzip
    )

    assert response.raw_output_contents[0] == bytes(100_000)


def refusal(harness: Any, request: Any, **options: Any) -> Any:
    with pytest.raises(grpc.RpcError) as refused:
        harness.stub.ModelInfer(request, timeout=20, **options)
    return refused.value


def test_decoupled_models_are_refused(harness: Any, make_request: Callable[..., Any]) -> None:
    error = refusal(harness, make_request("decoupled"))

    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert error.details() == "ModelInfer RPC doesn't support models with decoupled transaction policy"


def test_unknown_model_is_named_before_the_inputs_are_looked_at(harness: Any) -> None:
    error = refusal(harness, client_library.service_pb2.ModelInferRequest(model_name="nope"))

    assert error.code() is grpc.StatusCode.NOT_FOUND


def test_error_of_the_model_arrives_with_its_code(harness: Any, make_request: Callable[..., Any]) -> None:
    error = refusal(harness, make_request("fails"))

    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "the model says no")


def test_crash_behind_the_data_plane_is_internal_and_logged(
    harness: Any, make_request: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    error = refusal(harness, make_request("crash"))

    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "RuntimeError: boom")
    assert "Traceback" in caplog.text
    assert harness.stub.ModelInfer(make_request(), timeout=20).model_name == "echo"


@pytest.mark.parametrize("length", [20_000, 200_000])
def test_very_long_error_reaches_the_client_under_its_code(
    harness: Any, make_request: Callable[..., Any], length: int
) -> None:
    answer = harness.stub.ModelInfer.future(make_request("manual"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    harness.call(lambda: harness.dataplane.requests.pop().fail(NotFound("no é " * (length // 5))))

    error = answer.exception(20)

    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details().startswith("no é no é ")
    assert error.details().endswith(" more characters)")


class Gone:
    """A buffer that cannot be opened."""

    memory_type = MemoryType.CPU
    device_id = 0
    byte_size = 4

    def host_view(self) -> memoryview:
        raise OSError("segment is gone")


def test_response_that_cannot_be_written_is_internal(
    harness: Any, make_request: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    answer = harness.stub.ModelInfer.future(make_request("manual"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    response = InferResponse([Tensor("OUTPUT0", "FP32", [1], Gone())])
    harness.call(lambda: harness.dataplane.requests.pop().deliver(response))

    error = answer.exception(20)

    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "OSError: segment is gone")
    assert "writing the response of model 'manual' failed" in caplog.text


@pytest.mark.parametrize(
    ("deliveries", "text"),
    [
        ([(None, True)], "[request id: i] model 'manual' sent no response"),
        ([(1, False), (2, False)], "[request id: i] expected a single response, got 2"),
        ([(1, False), (2, True)], "[request id: i] expected a single response, got 2"),
    ],
)
def test_model_that_does_not_answer_exactly_once_is_internal(
    harness: Any, make_request: Callable[..., Any], deliveries: list[tuple[Any, bool]], text: str
) -> None:
    answer = harness.stub.ModelInfer.future(make_request("manual", id="i"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    request = harness.dataplane.requests.pop()
    for response, final in deliveries:
        harness.call(request.deliver, None if response is None else InferResponse(), final)

    error = answer.exception(20)

    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, text)


def test_response_and_final_flag_may_come_apart(harness: Any, make_request: Callable[..., Any]) -> None:
    answer = harness.stub.ModelInfer.future(make_request("manual"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    request = harness.dataplane.requests.pop()
    harness.call(request.deliver, InferResponse([request.inputs["INPUT0"].renamed("OUTPUT0")]), False)
    harness.call(request.deliver, None, True)

    assert answer.result(20).raw_output_contents[0] == bytes(8)


def test_cancelling_client_cancels_the_request(
    harness: Any, make_request: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tritonpy.grpc")
    answer = harness.stub.ModelInfer.future(make_request("manual", id="mine"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)

    answer.cancel()

    harness.dataplane.wait_for(lambda plane: plane.cancelled == ["mine"])
    assert "Cancellation notification received for ModelInferHandler" in caplog.messages
    harness.call(lambda: harness.dataplane.requests.pop().deliver(InferResponse()))  # nobody listens
    assert harness.stub.ModelInfer(make_request(), timeout=20).model_name == "echo"


def test_deadline_of_the_client_cancels_the_request(harness: Any, make_request: Callable[..., Any]) -> None:
    for timeout_s in (0.2, 2, 15):  # a busy machine may need longer than that to take the request
        with pytest.raises(grpc.RpcError) as expired:
            harness.stub.ModelInfer(make_request("manual", id="late"), timeout=timeout_s)
        assert expired.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if harness.dataplane.requests:
            break

    harness.dataplane.wait_for(lambda plane: len(plane.cancelled) == len(plane.requests) > 0)
    assert set(harness.dataplane.cancelled) == {"late"}


def test_closing_client_cancels_the_request(harness: Any, make_request: Callable[..., Any]) -> None:
    channel = grpc.insecure_channel(harness.url)
    stub = client_library.service_pb2_grpc.GRPCInferenceServiceStub(channel)
    answer = stub.ModelInfer.future(make_request("manual", id="mine"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)

    channel.close()

    assert answer.code() is grpc.StatusCode.CANCELLED
    harness.dataplane.wait_for(lambda plane: plane.cancelled == ["mine"])


def test_frontend_does_not_keep_a_dropped_request_alive(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    class Outbox:
        def post(self, request: Any, response: Any, final: bool) -> None:
            harness.loop.call_soon_threadsafe(request.deliver, response, final)

    answer = harness.stub.ModelInfer.future(make_request("manual"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    harness.dataplane.seen = None
    gc.disable()  # reference counts alone must free it
    try:
        request = harness.dataplane.requests.pop()
        request.ticket.outbox = Outbox()
        del request
        error = answer.exception(20)
    finally:
        gc.enable()

    assert error.code() is grpc.StatusCode.INTERNAL
    assert "dropped the request without a final response" in error.details()
