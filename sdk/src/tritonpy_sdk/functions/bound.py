"""Functions that are bound as models, and their configurations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject

from tritonpy_sdk.functions.config import ModelConfig
from tritonpy_sdk.functions.sequences import SequenceBatcher
from tritonpy_sdk.functions.tensors import Tensor, named
from tritonpy_sdk.functions.wrapping import Function

BACKEND = "function"
"""The backend's name in configurations of bound functions."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Bound:
    """A function, or one for each instance, that is served as a model.

    Attributes:
        name: of the model.
        version: its number.
        functions: of the instances; a class is called without arguments by each, and then its objects are.
        inputs, outputs: with names.
        settings: as given.
        is_strict: outputs are compared with what was bound.
        is_decoupled: a request has any number of responses.
        is_writable: the functions may write to their inputs.
        has_fresh_outputs: the functions leave arrays alone that they have returned.
    """

    name: str
    version: int
    functions: Sequence[Function]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    settings: ModelConfig
    is_strict: bool
    is_decoupled: bool
    is_writable: bool = False
    has_fresh_outputs: bool = False

    def config(self) -> JsonObject:
        """The configuration of the model, in the shape of `GET …/config`."""
        limiter = self.settings.rate_limiter
        limits: JsonObject = {} if limiter is None else limiter.config()
        config: JsonObject = {
            "name": self.name,
            "backend": BACKEND,
            "input": [tensor.config() for tensor in self.inputs],
            "output": [tensor.config() for tensor in self.outputs],
            "instance_group": [{"kind": "KIND_CPU", "count": len(self.functions), **limits}],
            "version_policy": {"specific": {"versions": [self.version]}},
        }
        if self.is_decoupled:
            config["model_transaction_policy"] = {"decoupled": True}
        return config | self.settings.config()

    @property
    def all_outputs(self) -> tuple[Tensor, ...]:
        """What the functions return: their outputs, and behind them the states that are none of those."""
        names = {tensor.name for tensor in self.outputs}
        batcher = self.settings.batcher
        states = batcher.states if isinstance(batcher, SequenceBatcher) else ()
        return (*self.outputs, *(state.output for state in states if state.output_name not in names))

    @property
    def is_iterative(self) -> bool:
        """True if a request may be executed many times."""
        return bool(self.config().get("sequence_batching", {}).get("iterative_sequence"))


def bound(
    name: str,
    function: Function | Sequence[Function],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    version: int = 1,
    config: ModelConfig | None = None,
    strict: bool = False,
    writable: bool = False,
    fresh_outputs: bool = False,
) -> Bound:
    """Check what is to be served.

    Args:
        name: of the model: letters, digits, `.`, `_` and `-`.
        function: or several, each for an instance of its own; classes count as functions, see `Bound`.
        inputs: of the function.
        outputs: of the function.
        version: of the model.
        config: settings.
        strict: compare outputs with what is bound.
        writable: the functions may write to their inputs.
        fresh_outputs: they leave arrays alone that they have returned, which are handed on without a copy.

    Raises:
        InvalidArg: what is given cannot be served; its text says why.
    """
    if fault := name_fault(name):
        raise InvalidArg(fault)
    if version < 1:
        raise InvalidArg(f"model '{name}': version: got {version}, expected 1 or more")
    settings = config or ModelConfig()
    several = isinstance(function, Sequence)
    functions = list(function) if isinstance(function, Sequence) else [function] * settings.instances
    if not functions or (several and settings.instances not in (1, len(functions))):
        raise InvalidArg(
            f"model '{name}': got {len(functions)} functions and instances={settings.instances}, expected at "
            "least one function, and one for each instance"
        )
    for each in functions:
        if not callable(each):
            raise InvalidArg(
                f"model '{name}': got {type(each).__name__}, expected a function or another callable"
            )
    streams = {_is_stream(each) for each in functions}
    decoupled = settings.decoupled if settings.decoupled is not None else True in streams
    if True in streams and not decoupled:
        raise InvalidArg(
            f"model '{name}': a generator sends any number of responses; leave out decoupled=False, or "
            "return instead of yielding"
        )
    named_inputs = named(inputs, "INPUT")
    _check_added_inputs(name, named_inputs, settings)
    return Bound(
        name,
        version,
        functions,
        named_inputs,
        named(outputs, "OUTPUT"),
        settings,
        strict,
        decoupled,
        writable,
        fresh_outputs,
    )


def _check_added_inputs(name: str, inputs: Sequence[Tensor], settings: ModelConfig) -> None:
    """What the server adds to the inputs of a function has names of its own."""
    if not isinstance(settings.batcher, SequenceBatcher):
        return
    seen = {str(tensor.name): "input" for tensor in inputs}
    added = [("control", control.name) for control in settings.batcher.controls]
    added += [("state", state.input_name) for state in settings.batcher.states]
    for kind, each in added:
        if each in seen:
            raise InvalidArg(
                f"model '{name}': got {kind} '{each}' and an {seen[each]} of that name, expected different "
                "names; what the server adds is not among the inputs that are bound"
            )
        seen[each] = f"input of a {kind}"


def name_fault(name: str) -> str:
    """The reason why a model cannot have this name; "" if it can."""
    if _NAME.fullmatch(name):
        return ""
    return (
        f"model name: got '{name}', expected letters, digits, '.', '_' and '-', the first of them "
        "a letter or digit"
    )


def called(function: Function) -> Function:
    """The function that is called where an object or a class is bound: its `__call__`."""
    if inspect.isroutine(function):
        return function
    kind = function if isinstance(function, type) else type(function)
    method: Callable[..., Any] = kind.__call__
    return method if inspect.isfunction(method) else function


def _is_stream(function: Function) -> bool:
    found = called(function)
    return inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found)
