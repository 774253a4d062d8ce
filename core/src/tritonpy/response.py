"""Responses of a backend: outputs or an error."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Self

import numpy as np

from tritonpy.errors import InvalidArg, TritonError
from tritonpy.tensor import Array, Tensor

ParameterValue = bool | int | float | str
"""What a parameter of a request or response may be."""

_LEAST_INTEGER = -(2**63)
_MOST_INTEGER = 2**64 - 1


class InferResponse:
    """One answer to one request.

    Attributes:
        outputs: tensors in the order the model produced them.
        parameters: custom response parameters, shown to the client.
        error: when set, the outputs are ignored and the client gets this code and text.
    """

    __slots__ = ("error", "outputs", "parameters")

    def __init__(
        self,
        outputs: Iterable[Tensor] = (),
        error: TritonError | None = None,
        parameters: dict[str, ParameterValue] | None = None,
    ) -> None:
        self.outputs = list(outputs)
        self.error = error
        self.parameters = parameters or {}

    def add(self, name: str, array: Array | Tensor, datatype: str | None = None) -> Self:
        """Append an output and return this response, so that calls can be chained.

        Args:
            name: the output's name in the model configuration.
            array: the elements; not copied, so do not write to it afterwards. A `Tensor` is renamed to `name`
                and handed on without looking at its bytes.
            datatype: needed for BF16 only (see `Tensor.from_numpy`).
        """
        if isinstance(array, Tensor):
            self.outputs.append(array.renamed(name))
        else:
            self.outputs.append(Tensor.from_numpy(name, array, datatype))
        return self

    def keep(self, names: Container[str]) -> None:
        """Drop the outputs that are not among `names`."""
        for output in self.outputs:
            if output.name not in names:
                self.outputs = [kept for kept in self.outputs if kept.name in names]
                return

    def __repr__(self) -> str:
        return f"InferResponse({self.error!r})" if self.error else f"InferResponse({self.outputs})"


def plain_parameter(key: str, value: object) -> ParameterValue:
    """A response parameter as a Python value that every protocol can carry; numpy's scalars are taken too.

    Raises:
        InvalidArg: it is of another type, or an integer of more than 64 bits.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        kind = type(value).__name__
        raise InvalidArg(f"response parameter '{key}' is {kind}; expected bool, int, float or str")
    if isinstance(value, int) and not _LEAST_INTEGER <= value <= _MOST_INTEGER:
        raise InvalidArg(f"response parameter '{key}' is {value}; expected an integer of at most 64 bits")
    return value
