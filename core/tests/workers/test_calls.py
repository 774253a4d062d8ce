"""BLS calls and questions of a worker, whose end the test plays; in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import ErrorCode, InvalidArg, NotFound
from tritonpy.flow import FlowLimits, Pauses
from tritonpy.ipc import frame
from tritonpy.ipc.frame import OPEN_QUESTION, TAKEN_NOTICE, Message
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse
from tritonpy.workers.calls import ServerAccess
from tritonpy.workers.in_flight import InFlight, UnansweredWatch
from tritonpy.workers.worker_process import WorkerProcess
from tritonpy.workers.worker_services import Caller, Services

from ..simulator.virtual_loop import turns
from .hand_driven import Asked, FakeProgram, Workers, batch_of, played


class Called:
    """A model that is called, and answers when it is told to."""

    def __init__(self, name: str, *, is_decoupled: bool = False, error: Exception | None = None) -> None:
        self.name = name
        self.is_decoupled = is_decoupled
        self.pauses = Pauses()
        self.instances: tuple[Any, ...] = ()
        self.all_models = (self,)
        self.error = error
        self.requests: list[InferRequest] = []

    def infer(self, request: InferRequest, sink: ResponseSink) -> None:
        request.ticket.sink = sink
        if self.error is not None:
            raise self.error
        self.requests.append(request)

    def find(self, name: str, version: str = "") -> Any:
        if name != self.name:
            raise NotFound(f"there is no model '{name}'")
        return self


class Echo:
    """A service: gives back what it is asked, but `fail` and `refuse`."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.gone: list[str] = []

    async def ask(self, caller: Caller, what: str, args: tuple[Any, ...]) -> Any:
        if what == "fail":
            raise KeyError("a bug")
        if what == "refuse":
            raise InvalidArg("not that")
        if what == "hang":
            await asyncio.Event().wait()
        return [caller.instance, what, *args]

    def tell(self, caller: Caller, what: str, args: tuple[Any, ...]) -> None:
        if what == "fail":
            raise KeyError("a bug")
        self.told.append((what, args))

    def caller_gone(self, caller: Caller) -> None:
        self.gone.append(caller.instance)


class Bench:
    """A worker with one batch, and the model that it calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._workers = Workers(monkeypatch)
        self.echo = Echo()
        self.own = Asked()
        self.execution = batch_of(self.own)

    async def open(self, called: Called, limits: FlowLimits | None = None) -> FakeProgram:
        services = Services()
        services.add("echo", self.echo)
        more = {} if limits is None else {"flow_limits": limits}
        self._workers.access = ServerAccess(called, services, **more)
        self.worker: WorkerProcess = await self._workers.start()
        self.work = InFlight(UnansweredWatch(0, lambda request, age_s: None), self.worker.cancel_flags)
        self.worker.adopt("m_0", self.work, lambda message: None, lambda error: None)
        self.work.reserve(1)
        self.work.batches[1] = self.execution, [self.work.add(self.own.request)]
        return self._workers.programs[0]

    async def close(self) -> None:
        await self._workers.close()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def call(
    program: FakeProgram, number: int, *, model: str = "b", is_decoupled: bool = False, batch: int = 1
) -> None:
    value = np.array([number], np.int32).tobytes()
    encoded = (0, f"r{number}", 0, 0, 0, 0, None, None, [("IN", "INT32", (1,), value)])
    program.say(frame.CALL, number, batch, is_decoupled, model, -1, encoded)


def outcome(message: Message) -> tuple[int, list[int], str, bool]:
    """Of a CALLED message: the call, the values of its outputs, the text of its error, and if it is final."""
    kind, number, response, final = message
    outputs, _, error = response or ((), None, None)
    assert kind == frame.CALLED
    values = [int(np.frombuffer(data, np.int32)[0]) for _, _, _, data in outputs]
    return number, values, error[1] if error is not None else "", final


def response(value: int) -> InferResponse:
    return InferResponse().add("OUT", np.array([value], np.int32))


@played
async def test_calls_are_answered_by_their_numbers_in_any_order(bench: Bench) -> None:
    called = Called("b")
    program = await bench.open(called)

    call(program, 5)
    call(program, 6)
    assert [request.id for request in called.requests] == ["r5", "r6"]
    called.requests[1].deliver(response(60))
    called.requests[0].deliver(response(50))

    assert [outcome(message) for message in program.received()] == [(6, [60], "", True), (5, [50], "", True)]


@pytest.mark.parametrize(
    ("called", "is_decoupled", "text"),
    [
        (Called("c"), False, "there is no model 'b'"),
        (Called("b", error=InvalidArg("a wrong shape")), False, "a wrong shape"),
        (Called("b", error=ZeroDivisionError("a bug")), False, "ZeroDivisionError: a bug"),
        (
            Called("b", is_decoupled=True),
            False,
            "Model b is using the decoupled. The current BLS request call doesn't support models using the "
            "decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or "
            "'async_exec' calls for decoupled models.",
        ),
    ],
)
@played
async def test_call_that_cannot_be_made_is_answered_with_the_reason(
    bench: Bench, called: Called, is_decoupled: bool, text: str
) -> None:
    program = await bench.open(called)

    call(program, 5, is_decoupled=is_decoupled)

    assert [outcome(message) for message in program.received()] == [(5, [], text, True)]
    assert called.requests == []


@played
async def test_call_whose_response_cannot_be_sent_is_answered_with_the_reason(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    called = Called("b")
    program = await bench.open(called)

    for number in (5, 6):
        call(program, number)
    odd = response(50)
    odd.parameters = {"a": object()}  # type: ignore[dict-item]  # what a backend may do
    called.requests[0].deliver(odd)
    called.requests[1].deliver(response(60))

    assert [outcome(message) for message in program.received()] == [
        (5, [], "the response cannot be sent: ValueError: unmarshallable object", True),
        (6, [60], "", True),
    ]
    assert caplog.records[0].exc_info is not None


@played
async def test_decoupled_call_has_all_responses_and_one_that_is_not_has_one(bench: Bench) -> None:
    called = Called("b", is_decoupled=True)
    program = await bench.open(called)

    call(program, 5, is_decoupled=True)
    assert not called.pauses.are_allowed  # nobody may hold up what a call waits for
    for value in (1, 2):
        called.requests[0].deliver(response(value), False)
    called.requests[0].deliver(None)

    assert [outcome(message) for message in program.received()] == [
        (5, [1], "", False),
        (5, [2], "", False),
        (5, [], "", True),
    ]
    assert called.pauses.are_allowed


@played
async def test_call_that_its_caller_gives_up_is_cancelled(bench: Bench) -> None:
    called = Called("b")
    program = await bench.open(called)
    call(program, 5)

    program.say(frame.CANCEL, 5)
    program.say(frame.CANCEL, 77)  # answered meanwhile

    assert called.requests[0].is_cancelled()


@played
async def test_calls_of_a_batch_that_nobody_wants_are_cancelled_and_others_are_not(bench: Bench) -> None:
    called = Called("b")
    program = await bench.open(called)
    call(program, 5, batch=1)
    call(program, 6, batch=2)
    assert bench.work.has_called
    assert list(bench.worker.awaited_calls()) == [1, 2]

    bench.worker.give_up_calls(1)

    assert [request.is_cancelled() for request in called.requests] == [True, False]


@played
async def test_end_of_a_worker_cancels_its_calls_and_questions(bench: Bench) -> None:
    called = Called("b", is_decoupled=True)
    program = await bench.open(called)
    call(program, 5, is_decoupled=True)
    program.say(frame.ASK, 1, "echo.hang", ())
    await turns()

    await program.end(1)

    assert called.requests[0].is_cancelled()
    assert called.pauses.are_allowed
    assert bench.echo.gone == ["m_0"]
    assert bench.worker.awaited_calls() == {}
    called.requests[0].deliver(response(1), False)  # and nobody hears it


@played
async def test_call_that_waits_for_itself_is_refused_with_the_circle(bench: Bench) -> None:
    class Busy:
        name, depth, concurrency = "b_0", 1, 1

        def running_executions(self) -> Any:
            return [(bench.execution, ())]

    called = Called("b")
    called.instances = (Busy(),)
    program = await bench.open(called)

    call(program, 5)

    [(_, _, text, _)] = map(outcome, program.received())
    assert text == (
        "model 'm' cannot call 'b': the call would wait for itself for ever ('m_0' waits for 'b_0'). "
        "Give 'b' more instances (instance_group count) or break the cycle"
    )


@played
async def test_caller_that_does_not_read_holds_up_the_sender_until_it_does(bench: Bench) -> None:
    called = Called("b", is_decoupled=True)
    program = await bench.open(called, FlowLimits(max_response_count=4))
    call(program, 5, is_decoupled=True)
    [request] = called.requests
    leave: list[str] = []

    for value in range(4):
        request.deliver(response(value), False)
    request.response_flow().when_open(lambda: leave.append("go on"))
    assert leave == []
    program.say(frame.TELL, TAKEN_NOTICE, (5, 3))

    assert leave == ["go on"]


@pytest.mark.parametrize(
    ("what", "value", "error"),
    [
        ("echo.this", ["m_0", "this", 7], None),
        ("echo.refuse", None, (int(ErrorCode.INVALID_ARG), "not that")),
        ("echo.fail", None, (int(ErrorCode.INTERNAL), "KeyError: 'a bug'")),
        (
            "nobody.this",
            None,
            (int(ErrorCode.INTERNAL), "this server does not answer 'nobody.this'; it knows ['echo']"),
        ),
    ],
)
@played
async def test_questions_are_answered_by_the_service_they_are_about(
    bench: Bench, what: str, value: Any, error: tuple[int, str] | None
) -> None:
    program = await bench.open(Called("b"))

    program.say(frame.ASK, 9, what, (7,))
    await turns()

    assert program.received() == [(frame.ANSWER, 9, value, error)]


@played
async def test_question_whether_more_may_be_sent_waits_for_a_slow_client(bench: Bench) -> None:
    program = await bench.open(Called("b"))
    flow = bench.own.request.response_flow()
    flow.pause()

    program.say(frame.ASK, 9, OPEN_QUESTION, (bench.own.request.ticket.slot,))
    assert program.received() == []
    flow.resume()

    assert program.received() == [(frame.ANSWER, 9, None, None)]


@played
async def test_notice_that_fails_costs_itself_only(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    program = await bench.open(Called("b"))

    program.say(frame.TELL, "echo.fail", ())
    program.say(frame.TELL, "nobody.this", ())
    program.say(frame.TELL, "echo.this", (1,))

    assert bench.echo.told == [("this", (1,))]
    assert [record.message for record in caplog.records] == [
        "instance 'm_0': 'echo.fail' failed",
        "instance 'm_0' told of 'nobody.this', which this server does not know",
    ]
