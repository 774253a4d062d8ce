"""The link to the server behind a model: calls of other models, and services such as metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ._current import Current
from ._errors import TritonModelException
from ._response import InferenceResponse
from ._tensor import Tensor

Wire = tuple[Any, ...]
"""A request as it travels: slot, id, flags, correlation id, timeout in microseconds, priority, parameters,
requested outputs, inputs; of a traced request also the number and the context of its trace. Any: each has its
own type."""


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

    def call(self, model: tuple[str, int], wire: Wire, inputs: Sequence[Tensor], decoupled: bool) -> Call:
        """Start a call of another model.

        Args:
            model: its name and version, -1 for the newest.
            wire: the request, but for its inputs.
            inputs: the request's inputs.
            decoupled: any number of responses will do.
        """

    def ask(self, what: str, *args: Any) -> Any:  # Any: plain values, each question has its own
        """Ask the server and wait for the answer.

        Raises:
            TritonModelException: the server refuses; with its text.
        """

    def tell(self, what: str, *args: Any) -> None:  # Any: plain values
        """Tell the server something that needs no answer."""

    def free_memory(self) -> int:
        """The free bytes of shared memory for tensors."""


_current: Current[Link] = Current("link")


def set_link(link: Link) -> None:
    """Set the server for this thread and those it starts; called by the worker."""
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
