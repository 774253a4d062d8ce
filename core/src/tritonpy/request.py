"""One inference request, from the frontend that parsed it to the backend that answers it.

`InferRequest` is what plugins see; its `Ticket` is what the server keeps beside it, such as the
sink of its responses. A request, its ticket and the roles that a ticket names speak of each other, so
they stand together.

Two sides use the same object. A backend (on an instance's thread, or in a worker process on a copy rebuilt
there) reads it and may call `respond`, which posts to the ticket's outbox and so reaches the loop that owns
the server. Only that loop calls `deliver`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError, Unsupported, exception_text
from tritonpy.flow import ResponseFlow
from tritonpy.ipc.window import SendWindow
from tritonpy.request_trace import RequestTrace, ServerTrace
from tritonpy.reshape import Reshape
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.response_clock import ResponseClock
from tritonpy.states import SequenceStates
from tritonpy.tensor import Tensor

_log = logging.getLogger("tritonpy.request")

SEQUENCE_START = 1
"""The flag of the first request of a sequence."""
SEQUENCE_END = 2
"""The flag of the last request of a sequence."""

COUNTED, COUNTS_AS_SUCCESS, COUNTS_AS_FAILURE = 0, 1, 2
"""What the final response of a request does to the statistics of its model; see `Ticket.tally`."""

_LONGEST_CORRELATION_ID = 128


def label_of(request_id: str) -> str:
    """The request in messages, in Triton's words; with a stand-in when it has no id."""
    return f"[request id: {request_id or '<id_unknown>'}] "


def not_iterative(model_name: str) -> InvalidArg:
    """The error of a request that a model reschedules whose configuration does not provide for that."""
    return InvalidArg(
        f"model '{model_name}' rescheduled a request, which only a model with "
        f"'sequence_batching {{ iterative_sequence: true }}' may do"
    )


def checked_correlation_id(correlation_id: str) -> str:
    """A correlation id that is text, if it is not too long.

    Raises:
        Unsupported: it has more than 128 bytes in UTF-8.
    """
    if len(correlation_id.encode("utf-8", "replace")) > _LONGEST_CORRELATION_ID:
        raise Unsupported(f"string correlation ID cannot be longer than {_LONGEST_CORRELATION_ID} characters")
    return correlation_id


class InferRequest:
    """One request to one version of one model.

    Attributes:
        model_name: as the client wrote it.
        model_version: as the client wrote it, "" for the newest ready version; from the moment the data plane
            has accepted the request, the version that serves it.
        id: the client's request id, "" when it gave none.
        inputs: tensors by name, in the order they came.
        requested_outputs: names, or None for all outputs of the model.
        parameters: custom parameters (`priority`, `timeout` and `sequence_*` are attributes, not parameters).
        flags: `SEQUENCE_START` and `SEQUENCE_END`, combined.
        correlation_id: 0 or "" when the request belongs to no sequence.
        priority: 0 means the model's default level.
        timeout_us: the client's queue timeout in microseconds, 0 for none.
        batch_size: rows, after the request was checked; 1 for models that do not batch.
        arrival_ns, queue_start_ns: monotonic clock, set by the frontend and the scheduler.
        batching_state: what the batching strategy of its model has noted of it while it waits, see
            `model_batcher_admit_request`; it never leaves the server's process.
        is_null: it only fills a place of a batch; see `NullRequest`.

    For the server only:
        ticket: what the server keeps beside the request.
    """

    is_null: ClassVar[bool] = False

    __slots__ = (
        "__weakref__",
        "arrival_ns",
        "batch_size",
        "batching_state",
        "correlation_id",
        "flags",
        "id",
        "inputs",
        "model_name",
        "model_version",
        "parameters",
        "priority",
        "queue_start_ns",
        "requested_outputs",
        "ticket",
        "timeout_us",
    )

    def __init__(
        self,
        model_name: str,
        inputs: dict[str, Tensor],
        *,
        model_version: str = "",
        id: str = "",
        requested_outputs: tuple[str, ...] | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
        flags: int = 0,
        correlation_id: int | str = 0,
        priority: int = 0,
        timeout_us: int = 0,
        arrival_ns: int = 0,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.id = id
        self.inputs = inputs
        self.requested_outputs = requested_outputs
        self.parameters = parameters if parameters is not None else {}
        self.flags = flags
        self.correlation_id = correlation_id
        self.priority = priority
        self.timeout_us = timeout_us
        self.arrival_ns = arrival_ns
        self.queue_start_ns = 0
        self.batch_size = 1
        self.batching_state: Any = None  # Any: the strategy's own
        self.ticket = Ticket()

    # For backends and strategies.

    def input(self, name: str) -> Tensor:
        """The input called `name`.

        Raises:
            NotFound: the request does not carry it (an optional input may be left out).
        """
        try:
            return self.inputs[name]
        except KeyError:
            raise NotFound(
                f"input '{name}' is not in the request for model '{self.model_name}', "
                f"which carries {sorted(self.inputs)}"
            ) from None

    def wants(self, name: str) -> bool:
        """True if the client or the server asks for output `name`; others need not be computed."""
        if self.requested_outputs is None or name in self.requested_outputs:
            return True
        states = self.ticket.states
        return states is not None and states.gives(name)

    @property
    def byte_size(self) -> int:
        """Bytes of all inputs together, in wire form."""
        return sum(tensor.byte_size for tensor in self.inputs.values())

    @property
    def trace(self) -> RequestTrace | None:
        """Takes notes of a backend's own steps; None for a request that is not traced."""
        return self.ticket.trace

    def is_cancelled(self) -> bool:
        """True once the client gave up; a long computation may stop early and answer `Cancelled`."""
        return self.ticket.cancelled

    def cancel_flag(self) -> bytearray | memoryview:
        """One byte that is 1 from the moment on in which `is_cancelled` would say so, for code in C to read.

        It belongs to this request until its final response, and may be another one's afterwards.
        """
        ticket = self.ticket
        flag = ticket.cancel_flag
        if flag is None:
            flag = ticket.cancel_flag = bytearray(1)
            if ticket.cancelled:  # asked after the loop can find the flag: no cancellation gets lost
                flag[0] = 1
        return flag

    def respond(self, response: InferResponse | None = None, *, final: bool = True) -> None:
        """Answer from a backend; crosses to the server at once and may block while the client is slow.

        Args:
            response: None sends only the final flag, which models with a decoupled policy may do.
            final: nothing follows. Required exactly once per request.

        Raises:
            Internal: the request has had its final response, or was not handed to a backend; or `response` is
                something else.
        """
        ticket = self.ticket
        outbox = ticket.outbox
        if outbox is None:
            raise Internal(
                f"request '{self.id}' for model '{self.model_name}' is not being executed, "
                f"or has had its final response"
            )
        if response is not None:
            if not isinstance(response, InferResponse):
                kind = type(response).__name__
                raise Internal(
                    f"request '{self.id}' was answered with {kind}, expected InferResponse or None"
                )
            if ticket.states is not None:
                ticket.states.own(response)
        if final:
            # From here on its place in a worker may belong to another request.
            ticket.outbox = None
        outbox.post(self, response, final)

    def report_failure(self) -> None:
        """Have the request counted as failed, whatever it is answered; before `execute` returns."""
        self.ticket.is_failure = True

    def reschedule(self) -> None:
        """Have the request executed again, in place of its final response; before `execute` returns.

        For models with `sequence_batching { iterative_sequence: true }`; of others the request fails.

        Raises:
            Internal: the request has had its final response, or was not handed to a backend.
        """
        ticket = self.ticket
        if ticket.outbox is not None and ticket.again is None:
            self.respond(InferResponse(error=not_iterative(self.model_name)))
            return
        if ticket.outbox is None or ticket.again is None:
            raise Internal(
                f"request '{self.id}' for model '{self.model_name}' cannot be rescheduled: it is not being "
                f"executed, or has had its final response"
            )
        again, ticket.again, ticket.outbox = ticket.again, None, None
        again.reschedule(self)

    def would_wait(self) -> bool:
        """True if `respond` would wait for the client now, unless with the final response."""
        window = self.ticket.window
        return window is not None and window.is_full

    # For frontends.

    def cancel(self) -> None:
        """Give the request up, for a frontend whose client is gone; on the loop only.

        One that waits is answered `Cancelled` at once; otherwise the model can see it, and may still answer.
        """
        ticket = self.ticket
        if ticket.cancelled or ticket.answered:
            return
        ticket.cancelled = True
        if ticket.cancel_flag is not None:
            ticket.cancel_flag[0] = 1
        _log.debug("%sIssuing cancellation", self.label, extra=self.about)
        if ticket.on_cancel is not None:
            ticket.on_cancel.request_cancelled(self)
        if ticket.flow is not None:
            ticket.flow.end()

    def response_flow(self) -> ResponseFlow:
        """Slows the model down while a client does not keep up with its responses; on the loop only."""
        return self.ticket.response_flow()

    # For the server's loop.

    @property
    def label(self) -> str:
        """The request in messages: `[request id: <id>] `, with a stand-in when it has none."""
        return label_of(self.id)

    @property
    def about(self) -> dict[str, str]:
        """The fields of log lines about this request, passed as `extra`."""
        return {"model": self.model_name, "version": self.model_version, "request_id": self.id}

    def deliver(self, response: InferResponse | None, final: bool = True) -> None:
        """Give one response to the sink; on the loop only. Responses after the final one are dropped."""
        ticket = self.ticket
        if ticket.answered:
            return
        owner = ticket.owner
        if final:
            ticket.answered = True
            if ticket.flow is not None:
                ticket.flow.end()
        try:
            if ticket.states is not None:
                response = ticket.states.take(response, final)
                if response is None and not final:
                    return  # it had states only
            if response is not None:
                if response.error is not None and not isinstance(response.error, TritonError):
                    raise TypeError(f"its error is {type(response.error).__name__}, expected TritonError")
                if ticket.reshape is not None:
                    response = ticket.reshape.to_clients(response)
                if self.requested_outputs is not None and response.outputs:
                    response.keep(self.requested_outputs)
                if owner is not None and response.outputs:
                    response = owner.check_outputs(self, response)
            if ticket.trace is not None:
                ticket.trace.responded(response, final)
        except Exception as exc:  # outputs that are no tensors, say: the client has to hear of it
            _log.exception("%sthe response cannot be read", self.label, extra=self.about)
            text = (
                f"{self.label}the response of model '{self.model_name}' cannot be read: {exception_text(exc)}"
            )
            response = InferResponse(error=Internal(text))
        try:
            if ticket.sink is not None:
                ticket.sink.on_response(self, response, final)
        except Exception:  # a sink that fails costs its own client, never the other requests of the batch
            _log.exception("%sthe response could not be handed on", self.label, extra=self.about)
        finally:
            if final and owner is not None:
                ticket.owner = None
                owner.request_finished(self, response.error if response is not None else None)

    def fail(self, error: TritonError) -> None:
        """Answer with an error and nothing after it; on the loop only."""
        if self.ticket.tally:
            self.ticket.tally = COUNTS_AS_FAILURE
        self.deliver(InferResponse(error=error))

    def give_up(self) -> None:
        """Cancel it because its client does not take its responses; it counts as cancelled."""
        ticket = self.ticket
        if not ticket.cancelled and not ticket.answered:
            ticket.response_flow().is_given_up = True
            self.cancel()

    def count_response(self, response: InferResponse | None, durations: tuple[int, int]) -> None:
        """Count a response of a decoupled model; those behind the final one are not counted.

        Args:
            response: the response.
            durations: nanoseconds that it took to be computed, and to be brought on its way.
        """
        ticket = self.ticket
        if ticket.clock is not None and not ticket.answered:
            ticket.clock.count(response, durations, self.queue_start_ns, is_cancelled=ticket.cancelled)

    def __del__(self) -> None:
        # A backend that returned None and then dropped the request would leave its client without an answer.
        ticket = self.ticket
        if ticket.outbox is not None and not ticket.answered:
            error = Internal(
                f"{self.label}model '{self.model_name}' dropped the request without a final response"
            )
            ticket.outbox.post(self, InferResponse(error=error), True)

    def __repr__(self) -> str:
        return f"InferRequest({self.model_name!r}, id={self.id!r}, inputs={list(self.inputs.values())})"


class NullRequest(InferRequest):
    """Stands in a batch where no request is, so that the others keep their places.

    Backends see it like any other. No client waits for it: the answer is dropped, and it is counted
    nowhere.
    """

    is_null: ClassVar[bool] = True

    __slots__ = ()

    def __init__(self, model_name: str, inputs: dict[str, Tensor]) -> None:
        super().__init__(model_name, inputs)
        self.ticket.answered = True


class Ticket:
    """The server's state of a request; on the loop only, except `outbox`, `cancel_flag`, `clock`, `states`.

    Attributes:
        sink: takes the responses.
        again: takes the request back to have it executed again, while a model executes it that may want that.
        owner: the loaded model that has accepted the request and not answered it finally.
        outbox: carries responses from where the model runs, while it does.
        on_cancel: the queue or instance that holds the request, notified of a cancellation.
        cancel_flag: says so to code outside of the interpreter, where it has asked for that.
        cancelled: the client, or the server for it, has given the request up.
        answered: the final response is on its way to the sink.
        tally: `COUNTED` when the request is counted with its execution; one that was still open then is
            counted when it is answered, as a success or a failure.
        trace: takes notes of the request, when it is traced.
        clock: times and counts its responses, when its model is decoupled.
        on_executed: takes the nanoseconds of input, inference and output, when it is a step of an ensemble.
        flow: tells its sender to wait; made by `response_flow`.
        is_failure: its model counts it as failed.
        states: what the model remembers of its sequence; None in a worker process, and for models without.
        reshape: gives outputs the shapes that clients expect, where they are not the model's.
        chain: the executions that wait for the request, when a model has made it.
        slot: the place where a worker process keeps it; -1 outside of one.
        window: how far its responses are ahead of the server, while a decoupled model executes it.
    """

    __slots__ = (
        "again",
        "answered",
        "cancel_flag",
        "cancelled",
        "chain",
        "clock",
        "flow",
        "is_failure",
        "on_cancel",
        "on_executed",
        "outbox",
        "owner",
        "reshape",
        "sink",
        "slot",
        "states",
        "tally",
        "trace",
        "window",
    )

    def __init__(self) -> None:
        self.sink: ResponseSink | None = None
        self.owner: RequestOwner | None = None
        self.outbox: Outbox | None = None
        self.again: Rescheduler | None = None
        self.on_cancel: RequestCanceller | None = None
        self.cancelled = False
        self.cancel_flag: bytearray | None = None
        self.answered = False
        self.tally = COUNTED
        self.trace: ServerTrace | None = None
        self.clock: ResponseClock | None = None
        self.on_executed: Callable[[int, int, int], None] | None = None
        self.flow: ResponseFlow | None = None
        self.is_failure = False
        self.states: SequenceStates | None = None
        self.reshape: Reshape | None = None
        self.chain: tuple[object, ...] = ()
        self.slot = -1
        self.window: SendWindow | None = None

    @property
    def is_given_up(self) -> bool:
        """True if the server has cancelled the request because its client does not take its responses."""
        return self.flow is not None and self.flow.is_given_up

    def response_flow(self) -> ResponseFlow:
        """The flow of the request's responses, made when it is first asked for."""
        flow = self.flow
        if flow is None:
            flow = self.flow = ResponseFlow()
            if self.cancelled or self.answered:
                flow.end()
        return flow


class ResponseSink(Protocol):
    """Takes the responses of requests: a client's connection, an ensemble step, a caller in this process.

    It must not block, and raises nothing; a client that reads slowly is what `InferRequest.response_flow` is
    for.
    """

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Take one response, on the loop.

        Args:
            request: the request it answers.
            response: None when only the final flag comes (decoupled models).
            final: nothing follows.
        """


class Outbox(Protocol):
    """Carries a response from wherever the model runs to the loop."""

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Hand over one response; may block the caller while too many wait to be written."""


class Rescheduler(Protocol):
    """Takes requests back from wherever an iterative model runs."""

    def reschedule(self, request: InferRequest) -> None:
        """Have it executed again; from any thread."""


class RequestOwner(Protocol):
    """The loaded model that accepted the request and counts it until its final response."""

    def check_outputs(self, request: InferRequest, response: InferResponse) -> InferResponse:
        """Compare a response that has outputs with the configuration; returns it, or an error."""

    def request_finished(self, request: InferRequest, error: TritonError | None) -> None:
        """The final response (or the error that stands for it) has been handed to the sink."""


class RequestCanceller(Protocol):
    """The queue or instance that holds a request."""

    def request_cancelled(self, request: InferRequest) -> None:
        """The request's ticket was just marked as cancelled."""
