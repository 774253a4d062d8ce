"""Calls that need a key in their metadata.

Every call belongs to one of the categories that can be restricted, those of the standard services included.
A call without the key is refused before its message is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

from tritonpy.frontends.grpc.forwarding import Metadata
from tritonpy.frontends.restriction import Restriction, guards
from tritonpy.options import RestrictedCalls

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


class CallGuard:
    """Refuses calls whose key is not given.

    Args:
        restricted: which categories of calls need a key.

    Raises:
        InvalidArg: the restrictions contradict each other.
    """

    def __init__(self, restricted: Iterable[RestrictedCalls]) -> None:
        self._guards: dict[str, tuple[str, Restriction, str]] = {}
        by_category = guards(restricted)
        for name, category in CATEGORY_OF.items():
            guard = by_category.get(category)
            if guard is not None:
                header = _PREFIX + guard.header
                text = f"This protocol is restricted, expecting header '{header}'"
                # Keys of metadata are in lower case, whatever was configured.
                self._guards[name] = (header.lower(), guard, text)

    def __contains__(self, name: object) -> bool:
        """True if a call, by its full name, needs a key."""
        return name in self._guards

    def refusal(self, name: str, metadata: Metadata) -> str | None:
        """The text that a call is refused with; None for one that may pass.

        Args:
            name: of the call, in full.
            metadata: that came with it.
        """
        guard = self._guards.get(name)
        if guard is None:
            return None
        key, restriction, text = guard
        return None if restriction.admits(_first(metadata, key)) else text


def _first(metadata: Metadata, wanted: str) -> str | bytes | None:
    for key, value in metadata:
        if key == wanted:
            return value
    return None
