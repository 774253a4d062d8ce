"""The server as a model reaches it while it works: calls of other models, questions, messages."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from triton_python_backend_utils import InferenceResponse, Tensor, TritonModelException
from triton_python_backend_utils._link import Wire
from triton_python_backend_utils._wire import decode_response, discard, encode_call

from .channel import Channel, Message, frame
from .inbox import Inbox, ServerGone, Waiter

_MOST_UNTOLD = 32
_MOST_UNTOLD_BYTES = 1024 * 1024
_GONE = "the server has closed the connection to this process"

own_batch: ContextVar[int] = ContextVar("own_batch", default=0)
"""The batch that the present thread or coroutine works for; 0 where that is unknown."""


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

    def call(
        self, model: tuple[str, int], wire: Wire, inputs: Sequence[Tensor], decoupled: bool
    ) -> ServerCall:
        endpoint = self._channel.endpoint
        number, waiter = self._open()
        encoded: list[Any] = []  # Any: see `frame.py`
        try:
            call = encode_call(wire, inputs, endpoint)
            encoded = call[8]
            batch = own_batch.get() or self.running_batch
            self._channel.send(frame.CALL, number, batch, decoupled, *model, call)
        except BaseException as exc:
            self._inbox.close(number)
            discard([(encoded, None, None)], endpoint)
            if isinstance(exc, OSError):
                raise TritonModelException(_GONE) from None
            raise
        return ServerCall(self._channel, self._inbox, number, waiter)

    def ask(self, what: str, *args: Any) -> Any:  # Any: plain values
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

    def ask_to_go_on(self, slot: int) -> Permission:
        """Ask whether the request in `slot` may have more responses."""
        number, waiter = self._open()
        try:
            self._channel.send(frame.ASK, number, frame.OPEN_QUESTION, (slot,))
        except OSError:
            self._inbox.close(number)
            raise TritonModelException(_GONE) from None
        return Permission(self._inbox, number, waiter)

    def tell(self, what: str, *args: Any) -> None:  # Any: plain values
        try:
            self._channel.send(frame.TELL, what, args)
        except OSError:
            raise TritonModelException(_GONE) from None

    def free_memory(self) -> int:
        return self._channel.endpoint.arena.free_byte_size  # type: ignore[no-any-return]

    def _open(self) -> tuple[int, Waiter]:
        try:
            return self._inbox.open()
        except (ServerGone, OSError):
            raise TritonModelException(_GONE) from None


class Permission:
    """The server's leave to send more responses; satisfies `Permission` of the ipc package."""

    def __init__(self, inbox: Inbox, number: int, waiter: Waiter) -> None:
        self._inbox = inbox
        self._number = number
        self._waiter = waiter
        self._is_over = False
        self._lock = threading.Lock()  # one thread waits for the message, the others for that thread

    def is_set(self) -> bool:
        """True if it was given."""
        return self._is_over or bool(self._waiter.messages)

    def wait(self, timeout: float | None = None) -> None:
        """Return when it was given, never will be, or the time is over."""
        with self._lock:
            if self._is_over:
                return
            with suppress(ServerGone):
                if timeout is not None and not self._inbox.has_reply_within(self._waiter, timeout):
                    return
                self._inbox.next_reply(self._waiter)
            self.close()

    def close(self) -> None:
        """It is no longer waited for."""
        self._is_over = True
        self._inbox.close(self._number)


class ServerCall:
    """One call of another model; satisfies `triton_python_backend_utils._link.Call`."""

    def __init__(self, channel: Channel, inbox: Inbox, number: int, waiter: Waiter) -> None:
        self._channel = channel
        self._inbox = inbox
        self._number = number
        self._waiter = waiter
        self._is_over = False
        self._taken_count = 0
        self._taken_byte_size = 0

    def next(self) -> InferenceResponse | None:
        if self._is_over:
            return None
        try:
            message = self._inbox.next_reply(self._waiter)
        except ServerGone:
            self._is_over = True
            raise TritonModelException(_GONE) from None
        return self._take(message)

    async def next_async(self) -> InferenceResponse | None:
        if self._is_over:
            return None
        try:
            message = await self._inbox.next_reply_async(self._waiter)
        except ServerGone:
            self._is_over = True
            raise TritonModelException(_GONE) from None
        return self._take(message)

    def cancel(self) -> None:
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
        else:
            self._note_taken(response)
        if response is None:  # the final flag alone
            return InferenceResponse([])
        return decode_response(response, self._channel.endpoint)

    def _note_taken(self, response: Message) -> None:
        """Tell the server now and then how many more were taken: it holds back a model that is far ahead."""
        self._taken_count += 1
        for _, _, _, data in response[0]:
            self._taken_byte_size += len(data) if isinstance(data, bytes) else data[1]
        if self._taken_count >= _MOST_UNTOLD or self._taken_byte_size >= _MOST_UNTOLD_BYTES:
            with suppress(OSError):  # the server is gone; the next one that waits finds out
                self._channel.send(frame.TELL, frame.TAKEN_NOTICE, (self._number, self._taken_count))
            self._taken_count = self._taken_byte_size = 0

    def __del__(self) -> None:
        if not self._is_over:
            # Perhaps in a garbage collection, in a thread that holds the inbox's lock: it only takes note.
            self._inbox.abandon(self._number)
            with suppress(OSError):  # the server is gone, and so is what was called
                self._channel.send(frame.CANCEL, self._number)
