"""The server as the hooks of a backend in a worker reach it: over the worker's channel."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from tritonpy.errors import ErrorCode, TritonError, Unavailable
from tritonpy.executor import FrameExecutor
from tritonpy.ipc import frame
from tritonpy.ipc.channel import WorkerChannel
from tritonpy.ipc.frame import Message
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.server_link import OnResponse
from tritonpy.workers.child.inbox import WorkerInbox
from tritonpy.workers.request_frames import decode_response, discard, encode_call

_MOST_UNTOLD = 32
_MOST_UNTOLD_BYTES = 1024 * 1024
_GONE = "the server has closed the connection to this process"


class WorkerLink:
    """Satisfies `ServerLink`.

    Args:
        channel: to the server.
        inbox: takes what comes from it.

    Attributes:
        running_batch: the batch that the core has the instance execute; 0 when there is none.
        executor: executes others, where there is one.
    """

    def __init__(self, channel: WorkerChannel, inbox: WorkerInbox) -> None:
        self.running_batch = 0
        self.executor: FrameExecutor | None = None
        self._channel = channel
        self._inbox = inbox

    def infer(
        self, request: InferRequest, on_response: OnResponse, *, awaited_by: str | None = None
    ) -> WorkerCall:
        """See `ServerLink`; the inputs have been copied when this returns."""
        channel = self._channel
        endpoint = channel.endpoint
        encoded = encode_call(request, endpoint)
        call = WorkerCall(channel, self._inbox, on_response)
        call.number = number = self._inbox.expect(call.take)
        batch = self._awaiting_batch() if awaited_by is not None else 0
        version = int(request.model_version or -1)
        try:
            channel.send(frame.CALL, number, batch, True, request.model_name, version, encoded)
        except BaseException as exc:
            self._inbox.forget(number)
            discard(encoded[8], endpoint)
            if isinstance(exc, OSError):
                raise Unavailable(_GONE) from None
            raise
        return call

    def _awaiting_batch(self) -> int:
        if self.running_batch or self.executor is None:
            return self.running_batch
        return self.executor.running_batch

    def ask(self, question: str, *args: Any) -> Future[Any]:  # Any: plain values
        """See `ServerLink`."""
        answer: Future[Any] = Future()

        def take(message: Message | None) -> None:
            self._inbox.forget(number)
            if message is None:
                answer.set_exception(Unavailable(_GONE))
                return
            _, _, _, value, error = message
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(TritonError(error[1], ErrorCode(error[0])))

        number = self._inbox.expect(take)
        try:
            self._channel.send(frame.ASK, number, question, args)
        except OSError:
            self._inbox.forget(number)
            raise Unavailable(_GONE) from None
        return answer


class WorkerCall:
    """Satisfies `OpenCall`."""

    __slots__ = ("_channel", "_inbox", "_on_response", "_taken_byte_size", "_taken_count", "number")

    def __init__(self, channel: WorkerChannel, inbox: WorkerInbox, on_response: OnResponse) -> None:
        self.number = 0
        self._channel = channel
        self._inbox = inbox
        self._on_response = on_response
        self._taken_count = 0
        self._taken_byte_size = 0

    def take(self, message: Message | None) -> None:
        """Take a message of the server, or its end; on the inbox's thread."""
        if message is None:
            self._inbox.forget(self.number)
            self._on_response(InferResponse(error=Unavailable(_GONE)), True)
            return
        _, _, _, encoded, final = message
        if final:
            self._inbox.forget(self.number)
        response = decode_response(encoded, self._channel.endpoint) if encoded is not None else None
        self._on_response(response, final)

    def cancel(self) -> None:
        """See `OpenCall`."""
        with suppress(OSError):  # the server is gone, and so is what was called
            self._channel.send(frame.CANCEL, self.number)

    def took(self, byte_size: int) -> None:
        """See `OpenCall`; the server is told of many at a time."""
        self._taken_count += 1
        self._taken_byte_size += byte_size
        if self._taken_count >= _MOST_UNTOLD or self._taken_byte_size >= _MOST_UNTOLD_BYTES:
            count, self._taken_count, self._taken_byte_size = self._taken_count, 0, 0
            with suppress(OSError):  # see above
                self._channel.send(frame.TELL, frame.TAKEN_NOTICE, (self.number, count))
