"""The errors a model answers with, and the exception it raises."""

from __future__ import annotations

from enum import Enum, IntEnum

from ._arguments import text


class ErrorCode(IntEnum):
    """The codes of `TRITONSERVER_Error_Code`; models write `TritonError.NOT_FOUND`."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    __str__ = Enum.__str__


class TritonError(Exception):
    """An error that reaches the client with its code and exactly its text.

    Put it into a response: `InferenceResponse(error=TritonError("no such image", TritonError.NOT_FOUND))`. It
    may also be raised, and then answers every request of the batch (Triton's own cannot be raised).

    Args:
        message: what the client reads.
        code: one of the codes below.

    Raises:
        TypeError: the message is no text, or the code none of these.
    """

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INTERNAL) -> None:
        message = text("TritonError: message", message)
        if code not in tuple(ErrorCode):
            raise TypeError(f"TritonError: code must be one of TritonError's codes, got {code!r}")
        super().__init__(message)
        self._message = message
        self._code = ErrorCode(code)

    def code(self) -> ErrorCode:
        """The error's code."""
        return self._code

    def message(self) -> str:
        """The error's text."""
        return self._message


class TritonModelException(Exception):
    """The exception of this module's functions; a model raises it to fail a batch or its own start."""
