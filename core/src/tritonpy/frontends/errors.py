"""Exceptions as the errors that clients are told."""

from __future__ import annotations

import logging

from tritonpy.errors import Internal, TritonError


def client_error(exc: Exception, where: str, log: logging.Logger, request_id: str = "") -> TritonError:
    """The error for a client. An exception that was not made for clients is logged with its traceback.

    Args:
        exc: the exception.
        where: what was being done.
        log: the logger of the frontend.
        request_id: of the request, if it is about one.

    Returns:
        An error without a traceback, so that keeping it keeps no frame alive.
    """
    if isinstance(exc, TritonError):
        return exc.with_traceback(None)
    log.error("%s failed", where, exc_info=exc, extra={"request_id": request_id})
    return Internal(f"{type(exc).__name__}: {exc}")
