"""Answers to generate requests, over a connection that is driven by hand."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.dataplane import TensorSpec
from tritonpy.errors import InvalidArg, NotFound, Unavailable
from tritonpy.flow import DEFAULT_LIMITS, FlowLimits
from tritonpy.frontends.http.codec.large_json import LARGE
from tritonpy.frontends.http.generation import Generation
from tritonpy.frontends.http.router import Route, Router
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor
from tritonpy.tracing.tracing import Tracing

from ...simulator.virtual_loop import in_virtual_time, run, turns
from ..data_plane import FakeDataplane
from .connection.hand_driven import Client

NOT_ONE = {
    "error": "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses"
}
LOAD = [
    ((("kv_cache_block_type", kind),), value)
    for kind, value in (("tokens_per", 16.0), ("used", 3.0), ("max", 6.0))
]


class Codec:
    """Reads large JSON when the test says so; stands for a `JsonCodec`, which has a process of its own."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.reading: asyncio.Future[Any] | None = None

    def read_flat(self, text: bytes, forms: Mapping[str, object]) -> Awaitable[Any]:
        self.texts.append(bytes(text))
        self.reading = asyncio.get_running_loop().create_future()
        return self.reading


class Conversation:
    """A client that generates, and the model that answers it.

    Attributes:
        plane: where the model's requests arrive.
        client: the client.
        codec: reads what is large.
    """

    def __init__(self, flow_limits: FlowLimits = DEFAULT_LIMITS) -> None:
        self.plane = FakeDataplane()
        self.plane.inputs = {"text": TensorSpec("text", "BYTES", (1,))}
        self.codec = Codec()
        generation = Generation(
            self.plane,  # type: ignore[arg-type]
            lambda family: LOAD,
            Tracing(),
            self.codec,  # type: ignore[arg-type]
            flow_limits=flow_limits,
        )
        calls = {"generate": generation.generate, "generate_stream": generation.generate_stream}
        routes = [
            Route(b"POST", f"/v2/models/{{model}}[/versions/{{version}}]/{name}", "inference", call)
            for name, call in calls.items()
        ]
        self.client = Client(Router(routes), json_limit=2 * LARGE)

    def ask(self, path: str, *headers: str, version: int = 1, **document: object) -> None:
        """Send a request to the model `decoupled`."""
        body = json.dumps({"text": "hello", **document}).encode()
        lines = [
            f"POST /v2/models/decoupled/{path} HTTP/1.{version}",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        self.client.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    @property
    def request(self) -> InferRequest:
        """The last request that the model has received."""
        return self.plane.requests[-1]

    def answer(self, *values: int | Exception | InferResponse | None, final: bool = True) -> None:
        """Send responses; the last one is final if `final`."""
        for index, value in enumerate(values):
            response = value if isinstance(value, InferResponse) or value is None else response_of(value)
            self.request.deliver(response, final and index == len(values) - 1)

    @property
    def events(self) -> list[Any]:
        """What is in the events of the last answer, also of one that is not complete."""
        received = bytes(self.client.transport.received)
        pieces = received[received.rindex(b"HTTP/1.") :].split(b"data: ")[1:]
        return [json.loads(piece.partition(b"\n\n")[0]) for piece in pieces]


def response_of(value: Any) -> InferResponse:
    if isinstance(value, Exception):
        return InferResponse(error=value)  # type: ignore[arg-type]
    return InferResponse().add("n", np.array([value], np.int32))


def piece(value: int) -> dict[str, object]:
    return {"model_name": "decoupled", "model_version": "3", "n": value}


def only_answer(conversation: Conversation) -> tuple[int, Any]:
    [answer] = conversation.client.answers
    return answer.status, json.loads(answer.body or b"null")


# One answer.


@in_virtual_time
async def test_the_one_response_is_the_answer() -> None:
    conversation = Conversation()
    conversation.ask("generate", id="7")
    assert conversation.request.inputs["text"].numpy().tolist() == [b"hello"]
    conversation.answer(5)

    assert only_answer(conversation) == (200, {**piece(5), "id": "7"})
    assert conversation.client.admission.held == 0


@in_virtual_time
async def test_the_final_flag_may_come_after_the_response() -> None:
    conversation = Conversation()
    conversation.ask("generate")
    conversation.answer(5, final=False)
    assert conversation.client.answers == []
    conversation.answer(None)

    assert only_answer(conversation) == (200, piece(5))


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ([None], 200),
        ([1, 2], 200),
        ([1, 2, 3, None], 200),
        ([NotFound("gone"), 2], 404),
        ([1, NotFound("gone")], 200),
    ],
)
@in_virtual_time
async def test_any_other_number_of_responses_is_an_error_with_the_status_of_the_first(
    values: list[Any], status: int
) -> None:
    conversation = Conversation()
    conversation.ask("generate")
    conversation.answer(*values)

    assert only_answer(conversation) == (status, NOT_ONE)


@in_virtual_time
async def test_an_error_of_the_model_is_the_answer() -> None:
    conversation = Conversation()
    conversation.ask("generate")
    conversation.answer(Unavailable("not now"))

    assert only_answer(conversation) == (503, {"error": "not now"})


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
@in_virtual_time
async def test_a_response_that_cannot_be_written_is_an_error(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = Conversation()
    conversation.ask(path)
    conversation.answer(InferResponse([Tensor("n", "FP32", [1], None)]))  # type: ignore[arg-type]

    [answer] = conversation.client.answers
    assert answer.status == 500
    assert b"the response cannot be written: " in (answer.body or b"")
    assert "the response cannot be written" in caplog.text


# What is refused, whatever kind of answer is wanted.


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
@in_virtual_time
async def test_what_is_wrong_with_a_request_is_answered_and_the_connection_goes_on(path: str) -> None:
    conversation = Conversation()
    conversation.ask(path, "Content-Encoding: gzip")
    conversation.ask(path, parameters=5)
    conversation.client.send(
        f"POST /v2/models/nope/{path} HTTP/1.1\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    )
    conversation.client.send(
        f"POST /v2/models/decoupled/{path} HTTP/1.1\r\nContent-Length: 1\r\n\r\n{{".encode()
    )
    conversation.ask(path)
    conversation.answer(5)

    assert conversation.client.statuses == [400, 500, 404, 500, 200]
    assert conversation.client.answers[0].body == (
        b'{"error":"Unsupported content-encoding, only \'identity\' is supported."}'
    )


# Clients that leave.


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
@in_virtual_time
async def test_a_client_that_leaves_has_its_request_cancelled(path: str) -> None:
    conversation = Conversation()
    conversation.ask(path, id="7")
    conversation.client.vanish()
    assert conversation.plane.cancelled == ["7"]
    conversation.answer(5)

    assert conversation.client.transport.received == b""
    assert conversation.client.admission.held == 0


@in_virtual_time
async def test_a_client_that_leaves_in_the_midst_of_events_has_its_request_cancelled() -> None:
    conversation = Conversation()
    conversation.ask("generate_stream", id="7")
    conversation.answer(1, final=False)
    assert len(conversation.events) == 1
    conversation.client.vanish()
    assert conversation.plane.cancelled == ["7"]
    conversation.answer(2, 3, None)

    assert len(conversation.events) == 1
    assert conversation.client.admission.held == 0


@in_virtual_time
async def test_a_large_body_is_read_elsewhere() -> None:
    conversation = Conversation()
    conversation.ask("generate", text="x" * LARGE)
    await turns()
    [text] = conversation.codec.texts
    assert len(text) > LARGE
    assert conversation.plane.requests == []
    assert conversation.codec.reading is not None
    conversation.codec.reading.set_result({"text": "y", "id": "large"})
    await turns()
    conversation.answer(5)

    assert conversation.request.id == "large"
    assert only_answer(conversation)[0] == 200


@in_virtual_time
async def test_a_client_that_leaves_meanwhile_is_not_read_for_any_longer() -> None:
    conversation = Conversation()
    conversation.ask("generate", text="x" * LARGE)
    await turns()
    conversation.client.vanish()
    await turns()

    assert conversation.codec.reading is not None
    assert conversation.codec.reading.cancelled()
    assert conversation.plane.requests == []
    assert conversation.client.admission.held == 0


@in_virtual_time
async def test_a_large_body_that_cannot_be_read_is_answered() -> None:
    conversation = Conversation()
    conversation.ask("generate", text="x" * LARGE)
    await turns()
    assert conversation.codec.reading is not None
    conversation.codec.reading.set_exception(InvalidArg("no JSON"))
    await turns()

    assert only_answer(conversation) == (400, {"error": "no JSON"})


# Events.


@in_virtual_time
async def test_each_response_is_an_event_as_it_comes_and_the_connection_goes_on() -> None:
    conversation = Conversation()
    conversation.ask("generate_stream")
    for value in (1, 2):
        conversation.answer(value, final=False)
        assert conversation.events[-1] == piece(value)
    assert conversation.client.answers[0].body is None  # it is not complete
    conversation.answer(3)
    conversation.ask("generate_stream")
    conversation.answer(4)

    first, second = conversation.client.answers
    assert first.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [first.body, second.body] == [
        b"".join(
            b"data: %b\n\n" % json.dumps(piece(value), separators=(",", ":")).encode() for value in values
        )
        for values in ([1, 2, 3], [4])
    ]


@in_virtual_time
async def test_no_response_at_all_gives_no_events() -> None:
    conversation = Conversation()
    conversation.ask("generate_stream")
    conversation.answer(None)

    [answer] = conversation.client.answers
    assert (answer.status, answer.body) == (200, b"")


@in_virtual_time
async def test_an_error_decides_the_status_only_if_it_comes_first() -> None:
    conversation = Conversation()
    conversation.ask("generate_stream")
    conversation.answer(NotFound("gone"), 2)
    assert conversation.events == [{"error": "gone"}, piece(2)]
    conversation.ask("generate_stream")
    conversation.answer(1, NotFound("gone"), None)

    assert conversation.events == [piece(1), {"error": "gone"}]
    assert conversation.client.statuses == [404, 200]


@in_virtual_time
async def test_what_comes_behind_the_last_response_is_dropped() -> None:
    conversation = Conversation()
    conversation.ask("generate_stream")
    first = conversation.request
    conversation.answer(1)
    conversation.ask("generate_stream")
    sink = first.ticket.sink
    assert sink is not None
    sink.on_response(first, response_of(2), True)
    conversation.answer(3)

    assert conversation.events == [piece(3)]
    assert b'"n":2' not in conversation.client.transport.received


@in_virtual_time
async def test_an_older_client_reads_events_to_the_end_of_the_connection() -> None:
    conversation = Conversation()
    conversation.ask("generate_stream", version=0)
    conversation.answer(1, 2)

    assert b"chunked" not in conversation.client.transport.received
    assert conversation.events == [piece(1), piece(2)]
    assert conversation.client.is_closed


@in_virtual_time
async def test_the_load_is_told_when_an_answer_begins_to_clients_that_ask_for_it() -> None:
    conversation = Conversation()
    for path in ("generate", "generate_stream"):
        for wanted in ("json", "text", "xml"):
            conversation.ask(path, f"endpoint-load-metrics-format: {wanted}")
            conversation.answer(1)
        conversation.ask(path)
        conversation.answer(1)

    told = [answer.headers.get("endpoint-load-metrics") for answer in conversation.client.answers]
    as_text = "text named_metrics.kv_cache_utilization=0.500000, named_metrics.max_token_capacity=96"
    as_json = 'json {"named_metrics":{"kv_cache_utilization":0.5,"max_token_capacity":96}}'
    assert told == [as_json, as_text, None, None] * 2


class Trace:
    """Keeps what is reported; stands for a `RequestTrace`."""

    def __init__(self) -> None:
        self.activities: list[str] = []

    def report_activity(self, activity: str) -> None:
        self.activities.append(activity)


@in_virtual_time
async def test_a_trace_sees_each_event_leave() -> None:
    conversation = Conversation()
    conversation.ask("generate_stream")
    trace = Trace()
    conversation.client.connection.follow(trace)  # type: ignore[arg-type]
    conversation.answer(1, 2)

    assert trace.activities == ["HTTP_SEND_START", "HTTP_SEND_END"] * 2


# Clients that read slowly.


@in_virtual_time
async def test_the_sender_waits_for_a_client_that_reads_slowly_and_nothing_is_lost() -> None:
    conversation = Conversation(FlowLimits(max_response_count=8))
    conversation.ask("generate_stream")
    conversation.client.transport.is_taken = False
    flow = conversation.request.response_flow()
    sent = 0
    while not flow.is_paused:
        conversation.answer(sent, final=False)
        sent += 1
    assert sent == 8
    conversation.client.transport.take()
    assert not flow.is_paused
    conversation.answer(sent)

    assert conversation.events == [piece(value) for value in range(sent + 1)]
    assert conversation.client.answers[0].body is not None


@in_virtual_time
async def test_a_last_event_that_waits_for_the_client_ends_the_answer_when_it_is_taken() -> None:
    conversation = Conversation()
    conversation.ask("generate_stream")
    conversation.client.transport.is_taken = False
    conversation.answer(1, 2)
    assert conversation.client.admission.held > 0  # its request counts until then
    conversation.client.transport.take()

    assert conversation.events == [piece(1), piece(2)]
    assert conversation.client.answers[0].body is not None
    assert conversation.client.admission.held == 0


@in_virtual_time
async def test_a_client_that_takes_nothing_for_long_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tritonpy.http")
    conversation = Conversation(FlowLimits(max_response_count=4, timeout_s=8))
    conversation.ask("generate_stream", id="7")
    conversation.answer(1, final=False)
    conversation.client.transport.is_taken = False
    conversation.answer(2, 3, 4, 5, 6, 7, final=False)
    await asyncio.sleep(7)
    assert conversation.plane.cancelled == []
    await asyncio.sleep(2)
    assert conversation.plane.cancelled == ["7"]
    assert conversation.request.response_flow().is_given_up
    assert "[request id: 7] cancelled: the client has taken nothing for 8 seconds" in caplog.text
    conversation.answer(8)
    conversation.client.transport.take()

    first, second, last = conversation.events  # what waited is not sent
    assert (first["n"], second["n"]) == (1, 2)
    assert "--slow-client-timeout" in last["error"]
    assert conversation.client.answers[0].body is not None
    assert conversation.client.admission.held == 0


@in_virtual_time
async def test_a_sender_that_does_not_wait_is_cancelled_before_it_costs_much() -> None:
    conversation = Conversation(FlowLimits(max_byte_size=100_000))
    conversation.ask("generate_stream", id="7")
    conversation.client.transport.is_taken = False
    large = InferResponse().add("n", np.full(1_000_000, 7, np.uint8))
    sent = 0
    while not conversation.plane.cancelled:
        conversation.answer(large, final=False)
        sent += 1
        assert sent < 1000
    conversation.answer(None)
    conversation.client.transport.take()

    [event] = conversation.events
    assert "reads too slowly" in event["error"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["stop", "take", "final", "ask"]), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_every_event_arrives_once_and_in_order_however_the_client_reads(steps: list[tuple[str, int]]) -> None:
    async def main(_: object) -> None:
        conversation = Conversation(FlowLimits(max_response_count=4, timeout_s=0))
        transport = conversation.client.transport
        expected: list[list[int]] = []
        for step, count in [*steps, ("take", 0), ("final", 0)]:
            await turns()
            is_open = bool(conversation.plane.requests) and not conversation.request.ticket.answered
            match step:
                case "ask":
                    conversation.ask("generate_stream")
                case "answer" if is_open:
                    for _ in range(count):
                        expected[-1].append(len(expected[-1]))
                        conversation.answer(expected[-1][-1], final=False)
                case "final" if is_open:
                    conversation.answer(None)
                case "stop":
                    transport.is_taken = False
                case "take":
                    transport.take()
            expected += [[] for _ in range(len(conversation.plane.requests) - len(expected))]
        while not conversation.request.ticket.answered if conversation.plane.requests else False:
            conversation.answer(None)
            transport.take()
            await turns()

        bodies = [answer.body or b"" for answer in conversation.client.answers]
        values = [[json.loads(event[6:])["n"] for event in body.split(b"\n\n")[:-1]] for body in bodies]
        assert values == (expected + [[]] * len(values))[: len(values)]
        assert len(values) == sum(step == "ask" for step, _ in steps)
        assert conversation.client.admission.held == 0

    run(main)
