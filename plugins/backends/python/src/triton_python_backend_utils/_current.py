"""The context of the model that runs: its link to the server, its directory, the place of its log lines."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Current(Generic[Value]):
    """A value that each model sets once, in the thread or context it runs in.

    A process usually holds one model. One that holds several, such as a server whose models run on its
    threads, gives each thread the value that was set there; threads that a model has started itself, which
    have no context of its, take the latest.

    Args:
        name: of the value, for debuggers.
    """

    def __init__(self, name: str) -> None:
        self._own: ContextVar[Value | None] = ContextVar(f"triton_python_backend_{name}", default=None)
        self._latest: list[Value] = []

    def set(self, value: Value) -> None:
        """Use `value` here from now on, and wherever nothing else was set."""
        self.forget(value)
        self._own.set(value)
        self._latest.append(value)

    def forget(self, value: Value) -> None:
        """The model is gone: where its value was the latest, the one before it is again."""
        if value in self._latest:
            self._latest.remove(value)
        if self._own.get() is value:
            self._own.set(None)

    def get(self) -> Value | None:
        """The value set here, or else the latest, or else None."""
        own = self._own.get()
        return own if own is not None else (self._latest[-1] if self._latest else None)
