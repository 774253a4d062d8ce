"""The store of a repository: a directory, or what a plugin opens for the prefix of its URL."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import TypeVar

from tritonpy.errors import Internal, InvalidArg, TritonError, Unavailable, Unsupported, exception_text
from tritonpy.fingerprint import Fingerprint
from tritonpy.plugin_manager import PluginManager, install_hint
from tritonpy.repository.stores.local import LocalStore
from tritonpy.store import LocalFiles, Store, StoreOptions

_log = logging.getLogger("tritonpy.repository")

Result = TypeVar("Result")


class PluginStore:
    """A store that a plugin has opened; see `Store`.

    A call that hangs cannot be interrupted. So each is made on a daemon thread of its own: neither a stopping
    server nor the end of the interpreter waits for it.

    Args:
        root: the repository.
        store: what the plugin has made of it. What it raises and is no TritonError becomes Internal.
    """

    def __init__(self, root: str, store: Store) -> None:
        self.root = root
        self._store = store
        self._lock = threading.Lock()  # guards both below
        self._waiting: set[Future[object]] = set()
        self._is_stopped = False

    def model_names(self) -> list[str]:
        """The plugin's models, sorted and without those that begin with a dot."""
        return self._ask(lambda: sorted(name for name in self._store.model_names() if name[:1] != "."))

    def place_of(self, name: str) -> str:
        """The plugin's text for the place of a model, asked on the caller's thread."""
        return self._guarded(lambda: self._store.place_of(name))

    def look(self, name: str) -> Fingerprint | None:
        """The files of a model as they are now; None when the model is not there."""
        return self._ask(lambda: self._store.look(name))

    def fetch(self, name: str) -> LocalFiles:
        """The files of a model, brought to a local disk by the plugin."""
        return self._ask(lambda: self._store.fetch(name))

    def stop(self) -> None:
        """Give up the calls under way, refuse all later ones, and tell the plugin."""
        with self._lock:
            self._is_stopped = True
            waiting = list(self._waiting)
        for future in waiting:
            with contextlib.suppress(InvalidStateError):  # it has just been fulfilled
                future.set_exception(Unavailable("the server stops"))
        self._end(lambda: self._store.stop())

    def close(self) -> None:
        """Let the plugin delete what it keeps on the disk; what it raises is logged."""
        self._end(lambda: self._store.close())

    def _ask(self, call: Callable[[], Result]) -> Result:
        """Make a call and wait for it, on a thread that blocks.

        Raises:
            Unavailable: the server stops; the call may still go on.
        """
        future: Future[Result] = Future()
        with self._lock:
            if self._is_stopped:
                raise Unavailable("the server stops")
            self._waiting.add(future)  # type: ignore[arg-type]  # nothing but an exception is put into it
        try:
            threading.Thread(
                target=self._fulfil, args=(future, call), name="model-store", daemon=True
            ).start()
            return future.result()
        finally:
            with self._lock:
                self._waiting.discard(future)

    def _fulfil(self, future: Future[Result], call: Callable[[], Result]) -> None:
        try:
            result = self._guarded(call)
        except TritonError as exc:
            with contextlib.suppress(InvalidStateError):  # given up meanwhile
                future.set_exception(exc)
        else:
            with contextlib.suppress(InvalidStateError):
                future.set_result(result)

    def _guarded(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except TritonError:
            raise
        except BaseException as exc:  # SystemExit too: the thread would end without an answer
            raise Internal(f"the store of model repository {self.root}: {exception_text(exc)}") from exc

    def _end(self, call: Callable[[], None]) -> None:
        try:
            self._guarded(call)
        except TritonError as error:  # it must not keep other stores from their end
            _log.error("%s", error.message, exc_info=error.__cause__)


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


def secret_variables(stores: PluginManager) -> set[str]:
    """The variables of the environment that installed stores take their rights from; blocking."""
    names: set[str] = set()
    for plugin in stores.load_all():
        declare = stores.bind(plugin, "store_secret_variables")
        try:
            names.update(declare() if declare is not None else ())
        except Exception:
            _log.exception("a plugin of kind 'stores' failed to name its secret variables")
    return names


def prefix_of(root: str) -> str:
    """The name of the plugin that opens a repository; "" for a directory."""
    match = _PREFIX.match(root)
    return match[1] if match else ""


def check_root(root: str, stores: PluginManager) -> None:
    """Refuse a URL that holds a secret, or that nothing installed opens; a path is fine. Imports no plugin.

    Raises:
        InvalidArg: it holds a secret, which is not shown, or no plugin knows its prefix.
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
    """A root as it may be shown, without the secrets it may contain."""
    scheme, separator, rest = root.partition("://")
    if not separator:
        return root
    rest, question, _ = rest.partition("?")
    # A secret key may hold slashes, so everything before the last @ may belong to it.
    _, at, after = rest.rpartition("@")
    return f"{scheme}://{'***@' if at else ''}{after}{'?***' if question else ''}"
