"""Who has to do with a request on its way: where its answers go, who counts, times and traces it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tritonpy.errors import TritonError
from tritonpy.response import InferResponse

if TYPE_CHECKING:
    from tritonpy.request import InferRequest


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


class RequestTrace(Protocol):
    """What is noted of one request on its way through the server; a `tritonpy.tracing.trace.Trace`.

    Plugins use the first four.
    """

    @property
    def id(self) -> int:
        """The number of this trace."""

    @property
    def context(self) -> str | None:
        """JSON for OpenTelemetry's propagators, to go on with this trace elsewhere; None in Triton's mode."""

    def report_activity(self, name: str, timestamp_ns: int = 0) -> None:
        """Note an activity of one's own; of the monotonic clock, 0 for now. From any thread."""

    def child(self, model_name: str = "", model_version: str = "") -> RequestTrace:
        """The trace of a request that is made on behalf of this one."""

    def started(self, request: InferRequest) -> None:
        """Its model has been found."""

    def queued(self, request: InferRequest) -> None:
        """The model takes it."""

    def computed(self, times: Sequence[int]) -> None:
        """It has been executed: start, start and end of the framework's call, end."""

    def hold(self, is_held: bool = True) -> None:
        """Its responses wait for their turn: what the model answers counts when it is let go."""

    def responded(self, response: InferResponse | None, final: bool, *, is_let_go: bool = False) -> None:
        """The model has answered, or what was held is let go; None for a final flag that comes alone."""


class RequestOwner(Protocol):
    """The loaded model that accepted the request and counts it until its final response."""

    def check_outputs(self, request: InferRequest, response: InferResponse) -> TritonError | None:
        """Compare a response that has outputs with the configuration; an error takes its place."""

    def request_finished(self, request: InferRequest, error: TritonError | None) -> None:
        """The final response (or the error that stands for it) has been handed to the sink."""


class ResponseClock(Protocol):
    """Times the responses of one request and counts them; a `tritonpy.model.response_clock`.

    Attributes:
        mark_ns: when its execution began, or its last response was on its way; the thread that executes it
            sets it.
    """

    mark_ns: int

    def lap(self) -> tuple[int, int]:
        """A response is ready now: how long it took to compute, and to be brought on its way."""

    def count(
        self, request: InferRequest, response: InferResponse | None, durations: tuple[int, int]
    ) -> None:
        """Count a response with these durations, on the loop."""


class ComputeMeter(Protocol):
    """Adds up what the steps of a request take; a run of an ensemble."""

    def executed(self, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """A step has been executed, which took so long."""


class RequestCanceller(Protocol):
    """Whoever holds the request now, a queue or an instance, and must hear of a cancellation."""

    def request_cancelled(self, request: InferRequest) -> None:
        """The request's `cancelled` flag was just set."""
