"""Unpacked environments on disk: one directory for each content, shared by models and servers."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tritonpy_backend_python.archive import BadArchive, unpack

CACHE_VARIABLE = "TRITONPY_CACHE_DIR"

_RELOCATE_TIMEOUT_S = 600
_log = logging.getLogger("tritonpy.backend.python")


class StoreFailure(Exception):
    """The archive could not be unpacked; the text says why and what could help."""


class EnvironmentStore:
    """Packed environments, unpacked once each.

    `<root>/<sha256 of the archive>` is an environment; `<sha256>.json` beside it says that it is complete and
    for which path it was made; `<sha256>.lock` is held while it is unpacked; `hashes/` keeps the hashes of
    archives. Anything in there may be deleted while no server runs.

    Args:
        root: made on first use.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def unpack(self, archive: Path) -> Path:
        """Return the directory with what is in `archive`; unpacks it if that was not done before.

        Blocks as long as that takes, also when another server does it.

        Raises:
            StoreFailure: see there.
        """
        try:
            (self._root / "hashes").mkdir(parents=True, exist_ok=True)
            digest = self._digest(archive)
            target = self._root / digest
            if not self._is_complete(target):
                with self._lock(digest, archive):
                    if not self._is_complete(target):
                        self._unpack(archive, target)
            return target
        except BadArchive as exc:
            raise StoreFailure(f"{archive} cannot be unpacked: {exc}") from exc
        except OSError as exc:
            raise StoreFailure(
                f"{archive} cannot be unpacked into {self._root} "
                f"(environment variable {CACHE_VARIABLE} names another place): {exc}"
            ) from exc

    def _unpack(self, archive: Path, target: Path) -> None:
        started = time.monotonic()
        _log.info("unpacking environment %s into %s", archive, target)
        partial = target.with_name(f"{target.name}.partial")
        try:
            for left in (partial, target):  # of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            partial.mkdir()
            before = _identity(archive)
            unpack(archive, partial)
            if _identity(archive) != before:
                raise BadArchive("it was changed while it was read")
            if not any(os.path.lexists(partial / "bin" / name) for name in ("python", "python3")):
                raise BadArchive(
                    "it has no bin/python at its top; pack what is in the environment's directory"
                )
            partial.rename(target)
            _relocate(target)
            record = {"location": str(target), "archive": str(archive)}
            self._write(target.with_name(f"{target.name}.json"), record)
        except BaseException:
            for left in (partial, target):
                shutil.rmtree(left, ignore_errors=True)
            raise
        _log.info("unpacked environment %s in %.1f s", archive, time.monotonic() - started)

    def _is_complete(self, target: Path) -> bool:
        record = _read(target.with_name(f"{target.name}.json"))
        return record.get("location") == str(target) and target.is_dir()

    def _digest(self, archive: Path) -> str:
        """The archive's hash; remembered, because an archive may have gigabytes."""
        name = hashlib.sha256(os.fsencode(archive)).hexdigest()[:32]
        memory = self._root / "hashes" / f"{name}.json"
        identity = _identity(archive)
        known = _read(memory)
        if known.get("identity") == identity:
            return str(known["sha256"])
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if _identity(archive) != identity:
            raise BadArchive("it was changed while it was read")
        self._write(memory, {"archive": str(archive), "identity": identity, "sha256": digest})
        return digest

    @contextmanager
    def _lock(self, digest: str, archive: Path) -> Iterator[None]:
        """Hold the right to unpack; a file lock, so that it ends with the process that holds it."""
        with (self._root / f"{digest}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.info("waiting until environment %s has been unpacked for somebody else", archive)
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, path: Path, record: Mapping[str, object]) -> None:
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}")
        temporary.write_text(json.dumps(record))
        temporary.replace(path)


def default_store() -> EnvironmentStore:
    """The store in `$TRITONPY_CACHE_DIR`, or else in `~/.cache/tritonpy`.

    Raises:
        StoreFailure: there is no home directory.
    """
    given = os.environ.get(CACHE_VARIABLE)
    try:
        root = Path(given).absolute() if given else Path.home() / ".cache" / "tritonpy"
    except RuntimeError as exc:
        raise StoreFailure(
            f"there is no home directory to unpack an environment in: set environment variable "
            f"{CACHE_VARIABLE} to a directory for that"
        ) from exc
    return EnvironmentStore(root / "environments")


def _identity(archive: Path) -> list[int]:
    found = archive.stat()
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _read(path: Path) -> dict[str, object]:
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):  # not there, or damaged
        return {}
    return record if isinstance(record, dict) else {}


def _relocate(environment: Path) -> None:
    """Let an environment that conda-pack has packed replace the paths it was made with by its own."""
    program = environment / "bin" / "conda-unpack"
    if not program.is_file():
        return
    command = [str(environment / "bin" / "python"), str(program)]
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    libraries = [str(environment / "lib"), variables.get("LD_LIBRARY_PATH", "")]
    variables["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
    try:
        done = subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_RELOCATE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as exc:
        raise BadArchive(f"its bin/conda-unpack took longer than {_RELOCATE_TIMEOUT_S} s") from exc
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise BadArchive(f"its bin/conda-unpack failed with status {done.returncode}: {said}")
