"""Which calls need a key in their metadata.

Every call belongs to one of the categories that can be restricted, those of the standard services included.
A call without the key is refused before its message is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc

from tritonpy.frontends.restriction import Restriction, guards

_PREFIX = "triton-grpc-protocol-"

INFERENCE_SERVICE = "/inference.GRPCInferenceService/"

_INFERENCE_CATEGORIES = {
    "health": ("ServerLive", "ServerReady", "ModelReady"),
    "metadata": ("ServerMetadata", "ModelMetadata"),
    "inference": ("ModelInfer", "ModelStreamInfer"),
    "shared-memory": tuple(
        f"{kind}SharedMemory{action}"
        for kind in ("System", "Cuda")
        for action in ("Status", "Register", "Unregister")
    ),
    "model-config": ("ModelConfig",),
    "model-repository": ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"),
    "statistics": ("ModelStatistics",),
    "trace": ("TraceSetting",),
    "logging": ("LogSettings",),
}

CATEGORY_OF = {
    **{
        INFERENCE_SERVICE + name: category
        for category, names in _INFERENCE_CATEGORIES.items()
        for name in names
    },
    "/grpc.health.v1.Health/Check": "health",
    "/grpc.health.v1.Health/Watch": "health",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": "metadata",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": "metadata",
}
"""The category of every call, by its full name."""

Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]  # Any: every call has types of its own
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
        restrictions: which of them need a key.
        refuse: makes, of a call's handler and a text, one that ends the call with that text.

    Raises:
        InvalidArg: the restrictions contradict each other.
    """

    def __init__(
        self,
        handlers: Handlers,
        restrictions: Iterable[Restriction],
        refuse: Callable[[Any, str], Any],
    ) -> None:
        self._handlers = handlers
        self._guards: dict[str, tuple[str, Restriction, Any]] = {}
        by_category = guards(restrictions)
        for name, handler in handlers.items():
            guard = by_category.get(CATEGORY_OF[name])
            if guard is not None:
                header = _PREFIX + guard.header
                text = f"This protocol is restricted, expecting header '{header}'"
                # Keys of metadata are in lower case, whatever was configured.
                self._guards[name] = (header.lower(), guard, refuse(handler, text))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call; None for one that is not in the table."""
        name = handler_call_details.method
        guard = self._guards.get(name)
        if guard is not None:
            key, restriction, refusal = guard
            if not restriction.admits(_first(handler_call_details.invocation_metadata, key)):
                return refusal
        return self._handlers.get(name)


def _first(metadata: Iterable[tuple[str, str | bytes]] | None, wanted: str) -> str | bytes | None:
    for key, value in metadata or ():
        if key == wanted:
            return value
    return None
