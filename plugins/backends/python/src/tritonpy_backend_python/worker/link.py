"""The server as a model reaches it while it works: calls of other models, questions, messages."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from triton_python_backend_utils import InferenceRequest, InferenceResponse, TritonModelException
from triton_python_backend_utils._wire import decode_response, discard, encode_call

from .channel import Channel, Message, frame
from .inbox import Inbox, ServerGone, Waiter

_GONE = "the server has closed the connection to this process"

own_batch: ContextVar[int] = ContextVar("own_batch", default=0)
"""The batch that the present thread or coroutine works for; 0 where nobody knows."""


class ServerLink:
    """Satisfies `triton_python_backend_utils._link.Link`.

    Attributes:
        running_batch: the batch that `execute` is working on and that waits for what any thread does; 0 when
            it is idle, or answers later anyway.
    """

    def __init__(self, channel: Channel, inbox: Inbox) -> None:
        self._channel = channel
        self._inbox = inbox
        self.running_batch = 0

    def call(self, request: InferenceRequest, decoupled: bool) -> ServerCall:
        """See `Link`."""
        endpoint = self._channel.endpoint
        number, waiter = self._open()
        inputs: list[Any] = []  # Any: see `frame.py`
        try:
            model, version, wire = encode_call(request, endpoint)
            inputs = wire[8]
            batch = own_batch.get() or self.running_batch
            self._channel.send(frame.CALL, number, batch, decoupled, model, version, wire)
        except BaseException as exc:
            self._inbox.close(number)
            discard([(inputs, None, None)], endpoint)
            if isinstance(exc, OSError):
                raise TritonModelException(_GONE) from None
            raise
        return ServerCall(self._channel, self._inbox, number, waiter)

    def ask(self, what: str, *args: Any) -> Any:  # Any: plain values
        """See `Link`."""
        number, waiter = self._open()
        try:
            self._channel.send(frame.ASK, number, what, args)
            message = self._inbox.next_reply(waiter)
        except (ServerGone, OSError):
            raise TritonModelException(_GONE) from None
        finally:
            self._inbox.close(number)
        _, _, _, value, error = message
        if error is not None:
            raise TritonModelException(error[1])
        return value

    def tell(self, what: str, *args: Any) -> None:  # Any: plain values
        """See `Link`."""
        try:
            self._channel.send(frame.TELL, what, args)
        except OSError:
            raise TritonModelException(_GONE) from None

    def _open(self) -> tuple[int, Waiter]:
        try:
            return self._inbox.open()
        except (ServerGone, OSError):
            raise TritonModelException(_GONE) from None


class ServerCall:
    """One call of another model; satisfies `triton_python_backend_utils._link.Call`."""

    def __init__(self, channel: Channel, inbox: Inbox, number: int, waiter: Waiter) -> None:
        self._channel = channel
        self._inbox = inbox
        self._number = number
        self._waiter = waiter
        self._is_over = False

    def next(self) -> InferenceResponse | None:
        """See `Call`."""
        if self._is_over:
            return None
        try:
            message = self._inbox.next_reply(self._waiter)
        except ServerGone:
            self._is_over = True
            raise TritonModelException(_GONE) from None
        return self._take(message)

    async def next_async(self) -> InferenceResponse | None:
        """See `Call`."""
        if self._is_over:
            return None
        try:
            message = await self._inbox.next_reply_async(self._waiter)
        except ServerGone:
            self._is_over = True
            raise TritonModelException(_GONE) from None
        return self._take(message)

    def cancel(self) -> None:
        """See `Call`."""
        if not self._is_over:
            try:
                self._channel.send(frame.CANCEL, self._number)
            except OSError:
                raise TritonModelException(_GONE) from None

    def _take(self, message: Message) -> InferenceResponse:
        _, _, _, response, final = message
        if final:
            self._is_over = True
            self._inbox.close(self._number)
        return decode_response(response, self._channel.endpoint)

    def __del__(self) -> None:
        if not self._is_over:
            # Perhaps in a garbage collection, in a thread that holds the inbox's lock: it only takes note.
            self._inbox.abandon(self._number)
            with suppress(OSError):  # the server is gone, and so is what was called
                self._channel.send(frame.CANCEL, self._number)
