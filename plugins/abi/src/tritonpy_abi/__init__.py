"""Opens shared objects that were compiled for Triton; the loader `abi`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from tritonpy.abi_child import hookimpl

_OPENERS: Mapping[str, tuple[str, str]] = {
    "backends": ("tritonpy_abi.backends", "open_backend"),
    "batching": ("tritonpy_abi.strategies", "open_strategy"),
    "caches": ("tritonpy_abi.caches", "open_cache"),
    "repo_agents": ("tritonpy_abi.agents.library", "AgentLibrary"),
}
"""What opens a library of each kind: a function or class of a module, imported when it is needed."""


@hookimpl
def load_shared_object(kind: str, path: str) -> object | None:
    """See `LoaderHooks`."""
    if kind not in _OPENERS:
        return None
    if kind != "backends":  # those run in workers, which have neither a log nor a page of metrics
        import_module("tritonpy_abi.serving").connect()
    module, function = _OPENERS[kind]
    plugin: object = getattr(import_module(module), function)(path)
    return plugin
