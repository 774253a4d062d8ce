"""A repository in an object store: looked at by listing, served from copies on a local disk."""

from __future__ import annotations

import errno
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tritonpy.plugin import (
    ErrorCode,
    Fingerprint,
    Internal,
    InvalidArg,
    LocalFiles,
    NotFound,
    TritonError,
    Unavailable,
)

from tritonpy_store_cloud.cache import ModelCache, ModelFetch
from tritonpy_store_cloud.download import STOPPING, ChangedMeanwhileError, Downloader, tag_of
from tritonpy_store_cloud.location import Location
from tritonpy_store_cloud.refusal import Refusal
from tritonpy_store_cloud.tree import StoredObject, Tree, build_tree, check_path

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_log = logging.getLogger("tritonpy.repository")

_MOST_OBJECTS = 100_000
"""In one model; more is a root that is none."""

_MOST_ROUNDS = 5
_PAUSE_S = 0.5

Result = TypeVar("Result")


class RemoteStore:
    """A repository in an object store; see `tritonpy.plugin.Store`.

    Args:
        location: the repository.
        connect: makes the client, when it is first needed.
        refuse: tells the client's errors in our words.
        cache: copies on the local disk.
        mount_variable: what says where the cache lies, for errors.
        wait: waits between two rounds of a fetch, for tests.
    """

    def __init__(
        self,
        location: Location,
        connect: Callable[[], ObjectStore],
        refuse: Callable[[Exception], Refusal],
        cache: ModelCache,
        *,
        mount_variable: str,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.root = location.root
        self._location = location
        self._connect = connect
        self._refuse = refuse
        self._cache = cache
        self._mount_variable = mount_variable
        self._wait = wait
        self._stopping = threading.Event()
        self._was_there = False
        self._lock = threading.Lock()  # guards the two below
        self._client: ObjectStore | None = None
        self._downloader: Downloader | None = None

    def model_names(self) -> list[str]:
        path = self._location.path
        self._cache.sweep()
        listed = self._ask(lambda client: client.list_with_delimiter(path or None))
        names = {key.rpartition("/")[2] for key in listed["common_prefixes"]}
        if names or listed["objects"] or not path:
            self._was_there = True
        if not self._was_there:
            raise Internal(
                f"failed to stat file {self.root}: no object in bucket '{self._location.bucket}' begins with "
                f"'{path}/' (--model-repository)"
            )
        # When its last model goes, a prefix goes, too; that is an empty repository and no error.
        return sorted(name for name in names if not name.startswith("."))

    def place_of(self, name: str) -> str:
        return f"{self._location.place}/{name}"

    def look(self, name: str) -> Fingerprint | None:
        """See `Store`; of a model that no disk could hold the reason, which `fetch` tells."""
        try:
            tree = self._read(name)
        except TritonError as error:
            if error.code is not ErrorCode.INVALID_ARG:
                raise
            return frozenset({("", error.message, -1)})
        return None if tree is None else tree.fingerprint

    def fetch(self, name: str) -> LocalFiles:
        """See `Store`; a directory for each fetch, which shares with others what has not changed."""
        check_path(name, self._location.key_of(name))
        self._cache.sweep()
        try:
            with self._cache.fetching(name) as fetch:
                tree = self._bring(name, fetch)
                return LocalFiles(fetch.lay_out(tree), tree.fingerprint, is_temporary=True)
        except OSError as exc:
            raise self._unwritable(name, exc) from exc

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self._cache.close()

    def _bring(self, name: str, fetch: ModelFetch) -> Tree:
        """Copy what is missing until the copies are what the store has, all at one moment."""
        begun_s = time.monotonic()
        copied: dict[str, int] = {}

        def keep(part: Path) -> None:
            found = missing[part]
            fetch.keep(part)
            copied[found.key] = found.byte_size

        for round_number in range(_MOST_ROUNDS):
            if round_number:
                self._wait(_PAUSE_S)
            tree = self._read(name)
            if tree is None:
                raise NotFound(f"model '{name}' not found in model repository {self.root}")
            missing = fetch.missing(tree)
            self._check_room(name, sum(found.byte_size for found in missing.values()))
            try:
                self._copy(missing, keep)
            except ChangedMeanwhileError:
                continue
            if not missing or self._read(name) == tree:
                _log.info(
                    "copied '%s' from %s: %d of %d files, %d bytes, in %.1f s",
                    name,
                    self.root,
                    len(copied),
                    len(tree.files),
                    sum(copied.values()),
                    time.monotonic() - begun_s,
                )
                return tree
        raise Unavailable(
            f"model '{name}' in {self.root} changed while it was copied, {_MOST_ROUNDS} times; load it again "
            f"when it is complete there"
        )

    def _read(self, name: str) -> Tree | None:
        prefix = self._location.key_of(name)

        def below(key: str) -> list[str]:
            return list(self._ask(lambda client: client.list_with_delimiter(key))["common_prefixes"])

        return build_tree(self._ask(lambda client: list(_objects(client, prefix))), prefix, below)

    def _ask(self, call: Callable[[ObjectStore], Result]) -> Result:
        if self._stopping.is_set():
            raise Unavailable(STOPPING)
        try:
            return call(self._connected())
        except TritonError:
            raise
        except Exception as exc:  # any error of the client
            raise self._refuse(exc) from None

    def _copy(self, missing: Mapping[Path, StoredObject], done: Callable[[Path], None]) -> None:
        if not missing:
            return
        client = self._connected()
        with self._lock:
            if self._downloader is None:
                self._downloader = Downloader(client, self._refuse, self._stopping)
        self._downloader.download(missing, done)

    def _connected(self) -> ObjectStore:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _check_room(self, name: str, needed: int) -> None:
        free = shutil.disk_usage(self._cache.parent).free
        if needed > free:
            raise Internal(
                f"model '{name}' does not fit on the disk of {self._cache.parent}: {needed} bytes are to be "
                f"copied from {self.root}, {free} are free; free some, or let {self._mount_variable} name a "
                f"directory on a larger disk"
            )

    def _unwritable(self, name: str, error: OSError) -> Internal:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if is_full else error.strerror or str(error)
        return Internal(
            f"model '{name}' of {self.root} cannot be copied to {self._cache.parent}: {reason}; "
            f"{self._mount_variable} names another directory"
        )


def _objects(client: ObjectStore, prefix: str) -> Iterator[StoredObject]:
    count = 0
    for page in client.list(prefix, chunk_size=1000):
        count += len(page)
        if count > _MOST_OBJECTS:
            raise InvalidArg(f"over {_MOST_OBJECTS} objects begin with '{prefix}/'; that is no model")
        for meta in page:
            yield StoredObject(meta["path"], tag_of(meta), meta["size"])
