"""Clients that hang up while something is sent to them, which is no error of the server.

grpcio cancels the handler of a call once it hears that the client is gone. Often it hears before that what
was on its way has failed. Answers of unary calls and the ends of streams are sent by grpcio itself, after the
handler has returned: that they fail is an error with a traceback in its log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container

import grpc

_log = logging.getLogger("tritonpy.grpc")
_grpc_log = logging.getLogger("grpc._cython.cygrpc")

_METHOD = re.compile(r"\[(/[^\]]+)\]")


class HangUpFilter:
    """Replaces what grpcio logs when something cannot be sent by a verbose line; a filter of `logging`.

    Args:
        methods: full names of the server's calls; lines about other servers in this process stay.
    """

    def __init__(self, methods: Container[str]) -> None:
        self._methods = methods

    def install(self) -> None:
        """Look at what grpcio logs from now on."""
        _grpc_log.addFilter(self)

    def remove(self) -> None:
        """Look at it no more."""
        _grpc_log.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by `logging`: whether a line of grpcio is written."""
        if record.exc_info is None or not isinstance(record.exc_info[1], grpc.aio.InternalError):
            return True
        method = _METHOD.search(record.getMessage())
        if method is None or method[1] not in self._methods:
            return True
        _log.debug("%s: the client has hung up, nothing more can be sent to it", method[1])
        return False
