"""Traces that a plugin leaves where it should leave none: growth, prints, the state of the process, files."""

from __future__ import annotations

import gc
import io
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from itertools import pairwise
from pathlib import Path

import numpy as np
from tritonpy.temporary import OF_THIS_PROCESS

ROUNDS = 4
"""How often something is done that has to leave nothing behind."""
_GRACE_S = 2.0
_BLOCKS_PER_ROUND = 50
_DESCRIPTORS = Path("/proc/self/fd")
_OUR_DIRECTORIES = ("tritonpy-models-", ".tritonpy-models-")


def check_no_growth(act: Callable[[], object], what: str, *, counts_memory: bool = False) -> None:
    """Do something again and again, and count what of the process is more after each time.

    Only what grows in every round counts: pools and caches that fill up once are nobody's fault.

    Args:
        act: what has to leave nothing behind.
        what: names it, such as `each load`.
        counts_memory: count blocks of memory of Python too; `act` has to do a thing 50 times then.

    Raises:
        AssertionError: says what grows.
    """
    for _ in range(2):  # pools and caches fill
        act()
    counts = [_counts(counts_memory)]
    for _ in range(ROUNDS):
        act()
        counts.append(_counts(counts_memory))
    for kind, least in (("threads", 1), ("file descriptors", 1), ("blocks of memory", _BLOCKS_PER_ROUND)):
        steps = [after[kind] - before[kind] for before, after in pairwise(counts)]
        if min(steps) >= least and not _goes_back(kind, counts[0][kind] + least * ROUNDS):
            raise AssertionError(f"{what} leaves at least {min(steps)} more {kind} behind")


def _goes_back(kind: str, limit: int) -> bool:
    """True if what has grown is gone after a while: a thread that was told to end takes its time."""
    if kind == "blocks of memory":
        return False
    give_up = time.monotonic() + _GRACE_S
    while (count := _counts(False)[kind]) >= limit and time.monotonic() < give_up:
        time.sleep(0.02)
    return count < limit


def _counts(counts_memory: bool) -> Mapping[str, int]:
    gc.collect()
    return {
        "threads": threading.active_count(),
        "file descriptors": len(os.listdir(_DESCRIPTORS)) if _DESCRIPTORS.is_dir() else 0,
        "blocks of memory": sys.getallocatedblocks() if counts_memory else 0,
    }


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Check that nothing is written to standard output meanwhile, neither from Python nor from C.

    Raises:
        AssertionError: shows the beginning of what was.
    """
    sys.stdout.flush()
    text = io.StringIO()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with redirect_stdout(text):
                yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        said = text.getvalue() + file.read().decode(errors="replace")
    assert not said, f"wrote {said[:80]!r} to standard output"


@contextmanager
def process_as_it_was() -> Iterator[None]:
    """Check that what all plugins of a process share is afterwards what it was before.

    Raises:
        AssertionError: names what was changed.
    """
    before = _shared_state()
    try:
        yield
    finally:
        after = _shared_state()
        if before["the working directory"] != after["the working directory"]:
            os.chdir(str(before["the working directory"]))
    changed = [what for what, value in before.items() if after[what] != value]
    assert not changed, f"changed {' and '.join(changed)} of the whole process"


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "one that is gone"


def _shared_state() -> dict[str, object]:
    mask = os.umask(0)
    os.umask(mask)
    return {
        "the working directory": _working_directory(),
        "the handler of SIGTERM": signal.getsignal(signal.SIGTERM),
        "the handler of SIGINT": signal.getsignal(signal.SIGINT),
        "the mask of new files": mask,
        "the level of the root logger": logging.root.level,
        "the handlers of the root logger": list(logging.root.handlers),
        "the timeout of sockets": socket.getdefaulttimeout(),
        "how numpy treats errors": np.geterr(),
    }


@contextmanager
def no_temporary_files() -> Iterator[None]:
    """Check that no temporary file is left that was made meanwhile; directories of the server do not count.

    Raises:
        AssertionError: names one.
    """
    OF_THIS_PROCESS.make("").rmdir()  # the directory of all of them is not to begin in the one below
    kept, kept_variable = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory() as room:
        tempfile.tempdir = os.environ["TMPDIR"] = room
        try:
            yield
        finally:
            tempfile.tempdir = kept
            if kept_variable is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = kept_variable
        left = sorted(name for name in os.listdir(room) if not name.startswith(_OUR_DIRECTORIES))
    assert not left, f"left '{left[0]}' among temporary files"


@contextmanager
def directory_left_alone(directory: Path) -> Iterator[None]:
    """Check that nothing below a directory is made, changed or deleted; what Python compiles does not count.

    Raises:
        AssertionError: names what was.
    """
    before = _files(directory)
    yield
    after = _files(directory)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    if changed:
        verb = "deleted" if changed[0] not in after else "made" if changed[0] not in before else "changed"
        raise AssertionError(f"{verb} '{changed[0]}' in the model's directory in the repository")


def _files(directory: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in directory.rglob("*"):
        if "__pycache__" not in path.parts:
            stat = path.lstat()
            changed_ns = 0 if path.is_dir() else stat.st_mtime_ns  # a directory changes with `__pycache__`
            found[path.relative_to(directory).as_posix()] = (stat.st_mode, stat.st_size, changed_ns)
    return found
