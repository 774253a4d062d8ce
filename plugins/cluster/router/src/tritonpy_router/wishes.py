"""What clients last wanted of models, and the file in which several routers keep it together.

The file is small: JSON that names bodies of requests by their hash, which lie in the folder `FILE.bodies`
beside it. It is read, compared and written under a lock, so that of two wishes for one model the later one
stays, through whichever router it came. Who only reads needs no lock: a file takes the place of the one
before it at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tritonpy.errors import Unavailable

_LOCK_S, _LOCK_EVERY_S = 5.0, 0.02
_ATTEMPTS = 5
_HASH = re.compile(r"[0-9a-f]{64}")
_ACTIONS = frozenset(("load", "unload"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client has last wanted of a model.

    Attributes:
        action: `load` or `unload`.
        body: of its request.
        revision: of the wish; a later one has a higher revision, also one that another router was told.
    """

    action: str
    body: bytes
    revision: int = 0


class WishFile:
    """The file of several routers; its calls wait for a disk, and are made on threads.

    Args:
        path: of the file; that it is not there yet means that nothing was wanted.
        lock_s: how long it may be locked by others.
    """

    def __init__(self, path: Path, lock_s: float = _LOCK_S) -> None:
        self.path = path
        self._bodies = path.with_name(f"{path.name}.bodies")
        self._lock_s = lock_s
        self._seen: tuple[int, int, int] | None = None
        self._known: dict[str, Wanted] = {}
        self._turn = threading.RLock()  # of the threads of this router, for what is known

    def read(self) -> Mapping[str, Wanted]:
        """The wishes, by model.

        Raises:
            Unavailable: the file cannot be read, or is none of a router.
        """
        with self._turn:
            return self._read_anew()

    def _read_anew(self) -> Mapping[str, Wanted]:
        for attempt in range(_ATTEMPTS):
            try:
                seen = self._look()
                if seen is None or seen != self._seen:
                    self._known = {} if seen is None else self._read()
                    self._seen = seen
                return dict(self._known)
            except FileNotFoundError:  # a body that has just been replaced, with the file that named it
                if attempt == _ATTEMPTS - 1:
                    raise Unavailable(
                        f"--state-file '{self.path}' names bodies of requests that are not in "
                        f"'{self._bodies}'"
                    ) from None
                self._seen = None
            except OSError as exc:
                raise Unavailable(f"--state-file '{self.path}' cannot be read: {exc}") from None
        raise AssertionError  # the last attempt returns or raises

    def keep(self, model: str, wanted: Wanted) -> Mapping[str, Wanted]:
        """Note a wish, unless a later one for its model is there; returns all wishes as they are then.

        Raises:
            Unavailable: the file cannot be written, or is locked for too long.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._turn, self._locked():
                wishes = dict(self.read())
                before = wishes.get(model)
                if before is None or before.revision < wanted.revision:
                    wishes[model] = wanted
                    self._write(wishes)
                return wishes
        except OSError as exc:
            raise Unavailable(f"--state-file '{self.path}' cannot be written: {exc}") from None

    def _look(self) -> tuple[int, int, int] | None:
        """A value that changes when another file takes the place of this one; None for no file."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> dict[str, Wanted]:
        known = {hashlib.sha256(each.body).hexdigest(): each.body for each in self._known.values()}
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            wishes: dict[str, Wanted] = {}
            for model, wish in document["models"].items():
                action, revision, digest = wish["action"], int(wish["revision"]), wish["body"]
                if action not in _ACTIONS or not (digest == "" or _HASH.fullmatch(digest)):
                    raise ValueError(f"wish {wish}")
                body = b"" if not digest else known.get(digest)
                if body is None:
                    body = (self._bodies / digest).read_bytes()
                wishes[str(model)] = Wanted(action, body, revision)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise Unavailable(f"--state-file '{self.path}' is not understood: {exc!r}") from None
        return wishes

    def _write(self, wishes: Mapping[str, Wanted]) -> None:
        models = {}
        for name, wish in wishes.items():
            digest = hashlib.sha256(wish.body).hexdigest() if wish.body else ""
            models[name] = {"action": wish.action, "revision": wish.revision, "body": digest}
            if digest and not (self._bodies / digest).exists():
                self._bodies.mkdir(exist_ok=True)
                _replace(self._bodies / digest, wish.body)
        revision = max((wish.revision for wish in wishes.values()), default=0)
        document = {"revision": revision, "models": models}
        _replace(self.path, json.dumps(document, indent=1).encode())
        named = {entry["body"] for entry in models.values()}
        if self._bodies.is_dir():
            for path in self._bodies.iterdir():
                if path.name not in named and _HASH.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Have the lock of the file; that of a router that has died is nobody's."""
        until_s = time.monotonic() + self._lock_s
        with open(self.path.with_name(f"{self.path.name}.lock"), "ab") as file:
            while not _lock(file):
                if time.monotonic() > until_s:
                    raise Unavailable(
                        f"--state-file '{self.path}' has been locked by others for {self._lock_s:g} s"
                    )
                time.sleep(_LOCK_EVERY_S)
            try:
                yield
            finally:
                _unlock(file)


def _replace(path: Path, content: bytes) -> None:
    """Have a file with this content at once, or none of it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> bool:
        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
