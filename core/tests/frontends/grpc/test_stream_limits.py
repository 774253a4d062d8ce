"""What a stream holds at most, and what it lets go when its client, a deadline or the server ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from tritonpy.flow import FlowLimits
from tritonpy.response import InferResponse

from .streams import Stream, deliver, described, numbers

MEBIBYTE = 1024 * 1024


def large(mebibytes: int = 1) -> InferResponse:
    return InferResponse().add("OUTPUT0", np.zeros(mebibytes * MEBIBYTE, np.uint8))


def test_cancelling_client_cancels_all_open_requests(
    harness: Any, stream: Stream, make_request: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tritonpy.grpc")
    stream.send(*(make_request("manual", id=id) for id in "ab"), make_request("decoupled", id="c"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 3)
    deliver(harness, "a", numbers(1))

    stream.call.cancel()

    harness.dataplane.wait_for(lambda plane: len(plane.cancelled) == 2)
    assert caplog.messages.count("Cancellation notification received for ModelStreamInferHandler") == 2
    deliver(harness, "b", numbers(1))  # nobody listens
    assert sorted(harness.dataplane.cancelled) == ["b", "c"]
    assert harness.stub.ModelInfer(make_request(), timeout=20).model_name == "echo"


def test_stream_does_not_keep_a_dropped_request_alive(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    class Outbox:
        def post(self, request: Any, response: Any, final: bool) -> None:
            harness.loop.call_soon_threadsafe(request.deliver, response, final)

    stream.send(make_request("decoupled", id="d"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    harness.dataplane.seen = None
    gc.disable()  # reference counts alone must free it
    try:
        request = harness.dataplane.requests.pop()
        request.ticket.outbox = Outbox()
        del request
        message, id, _, final = described(stream.receive())
    finally:
        gc.enable()

    assert (id, final) == ("d", True)
    assert "dropped the request without a final response" in message


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


def test_stream_of_a_client_that_does_not_read_is_ended_before_it_costs_much(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    harness = start_harness(flow_limits=FlowLimits(max_byte_size=4 * MEBIBYTE))
    stream = Stream(harness.stub)
    stream.send(make_request("decoupled", id="d"), make_request("manual", id="m"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)

    for _ in range(40):  # as nobody does who waits when there is no room
        deliver(harness, "d", large(), final=False)

    harness.dataplane.wait_for(lambda plane: sorted(plane.cancelled) == ["d", "m"])
    # Others never notice.
    assert harness.stub.ModelInfer(make_request(), timeout=20).model_name == "echo"
    with pytest.raises(grpc.RpcError) as ended:
        stream.rest()
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "bytes wait for the client, which reads too slowly" in ended.value.details()
    assert "at most 1024 responses or 4194304 bytes are held" in ended.value.details()
    stream.half_close()


def test_one_response_larger_than_the_limit_is_let_in(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    harness = start_harness(max_held_byte_size=MEBIBYTE, flow_limits=FlowLimits(max_byte_size=MEBIBYTE))
    stream = Stream(harness.stub)
    stream.send(make_request("decoupled", id="d"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)

    deliver(harness, "d", large(3))

    assert len(stream.rest()[0].infer_response.raw_output_contents[0]) == 3 * MEBIBYTE


def test_requests_of_a_client_that_does_not_read_are_not_read_either(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    limits = FlowLimits(max_byte_size=4 * MEBIBYTE)
    harness = start_harness(max_held_byte_size=4 * MEBIBYTE, flow_limits=limits)
    stream = Stream(harness.stub)
    count = 64
    stream.send(*(make_request(id=str(index), data=bytes(MEBIBYTE)) for index in range(count)))
    stream.half_close()

    responses = []
    for response in stream.call:
        responses.append(response.infer_response.id)
        time.sleep(0.002)  # slower than the server: without a pause in reading, the limit would be passed

    assert responses == [str(index) for index in range(count)]


def test_an_idle_stream_holds_neither_request_nor_response(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    bodies = [make_request(data=bytes(1024 * 1024)).SerializeToString()]
    sent: list[bytes] = []

    async def read() -> bytes | None:
        return bodies.pop() if bodies else await asyncio.Future()

    async def write(message: bytes) -> None:
        sent.append(message)

    async def count_references() -> tuple[int, int]:
        body = bodies[0]
        before = sys.getrefcount(body)
        servicer = harness.server._servicer
        running = asyncio.create_task(servicer.model_stream_infer(read, write, ()))
        for _ in range(10):  # all that happens, happens on this loop
            await asyncio.sleep(0)
        harness.dataplane.seen = None
        counts = sys.getrefcount(body) - before, sys.getrefcount(sent[0])
        running.cancel()
        return counts

    of_request, of_response = harness.run(count_references())

    assert of_request == -1  # `bodies` had one
    assert of_response == 2  # `sent` has one, and the question


def test_open_requests_of_one_stream_are_bounded(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    harness = start_harness(max_held_byte_size=4 * MEBIBYTE)
    stream = Stream(harness.stub)
    stream.send(*(make_request("manual", id=str(index), data=bytes(MEBIBYTE)) for index in range(20)))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 4)
    harness.stub.ModelInfer(make_request(data=bytes(8 * MEBIBYTE)), timeout=20)  # time for more to come

    most_open = len(harness.dataplane.requests)
    for index in range(20):
        harness.dataplane.wait_for(lambda plane, index=index: len(plane.requests) > index)
        deliver(harness, str(index), numbers(index))

    assert most_open == 4
    assert [response.infer_response.id for response in stream.rest()] == [str(index) for index in range(20)]
