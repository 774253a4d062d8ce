"""The answer of a model to one request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Union

from ._arguments import text
from ._errors import TritonError, TritonModelException
from ._strings import printable
from ._tensor import Tensor

ParameterValue = Union[bool, int, float, str]  # noqa: UP007 (evaluated, also by Python 3.9)


class InferenceResponse:
    """Output tensors, or an error.

    Args:
        output_tensors: outputs whose names the configuration does not know are dropped.
        error: when given, the client gets this error and no outputs.
        parameters: custom parameters for the client.

    Raises:
        TypeError: an output is no `Tensor`, or the error is no `TritonError`.
        TritonModelException: an output is None, or a parameter is of a type that cannot travel.
    """

    __slots__ = ("_error", "_outputs", "_parameters")

    def __init__(
        self,
        output_tensors: Iterable[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        outputs = list(output_tensors)
        for tensor in outputs:
            if not isinstance(tensor, Tensor):
                if tensor is None:
                    raise TritonModelException("Output tensor for inference response should not be empty.")
                raise TypeError(
                    f"InferenceResponse: output_tensors must hold Tensors, got {type(tensor).__name__}"
                )
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"InferenceResponse: error must be a TritonError, got {type(error).__name__}")
        self._outputs = outputs
        self._error = error
        self._parameters = None if parameters is None else checked_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        """The outputs, in the order given."""
        return list(self._outputs)

    def has_error(self) -> bool:
        """True if the response carries an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error, or None."""
        return self._error

    def parameters(self) -> str:
        """The custom parameters as JSON text; `{}` when there are none."""
        return json.dumps(self._parameters or {})

    def __repr__(self) -> str:
        return f"InferenceResponse({self._error or self._outputs!r})"


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The output called `name`, or None when the response has none or carries an error."""
    if inference_response._error is not None:
        return None
    for tensor in inference_response._outputs:
        if tensor._name == name:
            return tensor
    return None


def checked_parameters(parameters: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    """A copy of custom parameters, of which every key and value can travel.

    Raises:
        TritonModelException: a key or a value cannot.
    """
    if not isinstance(parameters, Mapping):
        raise TritonModelException(f"Expect parameters to be a dict, found type {type(parameters)}")
    checked: dict[str, ParameterValue] = {}
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        for kind in (bool, int, float, str):
            if isinstance(value, kind):
                break
        else:
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/float/str, found type {type(value)}"
            )
        if kind is int and not -(2**63) <= value < 2**64:  # type: ignore[operator]  # it is one
            raise TritonModelException(
                f"Expect parameters values to be integers of at most 64 bits, found {value} for '{key}'"
            )
        # Plain values travel; members of enumerations and numpy's, which are these too, do not.
        checked[text("a key", key)] = printable(text(key, value)) if kind is str else kind(value)
    return checked
