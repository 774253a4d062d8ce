"""Errors and their codes."""

from __future__ import annotations

import pytest
from tritonpy.errors import ErrorCode, TritonError, UnknownError


@pytest.mark.parametrize("code", ErrorCode)
def test_each_code_has_an_error_of_its_own(code: ErrorCode) -> None:
    error = TritonError.with_code(code, "what is wrong")

    assert type(error) is not TritonError
    assert (error.code, error.message) == (code, "what is wrong")


@pytest.mark.parametrize("number", [-1, 8, 2**40])
def test_a_number_that_is_no_code_is_unknown(number: int) -> None:
    assert type(TritonError.with_code(number, "?")) is UnknownError
