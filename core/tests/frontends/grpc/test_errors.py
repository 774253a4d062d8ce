from __future__ import annotations

import logging

import pytest
from tritonpy.errors import ErrorCode, Internal, InvalidArg, NotFound, TritonError
from tritonpy.frontends.grpc.errors import HungUp, as_triton_error, status_of
from tritonpy.frontends.grpc.status import STATUS, Status


def test_every_code_has_a_status_of_its_own() -> None:
    assert set(STATUS) == set(ErrorCode)
    assert len(set(STATUS.values())) == len(ErrorCode)


@pytest.mark.parametrize("text", ["short", "x" * 5000, "model 'é' 100 %", "two\nlines"])
def test_text_that_fits_is_not_touched(text: str) -> None:
    assert status_of(InvalidArg(text)) == (Status.INVALID_ARGUMENT, text)


@pytest.mark.parametrize("character", ["x", "%", "é", "\U0001f600"])
def test_text_too_long_for_a_header_is_cut_and_says_so(character: str) -> None:
    _, details = status_of(InvalidArg(character * 20_000))

    kept = details.index("…")
    assert details[:kept] == character * kept
    assert details[kept:] == f"… ({20_000 - kept} more characters)"
    assert kept * (1 if character == "x" else 3 * len(character.encode())) <= 6000


def test_text_that_is_no_unicode_can_be_sent() -> None:
    status_of(InvalidArg("file \udcff"))[1].encode()


def test_error_without_a_text_says_its_code() -> None:
    assert status_of(NotFound("")) == (Status.NOT_FOUND, "Not found")


def test_meant_errors_pass_without_their_traceback() -> None:
    error = NotFound("gone")
    try:
        raise error
    except TritonError as exc:
        passed = as_triton_error(exc, "here")

    assert passed is error
    assert passed.__traceback__ is None


def test_other_exceptions_are_logged_with_their_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise KeyError("oops")
    except KeyError as exc:
        with caplog.at_level(logging.ERROR, "tritonpy.grpc"):
            error = as_triton_error(exc, "doing this")

    assert type(error) is Internal
    assert error.message == "KeyError: 'oops'"
    assert "doing this failed" in caplog.text
    assert "Traceback" in caplog.text


def test_a_client_that_is_gone_is_no_failure_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    error = as_triton_error(HungUp(), "ModelStreamInfer")

    assert status_of(error)[0] is Status.UNAVAILABLE
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []
