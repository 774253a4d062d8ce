"""The table in which grpcio looks for the handler of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import grpc

from tritonpy.frontends.grpc.grpcio.handlers import Handler, refusing
from tritonpy.frontends.grpc.guard import CallGuard

Handlers: TypeAlias = Mapping[str, Handler]
"""What answers a call, by its full name."""


class MethodTable(grpc.GenericRpcHandler):
    """Finds what answers a call; calls that are not in it end UNIMPLEMENTED."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call; None for one that is not in the table."""
        return self._handlers.get(handler_call_details.method)


class GuardedMethodTable(grpc.GenericRpcHandler):
    """Finds what answers a call, or what refuses it when its key is not given.

    Args:
        handlers: the calls.
        guard: says which of them need a key.
    """

    def __init__(self, handlers: Handlers, guard: CallGuard) -> None:
        self._handlers = handlers
        self._guard = guard

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call; None for one that is not in the table."""
        handler = self._handlers.get(handler_call_details.method)
        if handler is None:
            return None
        metadata = handler_call_details.invocation_metadata or ()
        text = self._guard.refusal(handler_call_details.method, metadata)
        return handler if text is None else refusing(handler, text)
