"""Opens shared objects that were compiled for Triton; the loader `abi`."""

from __future__ import annotations

from tritonpy.plugin import hookimpl


@hookimpl
def load_shared_object(kind: str, path: str) -> object | None:
    """See `LoaderHooks`."""
    return None
