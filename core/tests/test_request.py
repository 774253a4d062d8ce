from __future__ import annotations

import gc
import logging
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import Cancelled, ErrorCode, Internal, NotFound, TritonError
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor


class Sink:
    def __init__(self) -> None:
        self.answers: list[tuple[InferResponse | None, bool]] = []

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self.answers.append((response, final))


class Owner:
    def __init__(self) -> None:
        self.finished: list[TritonError | None] = []
        self.contradiction: TritonError | None = None

    def check_outputs(self, request: InferRequest, response: InferResponse) -> InferResponse:
        return response if self.contradiction is None else InferResponse(error=self.contradiction)

    def request_finished(self, request: InferRequest, error: TritonError | None) -> None:
        self.finished.append(error)


class Outbox:
    """Keeps what was posted until the test plays the loop."""

    def __init__(self) -> None:
        self.posted: list[tuple[InferRequest, InferResponse | None, bool]] = []

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self.posted.append((request, response, final))

    def deliver_all(self) -> None:
        while self.posted:
            request, response, final = self.posted.pop(0)
            request.deliver(response, final)


def tensor(name: str) -> Tensor:
    return Tensor(name, "INT8", (4,), b"abcd")


def new_request(**attributes: object) -> tuple[InferRequest, Sink, Owner]:
    sink, owner = Sink(), Owner()
    request = InferRequest("m", {"A": tensor("A"), "B": tensor("B")}, **attributes)  # type: ignore[arg-type]
    request.ticket.sink = sink
    request.ticket.owner = owner
    return request, sink, owner


# What a backend sees


def test_an_input_is_found_by_name():
    request, _, _ = new_request()

    assert request.input("B") is request.inputs["B"]


def test_a_missing_input_is_named_together_with_those_that_came():
    request, _, _ = new_request()

    with pytest.raises(
        NotFound, match=r"input 'C' is not in the request for model 'm', which carries \['A', 'B'\]"
    ):
        request.input("C")


def test_byte_size_is_the_sum_of_the_wire_forms():
    text = Tensor.from_numpy("T", np.array([b"ab", b""], object))
    request = InferRequest("m", {"A": tensor("A"), "T": text})

    assert request.byte_size == 4 + (4 + 2 + 4)


@pytest.mark.parametrize(
    ("requested", "wanted"), [(None, True), (("Y",), True), (("X",), False), ((), False)]
)
def test_an_output_is_wanted_when_it_was_requested_or_nothing_was_said(requested, wanted):
    request, _, _ = new_request(requested_outputs=requested)

    assert request.wants("Y") is wanted


def test_a_request_without_parameters_has_empty_ones():
    request, _, _ = new_request()

    assert request.parameters == {}
    assert (request.flags, request.correlation_id, request.priority, request.timeout_us) == (0, 0, 0, 0)


def test_sequence_flags_combine():
    request, _, _ = new_request(flags=SEQUENCE_START | SEQUENCE_END, correlation_id="a")

    assert request.flags == 3


def test_messages_name_the_request_even_when_it_has_no_id():
    assert new_request(id="7")[0].label == "[request id: 7] "
    assert new_request()[0].label == "[request id: <id_unknown>] "


# Exactly one final response


@given(st.lists(st.tuples(st.booleans(), st.booleans())))
def test_whatever_is_delivered_at_most_one_answer_is_final_and_nothing_follows_it(deliveries):
    request, sink, owner = new_request()

    for has_response, final in deliveries:
        request.deliver(InferResponse() if has_response else None, final)

    finals = [final for _, final in sink.answers]
    first_final = next((index for index, (_, final) in enumerate(deliveries) if final), None)
    expected = deliveries if first_final is None else deliveries[: first_final + 1]
    assert finals == [final for _, final in expected]
    assert len(owner.finished) == finals.count(True) == int(request.ticket.answered)


def test_fail_answers_with_the_error_and_tells_the_owner():
    request, sink, owner = new_request()
    error = NotFound("gone")

    request.fail(error)

    [(response, final)] = sink.answers
    assert response is not None
    assert (response.error, response.outputs, final) == (error, [], True)
    assert owner.finished == [error]


def test_outputs_that_the_owner_refuses_become_its_error():
    request, sink, owner = new_request()
    owner.contradiction = Internal("output 'A' is wrong")

    request.deliver(InferResponse([tensor("A")]))

    [(response, final)] = sink.answers
    assert response is not None
    assert (response.error, response.outputs, final) == (owner.contradiction, [], True)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (InferResponse(["no tensor"]), "AttributeError"),  # type: ignore[list-item]  # what a backend may do
        (InferResponse(error="no"), "TypeError: its error is str, expected TritonError"),  # type: ignore[arg-type]
    ],
)
def test_a_response_that_cannot_be_read_becomes_an_error_and_the_request_ends(caplog, given, text):
    request, sink, owner = new_request(requested_outputs=("A",))

    request.deliver(given)

    [(response, final)] = sink.answers
    assert final
    assert response is not None
    assert response.error is not None
    assert f"the response of model 'm' cannot be read: {text}" in response.error.message
    assert owner.finished == [response.error]
    assert caplog.records[0].exc_info is not None


def test_the_owner_hears_of_the_end_after_the_sink():
    order: list[str] = []

    class OrderedSink:
        def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
            order.append(f"sink final={final}")

    class OrderedOwner:
        def request_finished(self, request: InferRequest, error: TritonError | None) -> None:
            order.append(f"owner error={error}")

    request = InferRequest("m", {})

    request.ticket.sink = OrderedSink()
    request.ticket.owner = OrderedOwner()

    request.deliver(InferResponse(), final=False)
    request.deliver(None)

    assert order == ["sink final=False", "sink final=True", "owner error=None"]
    assert request.ticket.owner is None


def test_a_sink_that_raises_is_logged_and_harms_neither_its_batch_nor_the_count(caplog):
    class BrokenSink:
        def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
            raise OSError("connection lost")

    owner = Owner()
    request = InferRequest("m", {})
    request.ticket.sink = BrokenSink()
    request.ticket.owner = owner

    request.deliver(InferResponse())

    assert "connection lost" in caplog.text
    assert owner.finished == [None]
    assert request.ticket.answered


def test_a_request_nobody_waits_for_can_be_answered():
    request = InferRequest("m", {})

    request.deliver(InferResponse())

    assert request.ticket.answered


@pytest.mark.parametrize(
    ("requested", "produced", "delivered"),
    [
        (None, "XYZ", "XYZ"),
        (("X",), "X", "X"),
        (("Z", "X"), "XYZ", "XZ"),
        (("X",), "Y", ""),
        ((), "XY", ""),
    ],
)
def test_outputs_nobody_asked_for_are_dropped_before_the_sink(requested, produced, delivered):
    request, sink, _ = new_request(requested_outputs=requested)

    request.deliver(InferResponse([tensor(name) for name in produced]))

    [(response, _)] = sink.answers
    assert response is not None
    assert [output.name for output in response.outputs] == list(delivered)


# Answering from a backend


def test_respond_goes_through_the_outbox_and_not_straight_to_the_sink():
    request, sink, _ = new_request()
    outbox = Outbox()
    request.ticket.outbox = outbox

    request.respond(InferResponse(), final=False)
    request.respond()

    assert sink.answers == []
    outbox.deliver_all()
    assert [final for _, final in sink.answers] == [False, True]


def test_respond_with_something_else_is_refused_and_the_request_can_still_be_answered():
    request, sink, _ = new_request()
    outbox = Outbox()
    request.ticket.outbox = outbox

    with pytest.raises(Internal, match="was answered with dict, expected InferResponse or None"):
        request.respond({"A": 1})  # type: ignore[arg-type]
    request.respond(InferResponse())
    outbox.deliver_all()

    assert [final for _, final in sink.answers] == [True]


def test_respond_before_the_execution_is_refused():
    request, _, _ = new_request(id="9")

    with pytest.raises(Internal, match="request '9' for model 'm' is not being executed"):
        request.respond(InferResponse())


def test_respond_after_the_final_response_is_refused():
    # The server may have given the request's place in a worker to another request by then.
    request, _, _ = new_request()
    outbox = Outbox()
    request.ticket.outbox = outbox
    request.respond(InferResponse())

    with pytest.raises(Internal, match="has had its final response"):
        request.respond(InferResponse())

    assert len(outbox.posted) == 1


def test_a_request_dropped_without_an_answer_is_answered_internal():
    request, sink, owner = new_request(id="5")
    outbox = Outbox()
    request.ticket.outbox = outbox
    request.respond(InferResponse(), final=False)
    outbox.deliver_all()

    del request
    gc.collect()
    outbox.deliver_all()

    [_, (response, final)] = sink.answers
    assert response is not None
    assert response.error is not None
    assert (response.error.code, final) == (ErrorCode.INTERNAL, True)
    assert str(response.error) == ("[request id: 5] model 'm' dropped the request without a final response")
    assert owner.finished == [response.error]


@pytest.mark.parametrize("delivered_first", [True, False])
def test_an_answered_request_may_be_dropped(delivered_first):
    request, sink, _ = new_request()
    outbox = Outbox()
    request.ticket.outbox = outbox
    gone = weakref.ref(request)

    request.respond(InferResponse())
    if delivered_first:
        outbox.deliver_all()
    del request
    outbox.deliver_all()
    gc.collect()

    assert gone() is None
    assert [(response is not None and response.error, final) for response, final in sink.answers] == [
        (None, True)
    ]


def test_a_request_that_was_never_executed_may_be_dropped():
    request, sink, _ = new_request()

    del request
    gc.collect()

    assert sink.answers == []


def test_a_request_the_server_answered_itself_is_not_answered_again_when_dropped():
    request, sink, _ = new_request()
    outbox = Outbox()
    request.ticket.outbox = outbox
    request.fail(Cancelled("client left"))

    del request
    gc.collect()

    assert outbox.posted == []
    assert len(sink.answers) == 1


# Cancellation


class Holder:
    def __init__(self) -> None:
        self.cancelled: list[InferRequest] = []

    def request_cancelled(self, request: InferRequest) -> None:
        assert request.is_cancelled()
        self.cancelled.append(request)


def test_a_cancellation_is_in_the_verbose_log(caplog):
    caplog.set_level(logging.DEBUG, "tritonpy")
    request, _, _ = new_request()
    request.model_name, request.id = "digits", "one"

    request.cancel()
    request.cancel()

    [record] = caplog.records
    assert record.getMessage() == "[request id: one] Issuing cancellation"
    assert (record.model, record.request_id) == ("digits", "one")


def test_cancelling_twice_tells_the_holder_once():
    request, _, _ = new_request()
    holder = Holder()
    request.ticket.on_cancel = holder

    request.cancel()
    request.cancel()

    assert holder.cancelled == [request]
    assert request.is_cancelled()


def test_a_request_is_rescheduled_in_place_of_its_final_response():
    request, _, _ = new_request()
    request.ticket.outbox = Outbox()
    taken: list[InferRequest] = []

    class Again:
        def reschedule(self, request: InferRequest) -> None:
            taken.append(request)

    request.ticket.again = Again()
    request.reschedule()

    assert taken == [request]
    with pytest.raises(Internal, match="cannot be rescheduled"):
        request.reschedule()
    with pytest.raises(Internal, match="is not being executed"):
        request.respond(InferResponse())


def test_a_request_that_cannot_be_rescheduled_fails():
    request, _, _ = new_request()
    request.ticket.outbox = outbox = Outbox()

    request.reschedule()

    [(_, response, final)] = outbox.posted
    assert final
    assert "only a model with 'sequence_batching { iterative_sequence: true }'" in response.error.message


@pytest.mark.parametrize("asks_first", [True, False])
def test_code_in_c_reads_a_cancellation_from_a_byte(asks_first):
    request = InferRequest("net", {})
    flag = request.cancel_flag() if asks_first else None
    assert flag is None or bytes(flag) == b"\0"

    request.cancel()

    assert bytes(request.cancel_flag()) == b"\1"
    assert flag is None or bytes(flag) == b"\1"


def test_cancelling_an_answered_request_does_nothing():
    request, _, _ = new_request()
    holder = Holder()
    request.ticket.on_cancel = holder
    request.deliver(InferResponse())

    request.cancel()

    assert holder.cancelled == []
    assert not request.is_cancelled()


def test_a_cancelled_request_can_still_be_answered():
    request, sink, _ = new_request()
    request.cancel()

    request.fail(Cancelled("client left"))

    assert len(sink.answers) == 1
