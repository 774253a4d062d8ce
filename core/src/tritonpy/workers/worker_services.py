"""Services that models in workers may ask of the server besides inference, such as metrics."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tritonpy.errors import Internal
from tritonpy.handles import MemoryUsage

_log = logging.getLogger("tritonpy.worker")


@dataclass(slots=True, eq=False)
class Caller:
    """One worker that asks; a restarted worker is another caller.

    Attributes:
        model: the name of its model.
        version: the model's version.
        instance: the name of its instance, or of the model while it has none.
        is_loading: its model, or that instance, does not take requests yet.
        memory_usage: memory that it has reported to use.
    """

    model: str
    version: int
    instance: str
    is_loading: bool = True
    memory_usage: Sequence[MemoryUsage] = ()


class Subject(Protocol):
    """Answers the questions with one prefix; on the loop."""

    async def ask(self, caller: Caller, what: str, args: tuple[Any, ...]) -> Any:  # Any: plain values
        """Answer a question.

        Args:
            caller: the worker that asks.
            what: the question, without the prefix.
            args: what belongs to it.

        Raises:
            TritonError: refused; the model gets the text.
        """

    def tell(self, caller: Caller, what: str, args: tuple[Any, ...]) -> None:  # Any: plain values
        """Take a message that needs no answer; a bad one is logged, never raised."""

    def caller_gone(self, caller: Caller) -> None:
        """The worker has ended: drop what it owned."""


class Services:
    """Routes workers' questions by their prefix: `metrics.value` goes to the subject `metrics` as `value`.

    Asked as a `Subject` is.
    """

    def __init__(self) -> None:
        self._subjects: dict[str, Subject] = {}

    def add(self, prefix: str, subject: Subject) -> None:
        """Route questions with `prefix` to this subject from now on."""
        self._subjects[prefix] = subject

    async def ask(self, caller: Caller, what: str, args: tuple[Any, ...]) -> Any:  # Any: plain values
        prefix, _, rest = what.partition(".")
        subject = self._subjects.get(prefix)
        if subject is None:
            raise Internal(f"this server does not answer '{what}'; it knows {sorted(self._subjects)}")
        return await subject.ask(caller, rest, args)

    def tell(self, caller: Caller, what: str, args: tuple[Any, ...]) -> None:  # Any: plain values
        prefix, _, rest = what.partition(".")
        subject = self._subjects.get(prefix)
        if subject is None:
            _log.warning("instance '%s' told of '%s', which this server does not know", caller.instance, what)
            return
        subject.tell(caller, rest, args)

    def caller_gone(self, caller: Caller) -> None:
        for subject in self._subjects.values():
            subject.caller_gone(caller)
