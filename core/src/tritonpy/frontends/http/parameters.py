"""Parameters of requests and responses as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import orjson

from tritonpy.errors import Internal, InvalidArg
from tritonpy.frontends.http.codec.json_body import Json, boolean, string, text, unsigned
from tritonpy.frontends.http.codec.json_data import data_json
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest, checked_correlation_id
from tritonpy.response import ParameterValue, plain_parameter
from tritonpy.tensor import Tensor

_LEAST_INT64, _MOST_INT64 = -(2**63), 2**63 - 1
_MOST_UINT64 = 2**64 - 1


def apply_parameters(request: InferRequest, parameters: Json) -> bool:
    """Put the parameters of an inference request where they belong; returns `binary_data_output`.

    Raises:
        TritonError: a parameter that has a meaning is of the wrong type, a name is reserved, or a value can
            be no parameter.
    """
    if not isinstance(parameters, dict):
        raise Internal("failed to get request params.: attempt to get members for non-object")
    custom: dict[str, ParameterValue] = {}
    binary_by_default = False
    for key, value in parameters.items():
        if key == "sequence_id":
            is_number = type(value) is int and 0 <= value <= _MOST_UINT64
            request.correlation_id = value if is_number else checked_correlation_id(string(value, key))
        elif key == "sequence_start":
            request.flags |= SEQUENCE_START if boolean(value, key) else 0
        elif key == "sequence_end":
            request.flags |= SEQUENCE_END if boolean(value, key) else 0
        elif key == "priority":
            request.priority = unsigned(value, key)
        elif key == "timeout":
            request.timeout_us = unsigned(value, key)
        elif key == "binary_data_output":
            binary_by_default = boolean(value, key)
        elif key.startswith("triton_"):
            raise InvalidArg(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
                "specified."
            )
        else:
            custom[text(key, key)] = custom_parameter(key, value)
    request.parameters = custom
    return binary_by_default


def custom_parameter(key: str, value: Json) -> ParameterValue:
    """The value of a parameter without a meaning to the server; integers beyond 64 bits become floats.

    Raises:
        InvalidArg: it can be no parameter.
    """
    if isinstance(value, str):
        return text(value, key)
    if isinstance(value, int) and not _LEAST_INT64 <= value <= _MOST_INT64:
        return float(value)
    if isinstance(value, bool | int | float):
        return value
    raise InvalidArg(f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'.")


def response_parameters(parameters: Mapping[str, ParameterValue]) -> dict[str, Json]:
    """The parameters of a response, ready to be written.

    Raises:
        InvalidArg: a value can be no parameter.
    """
    return {key: _written(plain_parameter(key, value)) for key, value in parameters.items()}


def _written(value: ParameterValue) -> Json:
    if isinstance(value, float):  # NaN and Infinity, and exponents, are written as in tensors
        return orjson.Fragment(data_json(Tensor.from_numpy("", np.array([value])))[1:-1])
    return value
