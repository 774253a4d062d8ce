"""Arrays on their way into a Python model under test, and out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tritonpy.dataplane import TensorSpec
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.response import ParameterValue
from tritonpy.tensor import Array, Tensor

Inputs = Mapping[str, Any]
"""What a request carries, by name. Any: arrays, numbers, texts, and lists of these."""

WireTensor = tuple[str, str, tuple[int, ...], bytes]
"""Name, datatype, shape, elements."""

WireAnswer = tuple[Sequence[WireTensor], "Mapping[str, ParameterValue] | None", "tuple[int, str] | None"]
"""Outputs, parameters, error: a response as a worker sends it, without shared memory."""

# By kind of what a list holds: the kinds of datatypes it may become.
_MAY_BECOME = {"b": "b", "i": "iuf", "u": "iuf", "f": "f"}


class ModelWarning(UserWarning):
    """A server would let this pass without a word, and the model's clients would wonder."""


class Outputs(dict[str, Array]):
    """One response: the outputs by name, or an error.

    Numbers come as arrays of their own, which may be written to; BYTES as arrays of `bytes` objects, BF16 as
    `uint16` with the raw bits. Asking a response that carries an error for an output raises the error.

    Attributes:
        parameters: the response's custom parameters.
        error: the model's `TritonError`, or the exception that ended `execute`; None where there are outputs.
    """

    def __init__(
        self,
        outputs: Mapping[str, Array] | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
        error: BaseException | None = None,
    ) -> None:
        super().__init__(outputs or {})
        self.parameters = dict(parameters or {})
        self.error = error

    def __missing__(self, name: str) -> Array:
        if self.error is not None:
            raise self.error
        raise KeyError(f"the response has no output '{name}', only {list(self)}")

    def __repr__(self) -> str:
        return f"Outputs({self.error!r})" if self.error is not None else f"Outputs({dict(self)})"


def to_tensor(name: str, value: Any, spec: TensorSpec | None) -> Tensor:  # Any: see `Inputs`
    """Make an input.

    An array is taken as it is, so that a wrong dtype is found; a list, a number or a text becomes what the
    configuration says.

    Args:
        name: the input's name.
        value: an array or what numpy makes one of.
        spec: what the model expects; None for an input it does not know.

    Raises:
        InvalidArg: no datatype fits, or the values do not fit the configured one.
    """
    expected = spec.datatype if spec is not None else ""
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value, order="C")
        if array.dtype.name == "bfloat16":
            return Tensor.from_numpy(name, array.view(np.uint16), "BF16")
        is_bits = expected == "BF16" and array.dtype == np.uint16
        return Tensor.from_numpy(name, array, "BF16" if is_bits else None)
    if expected == "BF16":
        raise InvalidArg(
            f"input '{name}': got {type(value).__name__} for BF16, expected an array of ml_dtypes.bfloat16, "
            f"or one of uint16 with the raw bits"
        )
    wanted = DATATYPES[expected].numpy if expected else None
    try:
        array = np.asarray(value, object if expected == "BYTES" else None)
        if wanted is not None and array.size and not _may_become(array, wanted):
            raise ValueError("these are none")
        return Tensor.from_numpy(name, np.asarray(value, wanted))
    except (OverflowError, ValueError) as exc:
        what = f"values of {expected}" if expected else "values of one shape and type"
        raise InvalidArg(f"input '{name}': got {value!r}, expected {what}: {exc}") from exc


def _may_become(array: Array, wanted: np.dtype[np.generic]) -> bool:
    """True if the items of a list can be elements of a datatype; numpy itself would cut off fractions."""
    if wanted.kind == "O":
        return all(isinstance(element, str | bytes) for element in array.flat)
    return wanted.kind in _MAY_BECOME.get(array.dtype.kind, "")


def to_outputs(answer: WireAnswer) -> Outputs:
    """A response without error as arrays of its own."""
    outputs, parameters, _ = answer
    return Outputs(
        {name: Tensor(name, kind, shape, bytearray(data)).numpy() for name, kind, shape, data in outputs},
        parameters,
    )


def misfits(
    answer: WireAnswer, specs: Mapping[str, TensorSpec], batch_size: int, model_name: str, *, batches: bool
) -> list[str]:
    """The outputs that do not fit the configuration, which a server passes on.

    Args:
        answer: what the model gave.
        specs: the configured outputs.
        batch_size: rows of the request.
        model_name: for the texts.
        batches: outputs have a batch dimension, of that many rows.
    """
    found = []
    for name, datatype, shape, _ in answer[0]:
        spec = specs[name]
        expected = (batch_size, *spec.shape[1:]) if batches else spec.shape
        fits = len(shape) == len(expected) and all(map(_matches, expected, shape))
        if datatype != spec.datatype or not fits:
            found.append(
                f"output '{name}' of model '{model_name}': got {datatype} {list(shape)}, but the "
                f"configuration says {spec.datatype} {list(expected)}; a server passes it on as it is"
            )
    return found


def _matches(expected: int, got: int) -> bool:
    return expected in (-1, got)
