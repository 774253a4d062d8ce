"""ModelStreamInfer over a real socket."""

from __future__ import annotations

import asyncio
import gc
import queue
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client_library
import tritonclient.grpc.aio as aio_client_library
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.flow import FlowLimits
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor

FINAL = "triton_final_response"
EMPTY_FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}


class Stream:
    """A stream whose requests are sent one by one."""

    def __init__(self, stub: Any, **options: Any) -> None:
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.call = stub.ModelStreamInfer(self._requests(), **{"timeout": 30, **options})

    def send(self, *messages: Any) -> None:
        for message in messages:
            self._outgoing.put(message)

    def half_close(self) -> None:
        self._outgoing.put(None)

    def receive(self) -> Any:
        return next(self.call)

    def rest(self) -> list[Any]:
        return list(self.call)

    def _requests(self) -> Iterator[Any]:
        while (message := self._outgoing.get()) is not None:
            yield message


@pytest.fixture
def stream(harness: Any) -> Iterator[Stream]:
    stream = Stream(harness.stub)
    yield stream
    stream.half_close()
    stream.call.cancel()


def numbers(*values: float) -> InferResponse:
    return InferResponse().add("OUTPUT0", np.array(values, np.float32))


def deliver(harness: Any, id: str, *responses: InferResponse | None, final: bool = True) -> None:
    """Answer the request with this id; the last response is final if `final`."""
    request = next(request for request in harness.dataplane.requests if request.id == id)

    def deliver_all() -> None:
        for index, response in enumerate(responses):
            request.deliver(response, final and index == len(responses) - 1)

    harness.call(deliver_all)


def described(message: Any) -> tuple[str, str, str, bool | None]:
    response = message.infer_response
    flag = response.parameters[FINAL].bool_param if FINAL in response.parameters else None
    return message.error_message, response.id, response.model_name, flag


def test_one_response_per_request_says_it_is_final(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request(id="a"), make_request(id="b"))
    stream.half_close()

    responses = stream.rest()

    assert [described(response) for response in responses] == [
        ("", "a", "echo", True),
        ("", "b", "echo", True),
    ]
    assert responses[0].infer_response.model_version == "3"
    assert responses[0].infer_response.raw_output_contents[0] == bytes(8)


def test_responses_leave_in_the_order_of_their_requests(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="slow"), make_request(id="quick"), make_request("nope", id="bad"))
    stream.send(make_request("manual", id="last"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "last", numbers(2))
    deliver(harness, "slow", numbers(1))
    stream.half_close()

    assert [described(response)[:2] for response in stream.rest()] == [
        ("", "slow"),
        ("", "quick"),
        ("Request for unknown model: 'nope' is not found", "bad"),
        ("", "last"),
    ]


def test_decoupled_responses_do_not_wait_in_line(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="slow"), make_request("decoupled", id="d"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "d", numbers(1), final=False)
    first = described(stream.receive())
    deliver(harness, "slow", numbers(2))
    second = described(stream.receive())
    deliver(harness, "d", numbers(3))
    third = described(stream.receive())

    assert first == ("", "d", "decoupled", False)
    assert second == ("", "slow", "manual", True)
    assert third == ("", "d", "decoupled", True)


def test_line_does_not_wait_for_decoupled_requests(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("decoupled", id="d"), make_request(id="quick"))

    assert described(stream.receive()) == ("", "quick", "echo", True)


@pytest.mark.parametrize("responses", [0, 2])
def test_lone_final_flag_is_not_sent(
    harness: Any, stream: Stream, make_request: Callable[..., Any], responses: int
) -> None:
    stream.send(make_request("decoupled", id="d"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "d", *[numbers(1)] * responses, None)

    assert [described(response)[3] for response in stream.rest()] == [False] * responses


def test_lone_final_flag_is_sent_to_clients_that_want_it(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("decoupled", id="d", parameters=EMPTY_FINAL))
    stream.send(make_request("decoupled", id="e", parameters=EMPTY_FINAL, model_version="3"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "d", numbers(1), None)
    deliver(harness, "e", None)

    responses = stream.rest()

    assert [described(response) for response in responses] == [
        ("", "d", "decoupled", False),
        ("", "d", "decoupled", True),
        ("", "e", "decoupled", True),
    ]
    assert not responses[1].infer_response.outputs
    assert [response.infer_response.model_version for response in responses] == ["3", "", "3"]


def test_empty_final_response_is_no_matter_to_models_that_answer_once(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request(id="a", parameters=EMPTY_FINAL))
    stream.half_close()

    assert [described(response) for response in stream.rest()] == [("", "a", "echo", True)]


def test_error_of_a_model_is_a_message_and_the_stream_goes_on(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("fails", id="f"), make_request(id="next"))
    stream.half_close()

    assert [described(response) for response in stream.rest()] == [
        ("the model says no", "f", "fails", True),
        ("", "next", "echo", True),
    ]


def test_error_in_the_middle_of_decoupled_responses_is_not_final(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("decoupled", id="d"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "d", numbers(1), InferResponse(error=InvalidArg("no")), numbers(2), None)

    assert [described(response) for response in stream.rest()] == [
        ("", "d", "decoupled", False),
        ("no", "d", "decoupled", False),
        ("", "d", "decoupled", False),
    ]


def test_refused_request_is_a_message_with_its_id_alone(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    no_data = make_request(id="n")
    del no_data.raw_input_contents[:]
    stream.send(no_data, make_request("crash", id="c"), make_request("echo", id="next"))
    stream.half_close()

    assert [described(response) for response in stream.rest()] == [
        ("unable to find data for input tensor 'INPUT0' for model 'echo' in request.", "n", "", None),
        ("RuntimeError: boom", "c", "", None),
        ("", "next", "echo", True),
    ]


def test_refused_request_to_a_decoupled_model_does_not_wait_in_line(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    no_data = make_request("decoupled", id="n")
    del no_data.raw_input_contents[:]
    stream.send(make_request("manual", id="slow"), no_data)

    assert described(stream.receive())[1] == "n"


def test_bytes_that_are_no_message_cost_one_error(harness: Any, make_request: Callable[..., Any]) -> None:
    call = harness.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    bodies = [make_request(id="a").SerializeToString(), b"\xff\xff", make_request(id="b").SerializeToString()]

    responses = [
        client_library.service_pb2.ModelStreamInferResponse.FromString(body)
        for body in call(iter(bodies), timeout=20)
    ]

    assert [described(response)[:2] for response in responses] == [
        ("", "a"),
        ("Unable to parse request", ""),
        ("", "b"),
    ]


def test_model_that_sends_no_response_is_an_error(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="m"), make_request(id="next"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "m", None)

    assert described(stream.receive())[0] == "[request id: m] model 'manual' sent no response"
    assert described(stream.receive())[1] == "next"


def test_response_and_final_flag_may_come_apart(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="m"), make_request(id="next"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "m", numbers(1), None)

    assert [described(response)[1] for response in stream.rest()] == ["m", "next"]


def test_response_that_cannot_be_written_is_an_error(
    harness: Any, stream: Stream, make_request: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    stream.send(make_request("manual", id="m"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "m", InferResponse([Tensor("OUTPUT0", "FP32", [1], None)]))  # type: ignore[arg-type]

    message, id, _, final = described(stream.receive())
    assert (id, final) == ("m", True)
    assert "Error" in message
    assert "Traceback" in caplog.text


def test_half_close_waits_for_open_requests(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="m"), make_request("decoupled", id="d"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "m", numbers(1))
    first = described(stream.receive())[1]
    deliver(harness, "d", numbers(1))

    assert first == "m"
    assert [described(response)[1] for response in stream.rest()] == ["d"]
    assert stream.call.code() is grpc.StatusCode.OK


def test_stream_without_requests_ends_ok(stream: Stream) -> None:
    stream.half_close()

    assert stream.rest() == []


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
        request.attach(Outbox())
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

        with pytest.raises(grpc.RpcError) as expired:
            stream.rest()

        assert expired.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
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


GRPC_ERROR = (("triton_grpc_error", "true"),)


def test_error_of_a_model_ends_the_stream_of_clients_that_want_so(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    stream = Stream(harness.stub, metadata=GRPC_ERROR)
    stream.send(make_request("decoupled", id="d"), make_request("manual", id="m"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "d", numbers(1), InferResponse(error=NotFound("gone")), final=False)

    assert described(stream.receive())[1] == "d"
    with pytest.raises(grpc.RpcError) as ended:
        stream.receive()
    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.NOT_FOUND, "gone")
    harness.dataplane.wait_for(lambda plane: sorted(plane.cancelled) == ["d", "m"])
    stream.half_close()


def test_the_status_of_such_a_stream_does_not_wait_for_requests_before_it(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    stream = Stream(harness.stub, metadata=GRPC_ERROR)
    stream.send(make_request("manual", id="slow"), make_request("manual", id="bad"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "bad", InferResponse(error=NotFound("gone")))

    with pytest.raises(grpc.RpcError) as ended:
        stream.receive()

    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.NOT_FOUND, "gone")
    harness.dataplane.wait_for(lambda plane: plane.cancelled == ["slow"])
    stream.half_close()


def test_refusals_stay_messages_for_clients_that_want_statuses(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    stream = Stream(harness.stub, metadata=GRPC_ERROR)
    stream.send(make_request("nope", id="n"), make_request(id="next"))
    stream.half_close()

    assert [described(response)[1] for response in stream.rest()] == ["n", "next"]


MEBIBYTE = 1024 * 1024


def large(mebibytes: int = 1) -> InferResponse:
    return InferResponse().add("OUTPUT0", np.zeros(mebibytes * MEBIBYTE, np.uint8))


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
