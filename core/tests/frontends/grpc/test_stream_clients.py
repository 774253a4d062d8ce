"""Streams over real sockets: what the client libraries, grpcio and the server do with them."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client_library
import tritonclient.grpc.aio as aio_client_library

from .streams import FINAL, Stream, deliver, described, numbers


def test_tritonclient_streams_a_decoupled_model(harness: Any) -> None:
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    array = np.array([1, 2], np.float32)
    tensor = client_library.InferInput("INPUT0", [2], "FP32")
    tensor.set_data_from_numpy(array)

    with client_library.InferenceServerClient(harness.url) as client:
        client.start_stream(lambda result, error: received.put((result, error)))
        client.async_stream_infer("decoupled", [tensor], request_id="d", enable_empty_final_response=True)
        harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
        deliver(harness, "d", numbers(1), numbers(2), None)
        results = [received.get(timeout=20) for _ in range(3)]
        client.async_stream_infer("nope", [tensor])
        _, error = received.get(timeout=20)
        client.stop_stream()

    assert [list(result.as_numpy("OUTPUT0")) for result, _ in results[:2]] == [[1], [2]]
    assert results[2][0].get_response().parameters[FINAL].bool_param
    assert error.message() == "Request for unknown model: 'nope' is not found"


def test_asyncio_client_streams(harness: Any) -> None:
    tensor = aio_client_library.InferInput("INPUT0", [2], "FP32")
    tensor.set_data_from_numpy(np.array([1, 2], np.float32))

    async def ask() -> list[Any]:
        async def requests() -> Any:
            for index in range(10):
                yield {"model_name": "echo", "inputs": [tensor], "request_id": str(index)}

        async with aio_client_library.InferenceServerClient(harness.url) as client:
            return [result async for result in client.stream_infer(requests())]

    results = harness.run(ask())

    assert [result.get_response().id for result, _ in results] == [str(index) for index in range(10)]
    assert all(error is None for _, error in results)


def test_cancelling_client_cancels_all_open_requests(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(*(make_request("manual", id=id) for id in "ab"), make_request("decoupled", id="c"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 3)
    deliver(harness, "a", numbers(1))

    stream.call.cancel()

    harness.dataplane.wait_for(lambda plane: len(plane.cancelled) == 2)
    deliver(harness, "b", numbers(1))  # nobody listens
    assert sorted(harness.dataplane.cancelled) == ["b", "c"]
    assert harness.stub.ModelInfer(make_request(), timeout=20).model_name == "echo"


def test_deadline_cancels_all_open_requests(harness: Any, make_request: Callable[..., Any]) -> None:
    for timeout_s in (0.3, 2, 15):  # a busy machine may need longer than that to take both requests
        ids = [f"a {timeout_s}", f"b {timeout_s}"]
        stream = Stream(harness.stub, timeout=timeout_s)
        stream.send(*(make_request("manual", id=id) for id in ids))

        assert stream.call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        stream.half_close()
        if [request.id for request in harness.dataplane.requests][-2:] == ids:
            break

    harness.dataplane.wait_for(lambda plane: plane.cancelled[-2:] == ids)


def test_stop_ends_an_idle_stream_and_answers_a_busy_one(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    idle = Stream(harness.stub)
    idle.send(make_request())
    idle.receive()
    stream.send(make_request("manual", id="m"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)

    stopped = asyncio.run_coroutine_threadsafe(harness.server.stop(20), harness.loop)
    with pytest.raises(grpc.RpcError) as ended:
        idle.receive()
    deliver(harness, "m", numbers(1))
    answered = described(stream.receive())
    with pytest.raises(grpc.RpcError) as busy_ended:
        stream.receive()
    stopped.result(20)
    idle.half_close()

    assert answered == ("", "m", "manual", True)
    for error in (ended.value, busy_ended.value):
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert error.details() == "GRPC server is shutting down and has stopped accepting new requests."


def test_an_error_of_a_model_is_the_status_of_clients_that_want_so(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    stream = Stream(harness.stub, metadata=(("triton_grpc_error", "true"),))
    stream.send(make_request("fails", id="f"))
    with pytest.raises(grpc.RpcError) as ended:
        stream.receive()

    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.NOT_FOUND, "the model says no")
    stream.half_close()
