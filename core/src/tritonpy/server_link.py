"""The server as the hooks of a backend reach it: inference by other models, and questions about them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

OnResponse = Callable[[InferResponse | None, bool], None]
"""Takes a response to a request, and whether it is the last one; None is the final flag alone."""


class OpenCall(Protocol):
    """A request to another model that has not had its last response; from any thread."""

    def cancel(self) -> None:
        """Have the model give up; its last response comes all the same."""

    def took(self, byte_size: int) -> None:
        """Say that a response was dealt with; a decoupled model waits while too many are not.

        Args:
            byte_size: of its outputs.
        """


class ServerLink(Protocol):
    """The server behind a model, whether its hooks run in a worker or on threads of the server."""

    def infer(
        self, request: InferRequest, on_response: OnResponse, *, awaited_by: str | None = None
    ) -> OpenCall:
        """Send a request to any model that the server has; from any thread, without waiting.

        Args:
            request: names the model; its `model_version` is "" for the one that the model's policy chooses.
            on_response: takes every response, also what is refused or fails, on a thread of the server or the
                worker that must not be held up.
            awaited_by: the instance that executes nothing else until the last response is there: a call that
                would wait for itself is refused then.

        Raises:
            TritonError: it cannot be sent; nothing comes to `on_response`.
        """

    def ask(self, question: str, *args: Any) -> Future[Any]:  # Any: plain values, each question has its own
        """Ask the server; from any thread but the one that responses come on, where waiting would not end.

        Args:
            question: such as `server.model_metadata`; the page "Write a backend" lists them.
            args: what belongs to it.

        Returns: the answer, or the `TritonError` that the server refuses with.
        """
