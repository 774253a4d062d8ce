"""The trace of a request, as far as the server and its plugins write to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor


class RequestTrace(Protocol):
    """Notes of one request on its way, as a plugin may add to them."""

    @property
    def id(self) -> int:
        """The number of this trace."""

    @property
    def parent_id(self) -> int:
        """The number of the trace that it is a part of; 0 for none."""

    @property
    def context(self) -> str | None:
        """JSON for OpenTelemetry's propagators, to go on with this trace elsewhere; None in Triton's mode."""

    def report_activity(self, name: str, timestamp_ns: int = 0) -> None:
        """Note an activity of one's own; of the monotonic clock, 0 for now. From any thread."""

    def child(self, model_name: str = "", model_version: str = "") -> RequestTrace:
        """The trace of a request that is made on behalf of this one.

        Raises:
            Unsupported: in a worker, where the server makes the traces of calls of other models.
        """


class ServerTrace(RequestTrace, Protocol):
    """The same as the server keeps it; a `tritonpy.tracing.trace.Trace`."""

    def child(self, model_name: str = "", model_version: str = "") -> ServerTrace: ...

    def started(self, model_name: str, model_version: str, request_id: str) -> None:
        """Its model has been found."""

    def queued(self, model_version: str, inputs: Iterable[Tensor]) -> None:
        """The model takes it."""

    def computed(self, times: Sequence[int]) -> None:
        """It has been executed: start, start and end of the framework's call, end."""

    def hold(self, is_held: bool = True) -> None:
        """Its responses wait for their turn: an answer counts when it is released."""

    def responded(self, response: InferResponse | None, final: bool, *, is_let_go: bool = False) -> None:
        """The model has answered, or a held answer is released; None for a final flag that comes alone."""
