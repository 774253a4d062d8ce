"""Repositories in object stores: `s3://`, `gs://` and `as://`."""

from __future__ import annotations

from tritonpy.plugin import Store, StoreOptions, hookimpl

from tritonpy_store_cloud.opening import open_store


@hookimpl
def store_open(root: str, options: StoreOptions) -> Store:
    """Read root and credentials; the store is asked nothing yet."""
    return open_store(root, options.environ, timeout_s=options.timeout_s)
