"""Calls of one interpreter: inputs in, outputs out, tensors resized when shapes change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from tritonpy.plugin import Array, InvalidArg

from tritonpy_backend_litert.framework import lacks_operators
from tritonpy_backend_litert.signature import Interpreter, Shape, Signature, TensorInfo


class Call(Protocol):
    """One way to call a model; used by one thread at a time."""

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Compute outputs, in the order in which they are asked for.

        Args:
            feeds: one array for each input.
            outputs: names.

        Raises:
            InvalidArg: an array has a shape that the model does not take.
            RuntimeError, ValueError: LiteRT's.
        """


def call_of(interpreter: Interpreter, signature: Signature) -> Call:
    """The way to call a model by a signature."""
    if signature.is_first_graph:
        return _FirstGraph(interpreter, signature)
    return _FurtherGraph(interpreter, signature)


class _FirstGraph:
    """Tensors are set and read one by one: a fifth of the time that a signature's runner takes."""

    def __init__(self, interpreter: Interpreter, signature: Signature) -> None:
        self._interpreter = interpreter
        self._inputs = signature.inputs
        self._outputs = {name: info.index for name, info in signature.outputs.items()}
        self._shapes: dict[str, Shape] = {}  # of the inputs as they are allocated; {} before the first call
        try:
            interpreter.allocate_tensors()
        except RuntimeError as exc:
            # Dimensions of any size are of size 1 here, which may be too few for a model.
            if lacks_operators(exc) or not any(-1 in info.shape for info in self._inputs.values()):
                raise

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """See `Call`."""
        shapes = {name: array.shape for name, array in feeds.items()}
        if shapes != self._shapes:
            self._allocate(shapes)
        interpreter = self._interpreter
        for name, array in feeds.items():
            interpreter.set_tensor(self._inputs[name].index, array)
        interpreter.invoke()
        return [np.asarray(interpreter.get_tensor(self._outputs[name])) for name in outputs]

    def _allocate(self, shapes: dict[str, Shape]) -> None:
        for name, shape in shapes.items():
            check_shape(self._inputs[name], shape)
        self._shapes = {}  # if this fails, the next call begins anew
        for name, shape in shapes.items():
            # Not `strict`: a tensor of strings forgets, once it is set, which of its dimensions may change.
            self._interpreter.resize_tensor_input(self._inputs[name].index, shape)
        self._interpreter.allocate_tensors()
        self._shapes = shapes


class _FurtherGraph:
    """A signature with a graph of its own, to whose tensors there is no other way than its runner."""

    def __init__(self, interpreter: Interpreter, signature: Signature) -> None:
        self._inputs = signature.inputs
        self._runner: Any = interpreter.get_signature_runner(signature.key)  # Any: LiteRT is untyped

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """See `Call`."""
        for name, array in feeds.items():
            check_shape(self._inputs[name], array.shape)
        results = self._runner(**feeds)
        return [np.asarray(results[name]) for name in outputs]


def check_shape(info: TensorInfo, shape: Shape) -> None:
    """Compare the shape of an array with what the model takes: LiteRT resizes also what has one size.

    Raises:
        InvalidArg: they do not fit.
    """
    if len(shape) != len(info.shape) or any(
        want not in (-1, got) for want, got in zip(info.shape, shape, strict=True)
    ):
        raise InvalidArg(
            f"input '{info.name}' has shape [{','.join(map(str, shape))}], the model takes "
            f"[{','.join(map(str, info.shape))}]"
        )
