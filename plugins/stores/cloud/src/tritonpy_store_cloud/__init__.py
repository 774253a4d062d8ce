"""Repositories in object stores: `s3://`, `gs://` and `as://`."""

from __future__ import annotations

from tritonpy.plugin import Store, StoreOptions, hookimpl

from tritonpy_store_cloud.secret_variables import SECRET_VARIABLES


@hookimpl
def store_open(root: str, options: StoreOptions) -> Store:
    """Read root and credentials; the store is asked nothing yet."""
    from tritonpy_store_cloud.opening import open_store  # servers without such a repository need none of it

    return open_store(root, options.environ, timeout_s=options.timeout_s)


@hookimpl
def store_secret_variables() -> tuple[str, ...]:
    """Keep the keys to object stores from the code of models."""
    return SECRET_VARIABLES
