"""From exceptions to the code and the text that a call ends with."""

from __future__ import annotations

import logging

from tritonpy.errors import TritonError, Unavailable
from tritonpy.frontends.errors import client_error
from tritonpy.frontends.grpc.status import STATUS, Status

_log = logging.getLogger("tritonpy.grpc")

_MOST_DETAILS_BYTES = 6000
"""Status details travel as an HTTP/2 header, of which gRPC clients take about 8 KiB and else see nothing but
RESOURCE_EXHAUSTED."""
_MOST_BYTES_PER_CHARACTER = 12  # four bytes of UTF-8, percent-encoded


class HungUp(Exception):
    """The client of a call is gone, and the call had not been told so yet."""


def as_triton_error(exc: Exception, where: str, request_id: str = "") -> TritonError:
    """The error that the client gets for an exception; one not meant for it is logged with its traceback.

    Args:
        exc: what was raised.
        where: what was being done, for the log.
        request_id: of the request, if it is about one.

    Returns:
        An error without a traceback, so that keeping it keeps no frame alive.
    """
    if isinstance(exc, HungUp):
        about = {"request_id": request_id}
        _log.debug("%s: the client has hung up, nothing more can be sent to it", where, extra=about)
        return Unavailable(f"{where}: nothing more can be sent to the client")
    return client_error(exc, where, _log, request_id)


def status_of(error: TritonError) -> tuple[Status, str]:
    """The code and the text that a call ends with; a text that no client would accept is cut."""
    message = error.message or error.code.text
    if len(message) * _MOST_BYTES_PER_CHARACTER > _MOST_DETAILS_BYTES or not message.isascii():
        message = _clipped(message.encode("utf-8", "replace").decode())  # lone surrogates cannot travel
    return STATUS[error.code], message


def _clipped(message: str) -> str:
    size = 0
    for index, character in enumerate(message):
        size += 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if size > _MOST_DETAILS_BYTES:
            return f"{message[:index]}… ({len(message) - index} more characters)"
    return message
