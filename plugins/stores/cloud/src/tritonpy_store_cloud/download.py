"""Copying objects to a disk: in parts, several at once; one that breaks goes on where it broke."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tritonpy.plugin import Internal, TritonError, Unavailable

from tritonpy_store_cloud.refusal import Refusal
from tritonpy_store_cloud.tree import StoredObject

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_log = logging.getLogger("tritonpy.repository")

STOPPING = "the server stops"
PART_BYTE_SIZE = 8 * 1024 * 1024
_CHUNK_BYTE_SIZE = 1024 * 1024
_MOST_AT_ONCE = 8
_MOST_ATTEMPTS = 3
_MD5 = re.compile("[0-9a-f]{32}")


class ChangedMeanwhileError(Exception):
    """An object is not any more what it was when it was listed."""


@dataclass(frozen=True, slots=True)
class _Part:
    object: StoredObject
    path: Path
    start: int
    end: int


@dataclass(slots=True)
class _File:
    """An object on its way; `left` counts its parts that are not there yet."""

    object: StoredObject
    path: Path
    left: int


def tag_of(meta: ObjectMeta) -> str:
    """The tag that differs when an object's content does; stores quote it in some answers only."""
    tag = meta["e_tag"]
    return tag.removeprefix("W/").strip('"') if tag else meta["last_modified"].isoformat()


class Downloader:
    """Copies objects of one store; its calls block and may be made on several threads.

    Args:
        client: the store.
        refuse: tells the client's errors in our words.
        stopping: set when the server stops: then what is under way ends at its next piece.
        part_byte_size: how much one request asks for.
    """

    def __init__(
        self,
        client: ObjectStore,
        refuse: Callable[[Exception], Refusal],
        stopping: threading.Event,
        *,
        part_byte_size: int = PART_BYTE_SIZE,
    ) -> None:
        self._client = client
        self._refuse = refuse
        self._stopping = stopping
        self._part_byte_size = part_byte_size
        self._tags_are_digests = True
        self._lock = threading.Lock()  # guards `left` of all files

    def download(self, wanted: Mapping[Path, StoredObject], done: Callable[[Path], None]) -> None:
        """Copy each object to a new file at its path; the directories are there.

        Args:
            wanted: objects by path.
            done: takes each path whose file is complete, also if others fail; on any thread.

        Raises:
            ChangedMeanwhileError: an object is not what `wanted` says.
            Unavailable: the store does not answer, or the server stops.
            Internal: the store refuses, or a copy is not what the store says it has.
            OSError: a file cannot be written.
        """
        calls: list[Callable[[], None]] = []
        for path, found in wanted.items():
            with open(path, "wb") as target:
                target.truncate(found.byte_size)
            parts = self._parts(path, found)
            if not parts:
                done(path)
            file = _File(found, path, len(parts))
            calls += [partial(self._bring, part, file, done) for part in parts]
        make_all(calls, _MOST_AT_ONCE)

    def _bring(self, part: _Part, file: _File, done: Callable[[Path], None]) -> None:
        """Copy a part; the last one of a file also checks the file."""
        self._copy(part)
        with self._lock:
            file.left -= 1
            if file.left:
                return
        if _MD5.fullmatch(file.object.tag):
            self._verify(file.path, file.object)
        done(file.path)

    def _parts(self, path: Path, found: StoredObject) -> list[_Part]:
        size, step = found.byte_size, self._part_byte_size
        return [_Part(found, path, start, min(start + step, size)) for start in range(0, size, step)]

    def _copy(self, part: _Part) -> None:
        position = part.start
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            with open(part.path, "r+b") as file:
                file.seek(position)
                try:
                    for chunk in self._read(part, position):
                        if len(chunk) > part.end - position:
                            raise ChangedMeanwhileError
                        file.write(chunk)
                        position += len(chunk)
                except Refusal as refusal:
                    if not refusal.may_pass or attempt == _MOST_ATTEMPTS:
                        raise
            if position == part.end:
                return
        raise Unavailable(
            f"the store ended its answer for '{part.object.key}' after {position - part.start} of "
            f"{part.end - part.start} bytes, {_MOST_ATTEMPTS} times"
        )

    def _read(self, part: _Part, position: int) -> Iterator[bytes]:
        try:
            if self._stopping.is_set():
                raise Unavailable(STOPPING)
            answer = self._client.get(part.object.key, options={"range": (position, part.end)})
            meta = answer.meta
            if tag_of(meta) != part.object.tag or meta["size"] != part.object.byte_size:
                raise ChangedMeanwhileError
            for chunk in answer.stream(_CHUNK_BYTE_SIZE):
                if self._stopping.is_set():
                    raise Unavailable(STOPPING)
                yield chunk
        except (ChangedMeanwhileError, TritonError):
            raise
        except Exception as exc:  # any error of the client
            refusal = self._refuse(exc)
            if refusal.is_missing:
                raise ChangedMeanwhileError from None
            raise refusal from None

    def _verify(self, path: Path, found: StoredObject) -> None:
        """Compare a file with a tag that looks like the MD5 digest of its content.

        The tags of objects that a store encrypts look the same and are none. So what differs is copied again:
        two copies with the same digest are right, and the store's tags are no digests.
        """
        if not self._tags_are_digests:
            return
        first = _digest(path)
        if first == found.tag:
            return
        for part in self._parts(path, found):
            self._copy(part)
        second = _digest(path)
        if second == first:
            _log.info("the tags of this store are no digests: sizes alone tell whether a copy is complete")
            self._tags_are_digests = False
        elif second != found.tag:
            raise Internal(
                f"copies of '{found.key}' are damaged: MD5 digests {first} and {second}, expected {found.tag}"
            )


def make_all(calls: Iterable[Callable[[], None]], at_once: int) -> None:
    """Make the calls on some threads, and wait for all; after the first that fails no other is begun."""
    left = deque(calls)
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            try:
                call = left.popleft()
            except IndexError:
                return
            try:
                call()
            except BaseException as exc:
                errors.append(exc)

    threads = [
        threading.Thread(target=work, name="model-download", daemon=True)
        for _ in range(min(at_once, len(left)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
