"""What this module asks of the server behind a model: calls of other models, and services such as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ._current import Current
from ._errors import TritonModelException

if TYPE_CHECKING:
    from ._request import InferenceRequest
    from ._response import InferenceResponse


class Call(Protocol):
    """One call of another model, under way."""

    def next(self) -> InferenceResponse | None:
        """Wait for the next response; None when there are no more."""

    async def next_async(self) -> InferenceResponse | None:
        """The same on an event loop."""

    def cancel(self) -> None:
        """Ask the server to give the request up."""


class Link(Protocol):
    """The server, as a model's process reaches it; from any thread."""

    def call(self, request: InferenceRequest, decoupled: bool) -> Call:
        """Start a call of `request.model_name()`."""

    def ask(self, what: str, *args: Any) -> Any:  # Any: plain values, each question has its own
        """Ask the server and wait for the answer.

        Raises:
            TritonModelException: the server refuses; with its text.
        """

    def tell(self, what: str, *args: Any) -> None:  # Any: plain values
        """Tell the server something that needs no answer."""

    def free_memory(self) -> int:
        """How many bytes of shared memory for tensors are free."""


_current: Current[Link] = Current("link")


def set_link(link: Link) -> None:
    """Say who the server is, for this thread and what it starts; called by the worker."""
    _current.set(link)


def forget_link(link: Link) -> None:
    """The model is gone."""
    _current.forget(link)


def current_link() -> Link | None:
    """The server behind the model, or None in a plain program such as a unit test."""
    return _current.get()


def require_link(what: str) -> Link:
    """The server behind the model.

    Args:
        what: what needs it, for the message.

    Raises:
        TritonModelException: there is none.
    """
    link = current_link()
    if link is None:
        raise TritonModelException(f"{what} needs a server, and no server has started this process")
    return link
