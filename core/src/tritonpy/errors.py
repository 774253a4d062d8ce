"""The one exception type that carries a Triton error code, and its eight codes.

Domain code raises these; each frontend owns one table from code to its protocol's status
(`frontends/http/connection/message.py`, `frontends/grpc/errors.py`). Nothing here knows HTTP or gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class ErrorCode(IntEnum):
    """The codes of `TRITONSERVER_Error_Code`, with the numbers of the C API."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    @property
    def text(self) -> str:
        """The words Triton prints for this code in logs and load errors, such as `Invalid argument`."""
        return _CODE_TEXT[self]


_CODE_TEXT = {
    ErrorCode.UNKNOWN: "Unknown",
    ErrorCode.INTERNAL: "Internal",
    ErrorCode.NOT_FOUND: "Not found",
    ErrorCode.INVALID_ARG: "Invalid argument",
    ErrorCode.UNAVAILABLE: "Unavailable",
    ErrorCode.UNSUPPORTED: "Unsupported",
    ErrorCode.ALREADY_EXISTS: "Already exists",
    ErrorCode.CANCELLED: "Cancelled",
}


class TritonError(Exception):
    """An error that reaches the client with a code and a text.

    Args:
        message: which thing, what came, what was expected and, where known, which knob to turn.
        code: one of the eight codes; subclasses below fix it.
    """

    code: ErrorCode = ErrorCode.INTERNAL

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code

    @staticmethod
    def with_code(number: int, message: str) -> TritonError:
        """The error of a code, as one of the subclasses below; UNKNOWN for a number that is none.

        Args:
            number: of `ErrorCode`, from elsewhere: a plugin in C, another process.
            message: its text.
        """
        return _KINDS.get(number, UnknownError)(message)

    def __str__(self) -> str:
        return self.message

    def described(self) -> str:
        """The form used in logs and load reasons: `Invalid argument: <message>`."""
        return f"{self.code.text}: {self.message}"


def exception_text(exc: BaseException) -> str:
    """Type and text of any exception on one line; for code that does not parse, its file and line as well."""
    if isinstance(exc, SyntaxError) and exc.filename:
        return f"{type(exc).__name__}: {exc.msg} ({exc.filename}, line {exc.lineno})"
    return f"{type(exc).__name__}: {exc}"


class UnknownError(TritonError):
    """A plugin or model failed without a code."""

    code = ErrorCode.UNKNOWN


class Internal(TritonError):
    """The server or a plugin failed in a way the client cannot mend."""

    code = ErrorCode.INTERNAL


class NotFound(TritonError):
    """A model, version, region or file that the caller named does not exist."""

    code = ErrorCode.NOT_FOUND


class InvalidArg(TritonError):
    """The request does not fit what the model or the protocol expects."""

    code = ErrorCode.INVALID_ARG


class Unavailable(TritonError):
    """Not now: queue full, timed out, loading, or shutting down."""

    code = ErrorCode.UNAVAILABLE


class Unsupported(TritonError):
    """Legal to ask, but this model or this build does not do it."""

    code = ErrorCode.UNSUPPORTED


class AlreadyExists(TritonError):
    """The name is taken."""

    code = ErrorCode.ALREADY_EXISTS


class Cancelled(TritonError):
    """The client no longer wants the answer."""

    code = ErrorCode.CANCELLED


_KINDS: Mapping[int, type[TritonError]] = {
    kind.code: kind
    for kind in (
        UnknownError,
        Internal,
        NotFound,
        InvalidArg,
        Unavailable,
        Unsupported,
        AlreadyExists,
        Cancelled,
    )
}
