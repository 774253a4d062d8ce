"""Parameters of requests and responses as JSON, by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from tritonpy.errors import InvalidArg, Unsupported
from tritonpy.frontends.http.parameters import apply_parameters, custom_parameter, response_parameters
from tritonpy.request import InferRequest


def applied(parameters: Any) -> InferRequest:
    request = InferRequest("m", {})
    apply_parameters(request, parameters)
    return request


@pytest.mark.parametrize(
    ("parameters", "attribute", "value"),
    [
        ({"sequence_id": 2**64 - 1}, "correlation_id", 2**64 - 1),
        ({"sequence_id": "one"}, "correlation_id", "one"),
        ({"sequence_id": "é" * 64}, "correlation_id", "é" * 64),
        ({"sequence_start": True}, "flags", 1),
        ({"sequence_start": False, "sequence_end": True}, "flags", 2),
        ({"sequence_start": True, "sequence_end": True}, "flags", 3),
        ({"priority": 2**64 - 1}, "priority", 2**64 - 1),
        ({"timeout": 2**64 - 1}, "timeout_us", 2**64 - 1),
    ],
    ids=str,
)
def test_parameters_with_a_meaning_are_no_custom_ones(parameters: Any, attribute: str, value: object) -> None:
    request = applied(parameters)

    assert getattr(request, attribute) == value
    assert request.parameters == {}


def test_whether_outputs_are_binary_is_told_apart() -> None:
    request = InferRequest("m", {})

    assert apply_parameters(request, {"binary_data_output": True, "mine": 1}) is True
    assert request.parameters == {"mine": 1}


@pytest.mark.parametrize("text", ["x" * 129, "é" * 65])
def test_a_text_for_a_sequence_has_at_most_128_bytes(text: str) -> None:
    with pytest.raises(Unsupported, match="string correlation ID cannot be longer than 128 characters"):
        applied({"sequence_id": text})


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (True, True),
        ("text", "text"),
        (0.5, 0.5),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, float(2**63)),
        (-(2**63) - 1, float(-(2**63))),
    ],
    ids=str,
)
def test_integers_beyond_64_bits_become_floats_and_nothing_else_changes(value: Any, seen: object) -> None:
    found = custom_parameter("key", value)

    assert (found, type(found)) == (seen, type(seen))


@pytest.mark.parametrize("value", [None, [], {}])
def test_what_can_be_no_parameter_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidArg, match="parameter 'key' has invalid type"):
        custom_parameter("key", value)


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (True, b"true"),
        (-(2**63), b"-9223372036854775808"),
        (2**64 - 1, b"18446744073709551615"),
        (np.int64(3), b"3"),
        (np.float32(0.5), b"0.5"),
        (np.bool_(True), b"true"),
        (float("nan"), b"NaN"),
        (float("-inf"), b"-Infinity"),
        (1e300, b"1e300"),
        ("é\0", '"é\\u0000"'.encode()),
    ],
    ids=repr,
)
def test_a_response_s_parameter_is_written_as_json(value: Any, json: bytes) -> None:
    assert orjson.dumps(response_parameters({"key": value})) == b'{"key":' + json + b"}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**64, "response parameter 'key' is 18446744073709551616; expected an integer of at most 64 bits"),
        (None, "response parameter 'key' is NoneType; expected bool, int, float or str"),
        (np.zeros(2), "response parameter 'key' is ndarray; expected bool, int, float or str"),
    ],
    ids=["too large", "None", "an array"],
)
def test_a_response_s_parameter_that_cannot_travel_is_refused_by_name(value: Any, text: str) -> None:
    with pytest.raises(InvalidArg) as refused:
        response_parameters({"key": value})

    assert refused.value.message == text
