"""The model that a running call of a function is for."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.server_link import ServerLink

from tritonpy_sdk.functions.tensors import Tensor


@dataclass(frozen=True, slots=True)
class FunctionContext:
    """The model that a function is called for.

    Attributes:
        name: of the model.
        config: its configuration.
        inputs: as bound, with names.
        outputs: as bound, with names.
        instance: the index of the instance.
        instance_name: its name.
        server: the way to other models, for calls that the instance waits for; None in tests of functions.
    """

    name: str
    config: JsonObject
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    instance: int
    instance_name: str = ""
    server: ServerLink | None = None


_context: ContextVar[FunctionContext | None] = ContextVar("tritonpy_function", default=None)


def current_context() -> FunctionContext:
    """The model that the running call is for.

    Raises:
        InvalidArg: no server calls a function here.
    """
    found = _context.get()
    if found is None:
        raise InvalidArg("no bound function is being called here; it is called through a server")
    return found


def is_called_by_server() -> bool:
    """True if a server calls a function here; False in tests that call it themselves."""
    return _context.get() is not None


def enter_context(context: FunctionContext) -> None:
    """Have the calls of this thread be for a model; for servers."""
    _context.set(context)
