"""The models of an object store on a local disk: copies of files, and a directory for each load.

    content/<digest>                what the newest copy of each model is made of, by key, tag and size
    parts/<random>/<digest>         what is being copied
    snapshots/<random>/<model>/…    one for each load; its files are hard links to content

A load never changes what another one has: an old version serves from its snapshot until it is gone. Content
stays while its model has a snapshot, and for some minutes after, so that a model that could not be loaded is
not copied again as a whole when its configuration is mended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tritonpy.plugin import InvalidArg, TemporaryDirectories

from tritonpy_store_cloud.tree import StoredObject, Tree

KEPT_S = 600.0
"""How long the content of a model that nothing was loaded from, or that was unloaded, is kept."""


@dataclass(slots=True)
class _Model:
    """The cached files of a model; guarded by the cache's lock.

    Attributes:
        content: digests of its files.
        snapshots: directories that were handed out; their receivers delete them.
        fetch_count: how many fetches are under way.
        used_s: when it was last fetched.
    """

    content: set[str] = field(default_factory=set)
    snapshots: list[Path] = field(default_factory=list)
    fetch_count: int = 0
    used_s: float = 0.0


class ModelCache:
    """Copies of the models of one repository; may be used from several threads.

    Args:
        parent: the directory to make the cache in.
        clock: seconds, for tests.
    """

    def __init__(self, parent: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.parent = parent
        self._clock = clock
        self._temporary = TemporaryDirectories(parent)
        self._lock = threading.Lock()  # guards all below
        self._directory: Path | None = None
        self._models: dict[str, _Model] = {}
        self._sizes: dict[str, tuple[int, int]] = {}  # size and time of change of content, by digest

    @contextlib.contextmanager
    def fetching(self, name: str) -> Iterator[ModelFetch]:
        """The directories of one fetch of a model, kept until the end of the block.

        Raises:
            OSError: the disk does not take what it should.
        """
        with self._lock:
            directory = self._opened()
            model = self._models.setdefault(name, _Model())
            model.fetch_count += 1
        parts = Path(tempfile.mkdtemp(dir=directory / "parts"))
        try:
            yield ModelFetch(self, directory, parts, name)
        finally:
            shutil.rmtree(parts, ignore_errors=True)
            with self._lock:
                model.fetch_count -= 1
                model.used_s = self._clock()

    def sweep(self) -> None:
        """Delete the content of models that nothing uses any more."""
        with self._lock:
            for name, model in list(self._models.items()):
                model.snapshots = [path for path in model.snapshots if path.exists()]
                is_unused = not model.snapshots and not model.fetch_count
                if is_unused and self._clock() - model.used_s > KEPT_S:
                    del self._models[name]
                    self._drop(model.content)

    def close(self) -> None:
        """Delete everything, also snapshots: no model may be left."""
        with self._lock:
            self._models.clear()
            self._sizes.clear()
            self._directory = None
            self._temporary.close()

    def path_of(self, digest: str) -> Path | None:
        """Content that was kept and that has not been written into since."""
        with self._lock:
            assert self._directory is not None  # a fetch is under way
            path = self._directory / "content" / digest
            return path if self._sizes.get(digest) == _size(path) is not None else None

    def keep(self, name: str, part: Path, digest: str) -> None:
        """Move a complete copy to the content."""
        with self._lock:
            assert self._directory is not None
            self._models[name].content.add(digest)
            path = self._directory / "content" / digest
            os.replace(part, path)
            size = _size(path)
            assert size is not None
            self._sizes[digest] = size

    def made(self, name: str, content: set[str], snapshot: Path) -> None:
        """Note a snapshot; content that only older ones were made of is not kept."""
        with self._lock:
            model = self._models[name]
            model.snapshots.append(snapshot)
            old, model.content = model.content - content, content
            self._drop(old)

    def _drop(self, content: set[str]) -> None:
        assert self._directory is not None
        for digest in content:
            self._sizes.pop(digest, None)
            (self._directory / "content" / digest).unlink(missing_ok=True)

    def _opened(self) -> Path:
        if self._directory is None or not self._directory.is_dir():  # some machines clean up while we run
            self._temporary.remove_abandoned()
            self._directory = self._temporary.make("repository-")
        for part in ("content", "parts", "snapshots"):
            (self._directory / part).mkdir(exist_ok=True)
        return self._directory


class ModelFetch:
    """One model on its way to the disk."""

    def __init__(self, cache: ModelCache, directory: Path, parts: Path, name: str) -> None:
        self._cache = cache
        self._directory = directory
        self._parts = parts
        self._name = name

    def missing(self, tree: Tree) -> dict[Path, StoredObject]:
        """The objects that must be copied, each with the file to copy it to."""
        return {
            self._parts / digest: found
            for digest, found in ((_digest(file), file) for file in tree.files.values())
            if self._cache.path_of(digest) is None
        }

    def keep(self, part: Path) -> None:
        """Take a file that `missing` asked for, complete; from any thread."""
        self._cache.keep(self._name, part, part.name)

    def lay_out(self, tree: Tree) -> Path:
        """Make the directory of the model, of content that is all there.

        Raises:
            InvalidArg: two objects would be one file on this disk.
            OSError: the disk does not take it.
        """
        own = Path(tempfile.mkdtemp(dir=self._directory / "snapshots"))
        model = own / self._name
        digests = {path: _digest(file) for path, file in tree.files.items()}
        try:
            model.mkdir()
            for path in sorted(tree.directories):
                (model / path).mkdir(parents=True, exist_ok=True)
            for path, digest in digests.items():
                _link(self._directory / "content" / digest, model / path)
        except FileExistsError as exc:
            shutil.rmtree(own, ignore_errors=True)
            raise InvalidArg(
                f"model '{self._name}' has several objects that are one file on this disk: {exc.filename2}"
            ) from None
        except BaseException:
            shutil.rmtree(own, ignore_errors=True)
            raise
        self._cache.made(self._name, set(digests.values()), own)
        return model


def _digest(found: StoredObject) -> str:
    text = f"{found.key}\0{found.tag}\0{found.byte_size}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _size(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _link(content: Path, path: Path) -> None:
    try:
        os.link(content, path)
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        shutil.copy2(content, path)
