"""What can go wrong for a client of a model."""

from __future__ import annotations


class ClientError(Exception):
    """Any of the errors below.

    Attributes:
        message: its text.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ClientValueError(ClientError):
    """A call was given what it cannot use."""


class InvalidUrlError(ClientValueError):
    """A URL cannot be that of a server."""


class ClientTimeoutError(ClientError):
    """The server, the model or an answer did not come in time."""


class ModelUnavailableError(ClientError):
    """The server does not serve such a model, or it is not ready."""


class ClientClosedError(ClientError):
    """The client was closed before."""


class BatchingUnsupportedError(ClientError):
    """A batch was given for a model that does not batch."""


class InferenceServerError(ClientError):
    """The server or the model has refused or failed a request.

    Attributes:
        status: of the protocol, such as `400` or `StatusCode.INTERNAL`; "" where there is none.
    """

    def __init__(self, message: str, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class QueueFullError(ClientError):
    """So many requests wait in a client that it takes no more."""
