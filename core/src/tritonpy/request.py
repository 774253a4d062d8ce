"""One inference request, from the frontend that parsed it to the backend that answers it.

Two sides use the same object. A backend (on an instance's thread, or in a worker process on a copy rebuilt
there) reads it and may call `respond`. The loop that owns the server calls `deliver`, and nobody else does:
`respond` only posts to the request's outbox, which brings the answer to that loop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tritonpy.errors import Internal, NotFound, TritonError, Unsupported
from tritonpy.flow import ResponseFlow
from tritonpy.parties import (
    ComputeMeter,
    Outbox,
    RequestCanceller,
    RequestOwner,
    RequestTrace,
    ResponseClock,
    ResponseSink,
)
from tritonpy.reshape import Reshape
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.states import SequenceStates
from tritonpy.tensor import Tensor

_log = logging.getLogger("tritonpy.request")

SEQUENCE_START = 1
"""The flag of the first request of a sequence."""
SEQUENCE_END = 2
"""The flag of the last request of a sequence."""

COUNTED, COUNTS_AS_SUCCESS, COUNTS_AS_FAILURE = 0, 1, 2
"""What the final response of a request does to the statistics of its model; see `InferRequest.tally`."""

_LONGEST_CORRELATION_ID = 128

_MOST_NAMED = 8


def label_of(request_id: str) -> str:
    """How messages name a request, in Triton's words; with a stand-in when it has no id."""
    return f"[request id: {request_id or '<id_unknown>'}] "


def about_batch(requests: Sequence[InferRequest], instance: str) -> dict[str, str]:
    """What log lines about requests that are executed together carry, as `extra`; of many the first ids."""
    if not requests:
        return {"instance": instance}
    named = [request.id for request in requests if request.id]
    ids = ",".join(named[:_MOST_NAMED])
    more = len(named) - _MOST_NAMED
    request_id = f"{ids},… {more} more" if more > 0 else ids
    return requests[0].about | {"instance": instance, "request_id": request_id}


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
        slot: where a worker process keeps it; -1 outside of one.
        chain: the executions that wait for it, when a model has made it.
        clock: times and counts its responses, when its model is decoupled.
        tally: `COUNTED` when it is counted with its execution; one that was still open then is counted when
            it is answered, as a success or a failure.
        flow: whether its sender may go on; None until somebody asks, see `response_flow`.
        trace: takes notes of it, when it is traced.
        meter: hears how long its execution took, when it is a step of an ensemble.
        states: what the model remembers of its sequence; None in a worker process, and for models without.
        reshape: gives outputs the shapes that clients expect, where they are not the model's.
    """

    is_null: ClassVar[bool] = False

    __slots__ = (
        "__weakref__",
        "_outbox",
        "answered",
        "arrival_ns",
        "batch_size",
        "batching_state",
        "cancelled",
        "chain",
        "clock",
        "correlation_id",
        "flags",
        "flow",
        "id",
        "inputs",
        "meter",
        "model_name",
        "model_version",
        "on_cancel",
        "owner",
        "parameters",
        "priority",
        "queue_start_ns",
        "requested_outputs",
        "reshape",
        "sink",
        "slot",
        "states",
        "tally",
        "timeout_us",
        "trace",
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
        sink: ResponseSink | None = None,
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
        self.sink = sink
        self.arrival_ns = arrival_ns
        self.queue_start_ns = 0
        self.batch_size = 1
        self.batching_state: Any = None  # Any: the strategy's own
        self.slot = -1
        self.chain: tuple[object, ...] = ()
        self.clock: ResponseClock | None = None
        self.tally = COUNTED
        self.flow: ResponseFlow | None = None
        self.states: SequenceStates | None = None
        self.reshape: Reshape | None = None
        self.trace: RequestTrace | None = None
        self.meter: ComputeMeter | None = None
        self.cancelled = False
        self.answered = False
        self.owner: RequestOwner | None = None
        self.on_cancel: RequestCanceller | None = None
        self._outbox: Outbox | None = None

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
        """Whether the client or the server asks for output `name`; others need not be computed."""
        if self.requested_outputs is None or name in self.requested_outputs:
            return True
        return self.states is not None and self.states.gives(name)

    @property
    def byte_size(self) -> int:
        """Bytes of all inputs together, in wire form."""
        return sum(tensor.byte_size for tensor in self.inputs.values())

    def is_cancelled(self) -> bool:
        """Whether the client gave up; a long computation may stop early and answer `Cancelled`."""
        return self.cancelled

    def respond(self, response: InferResponse | None = None, *, final: bool = True) -> None:
        """Answer from a backend; crosses to the server at once and may block while the client is slow.

        Args:
            response: None sends only the final flag, which models with a decoupled policy may do.
            final: nothing follows. Required exactly once per request.

        Raises:
            Internal: the request has had its final response, or was not handed to a backend.
        """
        outbox = self._outbox
        if outbox is None:
            raise Internal(
                f"request '{self.id}' for model '{self.model_name}' is not being executed, "
                f"or has had its final response"
            )
        if self.states is not None and response is not None:
            self.states.own(response)
        if final:
            # From here on its place in a worker may belong to another request.
            self._outbox = None
        outbox.post(self, response, final)

    # For the loop.

    @property
    def label(self) -> str:
        """How messages name this request: `[request id: <id>] `, with a stand-in when it has none."""
        return label_of(self.id)

    @property
    def about(self) -> dict[str, str]:
        """What log lines about this request carry, as `extra`."""
        return {"model": self.model_name, "version": self.model_version, "request_id": self.id}

    def attach(self, outbox: Outbox | None) -> None:
        """Say where `respond` goes; called by the instance that is about to execute the request."""
        self._outbox = outbox

    def deliver(self, response: InferResponse | None, final: bool = True) -> None:
        """Give one response to the sink; on the loop only. Responses after the final one are dropped."""
        if self.answered:
            return
        owner = self.owner
        if final:
            self.answered = True
            if self.flow is not None:
                self.flow.end()
        if self.states is not None:
            error = self.states.take(response, final)
            if error is not None:
                response = InferResponse(error=error)
        if self.reshape is not None and response is not None:
            try:
                self.reshape.to_clients(response)
            except TritonError as exc:
                response = InferResponse(error=exc)
        if response is not None and self.requested_outputs is not None and response.outputs:
            wanted = self.requested_outputs
            if len(response.outputs) > len(wanted) or any(out.name not in wanted for out in response.outputs):
                response.outputs = [out for out in response.outputs if out.name in wanted]
        if response is not None and response.outputs and owner is not None:
            error = owner.check_outputs(self, response)
            if error is not None:
                response = InferResponse(error=error)
        if self.trace is not None:
            self.trace.responded(response, final)
        sink = self.sink
        try:
            if sink is not None:
                sink.on_response(self, response, final)
        except Exception:  # a sink that fails costs its own client, never the other requests of the batch
            _log.exception("%sthe response could not be handed on", self.label, extra=self.about)
        finally:
            if final and owner is not None:
                self.owner = None
                owner.request_finished(self, response.error if response is not None else None)

    def fail(self, error: TritonError) -> None:
        """Answer with an error and nothing after it; on the loop only."""
        if self.tally:
            self.tally = COUNTS_AS_FAILURE
        self.deliver(InferResponse(error=error))

    def cancel(self) -> None:
        """Give the request up, for a frontend whose client is gone; on the loop only.

        One that waits is answered `Cancelled` at once; otherwise the model is told, and may still answer.
        """
        if self.cancelled or self.answered:
            return
        self.cancelled = True
        _log.debug("%sIssuing cancellation", self.label, extra=self.about)
        if self.on_cancel is not None:
            self.on_cancel.request_cancelled(self)
        if self.flow is not None:
            self.flow.end()

    def give_up(self) -> None:
        """Cancel it because its client does not take its responses; it counts as cancelled."""
        if not self.cancelled and not self.answered:
            self.response_flow().is_given_up = True
            self.cancel()

    @property
    def is_given_up(self) -> bool:
        """Whether the server has cancelled it because its client does not take its responses."""
        return self.flow is not None and self.flow.is_given_up

    def response_flow(self) -> ResponseFlow:
        """Slows the model down while a client does not keep up with its responses; on the loop only."""
        flow = self.flow
        if flow is None:
            flow = self.flow = ResponseFlow()
            if self.cancelled or self.answered:
                flow.end()
        return flow

    def __del__(self) -> None:
        # A backend that returned None and then dropped the request would leave its client waiting for ever.
        if self._outbox is not None and not self.answered:
            error = Internal(
                f"{self.label}model '{self.model_name}' dropped the request without a final response"
            )
            self._outbox.post(self, InferResponse(error=error), True)

    def __repr__(self) -> str:
        return f"InferRequest({self.model_name!r}, id={self.id!r}, inputs={list(self.inputs.values())})"


class NullRequest(InferRequest):
    """Stands in a batch where no request is, so that the others keep their places.

    Backends see it like any other. Nobody waits for it: what they answer is dropped, and it is counted
    nowhere.
    """

    is_null: ClassVar[bool] = True

    __slots__ = ()

    def __init__(self, model_name: str, inputs: dict[str, Tensor]) -> None:
        super().__init__(model_name, inputs)
        self.answered = True
