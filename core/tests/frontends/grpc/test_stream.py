"""One stream from its first request to its end, driven by hand."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.admission import Admission
from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.flow import FlowLimits
from tritonpy.frontends.grpc.stream import STOPPING, InferStream
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor

from ...simulator.virtual_loop import in_virtual_time, run, turns
from ..data_plane import infer_request
from .hand_driven import MEBIBYTE, Call
from .streams import numbers

EMPTY_FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}


def large(mebibytes: int = 1) -> InferResponse:
    return InferResponse().add("OUTPUT0", np.zeros(mebibytes * MEBIBYTE, np.uint8))


def without_data(model: str, id: str) -> Any:
    request = infer_request(model, id=id)
    del request.raw_input_contents[:]
    return request


# Who is answered when.


@in_virtual_time
async def test_one_response_per_request_says_it_is_final() -> None:
    call = Call()
    await call.send(infer_request(id="a"), infer_request(id="b"))

    assert call.described == [("", "a", "echo", True), ("", "b", "echo", True)]
    assert call.received[0].infer_response.model_version == "3"
    assert call.received[0].infer_response.raw_output_contents[0] == bytes(8)
    await call.half_close()
    await call.running


@in_virtual_time
async def test_responses_leave_in_the_order_of_their_requests() -> None:
    call = Call()
    await call.send(
        infer_request("manual", id="slow"),
        infer_request(id="quick"),
        infer_request("nope", id="bad"),
        infer_request("manual", id="last"),
    )
    await call.deliver("last", numbers(2))
    assert call.received == []
    await call.deliver("slow", numbers(1))

    assert [each[:2] for each in call.described] == [
        ("", "slow"),
        ("", "quick"),
        ("Request for unknown model: 'nope' is not found", "bad"),
        ("", "last"),
    ]


@in_virtual_time
async def test_decoupled_responses_do_not_wait_in_line() -> None:
    call = Call()
    await call.send(infer_request("manual", id="slow"), infer_request("decoupled", id="d"))
    await call.deliver("d", numbers(1), final=False)
    await call.deliver("slow", numbers(2))
    await call.deliver("d", numbers(3))

    assert call.described == [
        ("", "d", "decoupled", False),
        ("", "slow", "manual", True),
        ("", "d", "decoupled", True),
    ]


@in_virtual_time
async def test_the_line_does_not_wait_for_decoupled_requests() -> None:
    call = Call()
    await call.send(infer_request("decoupled", id="d"), infer_request(id="quick"))

    assert call.ids == ["quick"]


# The final flag.


@pytest.mark.parametrize("count", [0, 2])
@in_virtual_time
async def test_a_lone_final_flag_is_not_sent(count: int) -> None:
    call = Call()
    await call.send(infer_request("decoupled", id="d"))
    await call.half_close()
    await call.deliver("d", *[numbers(1)] * count, None)
    await call.running

    assert [each[3] for each in call.described] == [False] * count


@in_virtual_time
async def test_a_lone_final_flag_is_sent_to_clients_that_want_it() -> None:
    call = Call()
    await call.send(
        infer_request("decoupled", id="d", parameters=EMPTY_FINAL),
        infer_request("decoupled", id="e", parameters=EMPTY_FINAL, model_version="3"),
    )
    await call.deliver("d", numbers(1), None)
    await call.deliver("e", None)

    assert call.described == [
        ("", "d", "decoupled", False),
        ("", "d", "decoupled", True),
        ("", "e", "decoupled", True),
    ]
    assert not call.received[1].infer_response.outputs
    assert [message.infer_response.model_version for message in call.received] == ["3", "", "3"]


@in_virtual_time
async def test_an_empty_final_response_is_no_matter_to_models_that_answer_once() -> None:
    call = Call()
    await call.send(infer_request(id="a", parameters=EMPTY_FINAL))

    assert call.described == [("", "a", "echo", True)]


@in_virtual_time
async def test_response_and_final_flag_may_come_apart() -> None:
    call = Call()
    await call.send(infer_request("manual", id="m"), infer_request(id="next"))
    await call.deliver("m", numbers(1), None)

    assert call.ids == ["m", "next"]


# Errors.


@in_virtual_time
async def test_the_error_of_a_model_is_a_message_and_the_stream_goes_on() -> None:
    call = Call()
    await call.send(infer_request("fails", id="f"), infer_request(id="next"))

    assert call.described == [("the model says no", "f", "fails", True), ("", "next", "echo", True)]


@in_virtual_time
async def test_an_error_in_the_middle_of_decoupled_responses_is_not_final() -> None:
    call = Call()
    await call.send(infer_request("decoupled", id="d"))
    await call.deliver("d", numbers(1), InferResponse(error=InvalidArg("no")), numbers(2), None)

    assert call.described == [
        ("", "d", "decoupled", False),
        ("no", "d", "decoupled", False),
        ("", "d", "decoupled", False),
    ]


@in_virtual_time
async def test_a_refused_request_is_a_message_with_its_id_alone() -> None:
    call = Call()
    await call.send(without_data("echo", "n"), infer_request("crash", id="c"), infer_request(id="next"))

    assert call.described == [
        ("unable to find data for input tensor 'INPUT0' for model 'echo' in request.", "n", "", None),
        ("RuntimeError: boom", "c", "", None),
        ("", "next", "echo", True),
    ]


@in_virtual_time
async def test_a_refused_request_to_a_decoupled_model_does_not_wait_in_line() -> None:
    call = Call()
    await call.send(infer_request("manual", id="slow"), without_data("decoupled", "n"))

    assert call.ids == ["n"]


@in_virtual_time
async def test_bytes_that_are_no_message_cost_one_error() -> None:
    call = Call()
    await call.send(infer_request(id="a"), b"\xff\xff", infer_request(id="b"))

    assert [each[:2] for each in call.described] == [("", "a"), ("Unable to parse request", ""), ("", "b")]


@in_virtual_time
async def test_a_model_that_sends_no_response_is_an_error() -> None:
    call = Call()
    await call.send(infer_request("manual", id="m"), infer_request(id="next"))
    await call.deliver("m", None)

    assert [each[:2] for each in call.described] == [
        ("[request id: m] model 'manual' sent no response", "m"),
        ("", "next"),
    ]


@in_virtual_time
async def test_a_response_that_cannot_be_written_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    call = Call()
    await call.send(infer_request("manual", id="m"))
    await call.deliver("m", InferResponse([Tensor("OUTPUT0", "FP32", [1], None)]))  # type: ignore[arg-type]

    [(message, id, _, final)] = call.described
    assert (id, final) == ("m", True)
    assert "Error" in message
    assert "Traceback" in caplog.text


@in_virtual_time
async def test_an_error_of_a_model_ends_the_stream_of_clients_that_want_so() -> None:
    call = Call(ends_on_error=True)
    await call.send(infer_request("decoupled", id="d"), infer_request("manual", id="m"))
    await call.deliver("d", numbers(1), InferResponse(error=NotFound("gone")), final=False)

    assert call.ids == ["d"]
    with pytest.raises(NotFound, match="gone"):
        await call.running
    assert sorted(call.plane.cancelled) == ["d", "m"]


@in_virtual_time
async def test_the_status_of_such_a_stream_does_not_wait_for_requests_before_it() -> None:
    call = Call(ends_on_error=True)
    await call.send(infer_request("manual", id="slow"), infer_request("manual", id="bad"))
    await call.deliver("bad", InferResponse(error=NotFound("gone")))

    with pytest.raises(NotFound, match="gone"):
        await call.running
    assert call.plane.cancelled == ["slow"]


@in_virtual_time
async def test_refusals_stay_messages_for_clients_that_want_statuses() -> None:
    call = Call(ends_on_error=True)
    await call.send(infer_request("nope", id="n"), infer_request(id="next"))

    assert call.ids == ["n", "next"]


@pytest.mark.parametrize(
    ("raised", "told"), [(Unavailable("full"), Unavailable), (ValueError("x"), Internal)]
)
@in_virtual_time
async def test_what_cannot_be_read_ends_the_stream(raised: Exception, told: type[TritonError]) -> None:
    call = Call()
    await call.send(infer_request("manual", id="m"), raised)

    with pytest.raises(told, match=str(raised)):
        await call.running
    assert call.plane.cancelled == ["m"]


@in_virtual_time
async def test_what_forwarding_refuses_is_a_message() -> None:
    refused = iter([InvalidArg("no such header")])

    def forwarding() -> dict[str, str]:
        for error in refused:
            raise error
        return {"header": "value"}

    call = Call(forwarding=forwarding)
    await call.send(infer_request(id="a"), infer_request(id="b", parameters={"own": {"int64_param": 1}}))

    assert [each[:2] for each in call.described] == [("no such header", "a"), ("", "b")]
    assert call.plane.seen is not None
    assert call.plane.seen.parameters == {"own": 1, "header": "value"}


# The end.


@in_virtual_time
async def test_a_stream_without_requests_ends_ok() -> None:
    call = Call()
    await call.half_close()
    await call.running

    assert call.received == []


@in_virtual_time
async def test_the_end_of_the_requests_waits_for_those_that_are_open() -> None:
    call = Call()
    await call.send(infer_request("manual", id="m"), infer_request("decoupled", id="d"))
    await call.half_close()
    await call.deliver("m", numbers(1))
    assert call.ids == ["m"]
    assert not call.running.done()
    await call.deliver("d", numbers(1))
    await call.running

    assert call.ids == ["m", "d"]


@in_virtual_time
async def test_a_client_that_goes_has_its_open_requests_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tritonpy.grpc")
    call = Call()
    await call.send(*(infer_request("manual", id=id) for id in "ab"), infer_request("decoupled", id="c"))
    await call.deliver("a", numbers(1))
    call.running.cancel()
    await turns()

    assert sorted(call.plane.cancelled) == ["b", "c"]
    assert caplog.messages.count("Cancellation notification received for ModelStreamInferHandler") == 2
    await call.deliver("b", numbers(1))  # nobody listens
    await call.deliver("c", numbers(1), None)
    assert call.ids == ["a"]
    assert call.admission.held == 0


@pytest.mark.parametrize("has_shortcut", [False, True])
@in_virtual_time
async def test_a_server_that_stops_ends_an_idle_stream_and_answers_a_busy_one(has_shortcut: bool) -> None:
    idle, busy = Call(has_shortcut=has_shortcut), Call(has_shortcut=has_shortcut)
    await idle.send(infer_request())
    await busy.send(infer_request("manual", id="m"))
    for call in (idle, busy):
        call.stream.stop()
    await turns()
    assert idle.running.done()
    assert not busy.running.done()
    await busy.send(infer_request(id="late"))
    await busy.deliver("m", numbers(1))

    for call in (idle, busy):
        with pytest.raises(Unavailable, match=STOPPING):
            await call.running
    assert busy.ids == ["m"]


@in_virtual_time
async def test_a_stream_that_was_told_to_stop_before_it_ran_ends_too() -> None:
    call = Call()
    call.stream.stop()

    with pytest.raises(Unavailable, match=STOPPING):
        await call.running


# Writing without a turn of the loop.


@in_virtual_time
async def test_a_response_is_written_where_it_is_delivered_while_nothing_waits() -> None:
    call = Call(has_shortcut=True)
    await call.send(infer_request("decoupled", id="d"))
    [request] = call.plane.requests

    request.deliver(numbers(1), False)
    at_once = len(call.received)
    call.stop_reading()
    request.deliver(numbers(2), False)
    request.deliver(numbers(3), False)
    await turns()
    held = len(call.received)
    await call.take(2)
    await call.read_on()
    request.deliver(numbers(4), True)
    await turns()

    assert (at_once, held) == (1, 1)
    assert [each.infer_response.raw_output_contents[0] for each in call.received] == [
        np.float32(number).tobytes() for number in (1, 2, 3, 4)
    ]


@in_virtual_time
async def test_a_response_never_overtakes_one_that_is_being_written() -> None:
    call = Call(has_shortcut=True)
    call.stop_reading()
    await call.send(infer_request("decoupled", id="d"))
    [request] = call.plane.requests
    request.deliver(numbers(1), False)
    await turns()

    call._reads = True
    request.deliver(numbers(2), True)
    early = len(call.received)
    await call.take()

    assert early == 0
    assert [each[3] for each in call.described] == [False, True]


@in_virtual_time
async def test_an_error_ends_the_stream_behind_what_was_written_at_once() -> None:
    call = Call(has_shortcut=True, ends_on_error=True)
    await call.send(infer_request("decoupled", id="d"))
    [request] = call.plane.requests
    request.deliver(numbers(1), False)
    request.deliver(InferResponse(error=NotFound("gone")), False)
    request.deliver(numbers(2), False)

    with pytest.raises(NotFound, match="gone"):
        await call.running

    assert call.ids == ["d"]
    assert call.plane.cancelled == ["d"]


@in_virtual_time
async def test_what_is_written_at_once_does_not_count_as_waiting() -> None:
    call = Call(has_shortcut=True, flow_limits=FlowLimits(max_response_count=8))
    await call.send(infer_request("decoupled", id="d"))
    [request] = call.plane.requests
    for number in range(100):
        request.deliver(numbers(number), False)

    assert len(call.received) == 100
    assert not request.response_flow().is_paused


# What a stream holds.


@pytest.mark.parametrize("has_shortcut", [False, True])
@in_virtual_time
async def test_open_requests_of_one_stream_are_bounded(has_shortcut: bool) -> None:
    call = Call(max_held_byte_size=4 * MEBIBYTE, has_shortcut=has_shortcut)
    await call.send(*(infer_request("manual", id=str(index), data=bytes(MEBIBYTE)) for index in range(20)))
    for index in range(20):
        assert len(call.plane.requests) == min(index + 4, 20)
        await call.deliver(str(index), numbers(index))

    assert call.ids == [str(index) for index in range(20)]


@in_virtual_time
async def test_requests_that_are_not_admitted_are_refused_and_the_stream_goes_on() -> None:
    admission = Admission(3 * MEBIBYTE)
    call = Call(admission)
    await call.send(*(infer_request("manual", id=str(index), data=bytes(MEBIBYTE)) for index in range(3)))
    held = admission.held
    assert held > 2 * MEBIBYTE
    await call.deliver("0", numbers(0))
    await call.send(infer_request("manual", id="3", data=bytes(MEBIBYTE)))
    await call.deliver("1", numbers(1))
    await call.deliver("3", numbers(3))

    assert call.ids == ["0", "1", "2", "3"]
    assert [bool(each[0]) for each in call.described] == [False, False, True, False]
    assert "--max-inflight-bytes" in call.described[2][0]
    assert admission.held == 0


@pytest.mark.parametrize("has_shortcut", [False, True])
@in_virtual_time
async def test_requests_of_a_client_that_does_not_read_are_not_read_either(has_shortcut: bool) -> None:
    limits = FlowLimits(max_byte_size=4 * MEBIBYTE)
    call = Call(max_held_byte_size=4 * MEBIBYTE, flow_limits=limits, has_shortcut=has_shortcut)
    call.stop_reading()
    await call.send(*(infer_request(id=str(index), data=bytes(MEBIBYTE)) for index in range(64)))
    assert call.unread_count > 55
    for count in range(1, 65):
        await call.take()
        assert len(call.received) == count
        assert call.unread_count >= 64 - count - 6
    await call.half_close()
    await call.read_on()
    await call.running

    assert call.ids == [str(index) for index in range(64)]


@in_virtual_time
async def test_the_sender_of_a_client_that_falls_behind_waits_until_it_has_caught_up() -> None:
    call = Call(flow_limits=FlowLimits(max_response_count=8))
    call.stop_reading()
    await call.send(infer_request("decoupled", id="d"))
    [request] = call.plane.requests
    flow = request.response_flow()
    sent = 0
    while not flow.is_paused:
        await call.deliver("d", numbers(sent), final=False)
        sent += 1
    assert sent == 8
    await call.take(3)
    assert flow.is_paused
    await call.take(1)
    assert not flow.is_paused
    await call.deliver("d", None)
    await call.read_on()

    assert len(call.received) == sent


@in_virtual_time
async def test_a_client_that_takes_nothing_for_long_is_given_up() -> None:
    call = Call(flow_limits=FlowLimits(max_response_count=4, timeout_s=8))
    call.stop_reading()
    await call.send(infer_request("decoupled", id="d"), infer_request("manual", id="m"))
    for _ in range(6):
        await call.deliver("d", numbers(1), final=False)
    await asyncio.sleep(7)
    assert call.plane.cancelled == []
    await call.take()
    await asyncio.sleep(7)
    assert call.plane.cancelled == []
    await asyncio.sleep(4)

    assert sorted(call.plane.cancelled) == ["d", "m"]
    assert all(
        request.ticket.flow is None or request.ticket.flow.is_given_up for request in call.plane.requests
    )
    await call.read_on()
    with pytest.raises(Unavailable, match="--slow-client-timeout"):
        await call.running


@in_virtual_time
async def test_a_sender_that_does_not_wait_ends_the_stream_before_it_costs_much() -> None:
    call = Call(flow_limits=FlowLimits(max_byte_size=4 * MEBIBYTE))
    call.stop_reading()
    await call.send(infer_request("decoupled", id="d"), infer_request("manual", id="m"))
    for _ in range(40):
        await call.deliver("d", large(), final=False)

    assert sorted(call.plane.cancelled) == ["d", "m"]
    await call.read_on()
    with pytest.raises(Unavailable) as ended:
        await call.running
    assert "bytes wait for the client, which reads too slowly" in ended.value.message
    assert "at most 1024 responses or 4194304 bytes are held" in ended.value.message
    assert len(call.received) <= 1  # what was being written


@in_virtual_time
async def test_one_response_larger_than_the_limit_is_let_in() -> None:
    call = Call(max_held_byte_size=MEBIBYTE, flow_limits=FlowLimits(max_byte_size=MEBIBYTE))
    await call.send(infer_request("decoupled", id="d"))
    await call.deliver("d", large(3))

    assert len(call.received[0].infer_response.raw_output_contents[0]) == 3 * MEBIBYTE


@in_virtual_time
async def test_a_stream_does_not_keep_a_dropped_request_alive() -> None:
    class Outbox:
        def post(self, request: Any, response: Any, final: bool) -> None:
            asyncio.get_running_loop().call_soon(request.deliver, response, final)

    call = Call()
    await call.send(infer_request("decoupled", id="d"))
    call.plane.seen = None
    gc.disable()  # reference counts alone must free it
    try:
        request = call.plane.requests.pop()
        request.ticket.outbox = Outbox()
        del request
        await turns()
    finally:
        gc.enable()

    [(message, id, _, final)] = call.described
    assert (id, final) == ("d", True)
    assert "dropped the request without a final response" in message


@in_virtual_time
async def test_an_idle_stream_holds_neither_request_nor_response() -> None:
    call = Call()
    body = infer_request(data=bytes(MEBIBYTE)).SerializeToString()
    sent: list[bytes] = []
    bodies = [body]
    before = sys.getrefcount(body)

    async def read() -> bytes | None:
        return bodies.pop() if bodies else await asyncio.Future()

    async def write(message: bytes) -> None:
        sent.append(message)

    running = asyncio.create_task(InferStream(call.port).run(read, write))
    await turns()
    call.plane.seen = None

    of_request, of_response = sys.getrefcount(body), sys.getrefcount(sent[0])

    assert of_request == before - 1  # `bodies` had one
    assert of_response == 2  # `sent` has one, and the question
    running.cancel()


# Everything in any order.

MODELS = st.sampled_from(["echo", "manual", "manual", "decoupled", "nope", "fails", "crash"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), MODELS),
        st.tuples(st.sampled_from(["piece", "final", "lone final", "error"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["stop reading", "take", "read on"]), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(["half-closes", "goes", "is told to stop"]), st.booleans())
def test_each_request_is_answered_once_and_in_its_order_whatever_happens(
    steps: list[tuple[str, Any]], end: str, has_shortcut: bool
) -> None:
    async def main(_: object) -> None:
        limits = FlowLimits(timeout_s=0)
        call = Call(max_held_byte_size=12_000, flow_limits=limits, has_shortcut=has_shortcut)
        sent: list[tuple[str, str]] = []
        pieces: dict[str, int] = {}
        for step, what in steps:
            open_requests = [request for request in call.plane.requests if not request.ticket.answered]
            match step:
                case "send":
                    sent.append((str(len(sent)), what))
                    await call.send(infer_request(what, id=sent[-1][0], data=bytes(400)))
                case "stop reading":
                    call.stop_reading()
                case "take":
                    await call.take()
                case "read on":
                    await call.read_on()
                case _ if open_requests:
                    request = open_requests[what % len(open_requests)]
                    is_stream = request.model_name == "decoupled"
                    if step == "piece" and is_stream:
                        pieces[request.id] = pieces.get(request.id, 0) + 1
                        await call.deliver(request.id, numbers(1), final=False)
                    elif step != "piece":
                        response = {"final": numbers(1), "lone final": None}.get(
                            step, InferResponse(error=InvalidArg("no"))
                        )
                        pieces[request.id] = pieces.get(request.id, 0) + (
                            response is not None or not is_stream
                        )
                        await call.deliver(request.id, response)
        await call.read_on()
        if end == "goes":
            call.running.cancel()
            await turns()
            assert call.running.cancelled()
        else:
            if end == "half-closes":
                await call.half_close()
            else:
                call.stream.stop()
                await turns()
            for _ in sent:
                for request in call.plane.requests:
                    if not request.ticket.answered:
                        pieces[request.id] = pieces.get(request.id, 0) + 1
                        await call.deliver(request.id, numbers(1))
            assert call.running.done()
            assert isinstance(call.running.exception(), type(None) if end == "half-closes" else Unavailable)
            if end == "half-closes":
                answered_once = [id for id, model in sent if model != "decoupled"]
                assert [id for id in call.ids if dict(sent)[id] != "decoupled"] == answered_once
        for id, model in sent:
            if model == "decoupled" and end != "goes":
                assert call.ids.count(id) == pieces.get(id, 0)
        assert all(call.ids.count(id) <= 1 for id, model in sent if model != "decoupled")
        open_ids = [request.id for request in call.plane.requests if not request.ticket.answered]
        assert [id for id in call.plane.cancelled if id in open_ids] == (open_ids if end == "goes" else [])
        for request in call.plane.requests:
            if not request.ticket.answered:
                request.deliver(None, True)
        assert call.admission.held == 0

    run(main)
