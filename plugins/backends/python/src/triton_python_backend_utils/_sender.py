"""Answering a request by and by: from any thread, also after `execute` has returned."""

from __future__ import annotations

import threading
from typing import Protocol

from ._errors import TritonModelException
from ._response import InferenceResponse

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
"""Nothing follows."""


class Server(Protocol):
    """The server that a request came from.

    Attributes:
        is_decoupled: whether the model may send any number of responses.
        max_batch_size: 0 for a model that does not batch.
        outputs: the outputs in the model's configuration, and whether each is BF16.
    """

    is_decoupled: bool
    max_batch_size: int
    outputs: dict[str, bool]

    def is_cancelled(self, slot: int) -> bool:
        """True if the request in `slot` has been cancelled."""

    def wait_to_send(self, slot: int) -> None:
        """Return when the request in `slot` may have one more response."""

    def respond(
        self, slot: int, requested: tuple[str, ...] | None, response: InferenceResponse | None, final: bool
    ) -> None:
        """Send one response, or only the final flag."""

    def abandon(self, slot: int, request_id: str) -> None:
        """The sender is garbage and its request has had no final response; from any thread."""


class InferenceResponseSender:
    """Sends the responses of one request; made by `InferenceRequest.get_response_sender()`.

    A decoupled model sends any number of responses, the last one (or nothing but the flag) with
    `TRITONSERVER_RESPONSE_COMPLETE_FINAL`. Any other model sends exactly one. Use it from any thread. A
    sender that is dropped before its final response answers the client with an error.
    """

    __slots__ = ("_has_sent", "_is_closed", "_lock", "_request_id", "_requested", "_server", "_slot")

    def __init__(
        self, server: Server | None, slot: int, request_id: str, requested: tuple[str, ...] | None
    ) -> None:
        self._server = server
        self._slot = slot
        self._request_id = request_id
        self._requested = requested
        self._lock = threading.Lock()
        self._has_sent = False
        self._is_closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send one response, the final flag, or both; may wait while the client is far behind.

        It waits only on a thread that answers this request alone: not on an event loop, not in `execute` of
        several requests, not on a thread that has answered others meanwhile. Without the final flag it waits
        until the client has taken what is there, or the request is cancelled.

        Args:
            response: may be left out when `flags` says that nothing follows.
            flags: 0 or `TRITONSERVER_RESPONSE_COMPLETE_FINAL`.

        Raises:
            TypeError: `response` is no `InferenceResponse`.
            TritonModelException: the flags are unknown, there is nothing to send, the sender has been closed
                by the final flag, or a model that is not decoupled sends twice.
        """
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send: response must be an InferenceResponse, got {type(response).__name__}")
        if flags != 0 and flags != TRITONSERVER_RESPONSE_COMPLETE_FINAL:
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        final = flags != 0
        if response is None and not final:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        server = self._server
        if server is not None and not final and server.is_decoupled and not self._is_closed:
            server.wait_to_send(self._slot)  # without the lock: a thread that closes the sender need not wait
        with self._lock:
            if server is None or server.is_decoupled:
                self._check_open()
                if server is not None:
                    server.respond(self._slot, self._requested, response, final)
            else:
                self._send_only(server, response)
            self._has_sent = True
            self._is_closed = final or self._is_closed

    def is_cancelled(self) -> bool:
        """True if the client no longer wants an answer."""
        server = self._server
        return server is not None and not self._is_closed and server.is_cancelled(self._slot)

    def _check_open(self) -> None:
        if self._is_closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")

    def _send_only(self, server: Server, response: InferenceResponse | None) -> None:
        if response is None:
            self._check_open()
            if not self._has_sent:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending "
                    "a response."
                )
            return
        if self._has_sent:
            raise TritonModelException(
                "Unable to send response. Non-decoupled model cannot send more than one response."
            )
        self._check_open()
        server.respond(self._slot, self._requested, response, True)  # nothing may follow, with any flag

    def _close(self) -> bool:
        """Let nothing more be sent; returns whether the client still waits for its final response."""
        with self._lock:
            is_owed = self._is_owed
            self._is_closed = True
            return is_owed

    @property
    def _is_owed(self) -> bool:
        server = self._server
        if self._is_closed or server is None:
            return False
        return server.is_decoupled or not self._has_sent

    def __del__(self) -> None:
        if self._is_owed:
            assert self._server is not None  # or nothing would be owed
            self._server.abandon(self._slot, self._request_id)
