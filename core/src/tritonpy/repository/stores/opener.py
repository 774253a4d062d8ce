"""The store of a repository: a directory, or what a plugin opens for the prefix of its URL."""

from __future__ import annotations

import re

from tritonpy.errors import Internal, InvalidArg, TritonError, Unsupported, exception_text
from tritonpy.plugin_manager import PluginManager, install_hint
from tritonpy.repository.stores.local import LocalStore
from tritonpy.repository.stores.plugin_store import PluginStore
from tritonpy.store import Store, StoreOptions

_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(root: str, stores: PluginManager, options: StoreOptions) -> Store:
    """Open the store of a repository; asks nothing of it yet.

    Args:
        root: a directory, or a URL whose prefix is the name of a plugin: `s3://`, `gs://` or `as://` with
            tritonpy-store-cloud, with what belongs behind it.
        stores: the plugins.
        options: for the plugin.

    Raises:
        InvalidArg: the root or its credentials are not of the form they must have; shows no secret.
        Unsupported: nothing that is installed opens roots with this prefix.
        Internal: the plugin cannot be used.
    """
    prefix = prefix_of(root)
    if not prefix:
        return LocalStore(root)
    check_root(root, stores)
    plugin = stores.load(prefix)
    open_one = stores.bind(plugin, "store_open")
    if open_one is None:
        raise Internal(f"plugin '{prefix}' of kind 'stores' has no hook 'store_open'")
    try:
        store: Store | None = open_one(root, options)
    except TritonError:
        raise
    except Exception as exc:
        raise Internal(f"model repository {root} cannot be opened: {exception_text(exc)}") from exc
    if store is None:
        raise Internal(f"model repository {root} cannot be opened: 'store_open' of '{prefix}' returned None")
    return PluginStore(root, store)


def prefix_of(root: str) -> str:
    """The name of the plugin that opens a repository; "" for a directory."""
    match = _PREFIX.match(root)
    return match[1] if match else ""


def check_root(root: str, stores: PluginManager) -> None:
    """Refuse a URL that holds a secret, or that nothing installed opens; a path is fine. Imports no plugin.

    Raises:
        InvalidArg: it holds a secret, which is not shown, or its prefix is known to nobody.
        Unsupported: a plugin of this project would open it.
    """
    prefix = prefix_of(root)
    if not prefix:
        return
    if "@" in root or "?" in root:
        raise InvalidArg(
            f"model repository '{masked(root)}' must not hold credentials or a query: it is shown in logs "
            f"and to clients; give credentials in environment variables or in the file of "
            f"TRITON_CLOUD_CREDENTIAL_PATH (--model-repository)"
        )
    if prefix in stores.names():
        return
    hint = install_hint("stores", prefix)
    if hint:
        raise Unsupported(f"{prefix}:// file-system not supported (model repository {root}){hint}")
    known = ", ".join(f"{name}://" for name in stores.names())
    raise InvalidArg(
        f"model repository '{root}' has the unknown prefix '{prefix}://'; expected a directory or one of the "
        f"installed stores: {known or 'none'} (--model-repository)"
    )


def masked(root: str) -> str:
    """A root as it may be shown, whatever secrets somebody wrote into it."""
    scheme, separator, rest = root.partition("://")
    if not separator:
        return root
    rest, question, _ = rest.partition("?")
    # A secret key may hold slashes, so everything before the last @ may belong to it.
    _, at, after = rest.rpartition("@")
    return f"{scheme}://{'***@' if at else ''}{after}{'?***' if question else ''}"
