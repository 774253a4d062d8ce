"""The trace of a request, as the plugin in a worker sees it."""

from __future__ import annotations

import time

from tritonpy.errors import Unsupported
from tritonpy.ipc import frame
from tritonpy.ipc.channel import WorkerChannel


class WorkerTrace:
    """Brings notes to the server, until the request has its final response; satisfies `RequestTrace`.

    Args:
        channel: to the server.
        slot: of the request.
        number: of the trace.
        context: see `RequestTrace`.
        parent_id: see `RequestTrace`.
    """

    __slots__ = ("_channel", "_slot", "context", "id", "parent_id")

    def __init__(
        self, channel: WorkerChannel, slot: int, number: int, context: str | None, parent_id: int
    ) -> None:
        self._channel = channel
        self._slot = slot
        self.id = number
        self.context = context
        self.parent_id = parent_id

    def report_activity(self, name: str, timestamp_ns: int = 0) -> None:
        """See `RequestTrace`."""
        noted = self._slot, self.id, name, timestamp_ns or time.monotonic_ns()
        self._channel.send(frame.TELL, frame.TRACE_NOTICE, noted)

    def child(self, model_name: str = "", model_version: str = "") -> WorkerTrace:
        """Raises Unsupported; see `RequestTrace`."""
        raise Unsupported("the trace of a call of another model is made by the server, not in a worker")
