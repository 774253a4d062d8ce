"""`pytriton.exceptions`."""

from __future__ import annotations

from tritonpy_sdk.functions.failures import UnrecoverableError


class PyTritonError(Exception):
    """Any of the errors below.

    Attributes:
        message: its text.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PyTritonValidationError(PyTritonError):
    """What was given cannot be."""


class PyTritonInvalidOperationError(PyTritonError):
    """Something is not possible now."""


class PyTritonBadParameterError(PyTritonError):
    """A parameter has a value that it cannot have."""


class PyTritonModelConfigError(PyTritonError):
    """A model cannot be configured so."""


class PyTritonUnrecoverableError(PyTritonError, UnrecoverableError):
    """The function cannot go on: its model is taken out of service."""


class PyTritonRuntimeError(PyTritonError):
    """Something has failed."""
