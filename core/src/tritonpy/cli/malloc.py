"""`corectl serve --malloc`: another allocator than the system's, for the whole process.

An allocator takes over only when the dynamic linker loads it before everything else, so the program replaces
itself once, with the allocator's library first in LD_PRELOAD. What stands there already, such as custom
operators of TensorFlow, stays. Workers that run on the server's interpreter inherit it, as they would inherit
an LD_PRELOAD that was set by hand; those with an environment of their own do not, because the library would
bring the system's C++ library into programs that come with another one.

Where it stays that of glibc, `keep_freed_memory` has it keep the memory of one request for the next.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Never

PRELOAD = "LD_PRELOAD"
LIBRARY_VARIABLE = "TRITONPY_MALLOC_LIBRARY"
"""Tells workers' backends which entry of LD_PRELOAD is ours."""


@dataclass(frozen=True, slots=True)
class Allocator:
    """One allocator that may be asked for.

    Attributes:
        files: names of its library, the best first.
        package: what Debian and its relatives call it.
    """

    files: tuple[str, ...]
    package: str


ALLOCATORS = {
    "tcmalloc": Allocator(("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"), "libtcmalloc-minimal4"),
    "jemalloc": Allocator(("libjemalloc.so.2",), "libjemalloc2"),
}

# Of glibc, with the values that its own rule ends at in a process that has freed one large block.
_M_TRIM_THRESHOLD, _TRIM_THRESHOLD = -1, 64 * 1024 * 1024
_M_MMAP_THRESHOLD, _MMAP_THRESHOLD = -3, 32 * 1024 * 1024
_M_TOP_PAD, _TOP_PAD = -2, 32 * 1024 * 1024  # as the largest block that does not come from the system itself
_OWN_TUNING = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")
_TUNABLES, _TUNABLES_OF_MALLOC = "GLIBC_TUNABLES", "glibc.malloc."

_DIRECTORIES = ("/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib64", "/lib")
_CACHED = re.compile(r"^\s*(\S+) \(.*\) => (/.+)$", re.MULTILINE)


class MallocUnavailable(Exception):
    """The allocator that was asked for cannot be had; the text says why, and what to do."""


def use_allocator(
    name: str,
    *,
    environ: Mapping[str, str] = os.environ,
    execute: Callable[[str, list[str], Mapping[str, str]], Never] = os.execve,
) -> None:
    """Return if the process runs with this allocator; otherwise start the program anew, with it.

    Args:
        name: a key of `ALLOCATORS`.
        environ: the process's variables.
        execute: replaces the process.

    Raises:
        MallocUnavailable: the allocator is not installed, or the linker has refused it.
    """
    if sys.platform != "linux":
        raise MallocUnavailable(
            f"--malloc={name} works on Linux only: elsewhere a library cannot be loaded before a program by "
            f"LD_PRELOAD"
        )
    library = find_library(name, environ)
    if _is_loaded(library):
        return
    preloaded = [entry for entry in re.split("[: ]", environ.get(PRELOAD, "")) if entry]
    if environ.get(LIBRARY_VARIABLE) == str(library):  # we have been here: do not turn in circles
        raise MallocUnavailable(
            f"--malloc={name}: {library} was put into {PRELOAD}, but the dynamic linker did not load it; it "
            f"ignores {PRELOAD} for a program with more rights than its user; other reasons it tells above"
        )
    entries = [str(library), *(entry for entry in preloaded if entry != str(library))]
    variables = {**environ, PRELOAD: ":".join(entries), LIBRARY_VARIABLE: str(library)}
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    execute(sys.executable, [sys.executable, *sys.orig_argv[1:]], variables)


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Have glibc keep up to 64 MiB of free memory in its heap, and take blocks below 32 MiB from there.

    By itself it keeps twice the size of the largest block that was freed so far. Requests of one size need
    several blocks each, which then go back to the system and come again, page by page: for tensors of 1 MiB
    that is up to a third of what a request costs. Memory of unloaded models is returned all the same.

    Threads have heaps of 64 MiB each, of which an empty one goes back to the system at once. Where a thread's
    heap is nearly full, each call of a model there begins another one and ends it: 6,000 page faults for
    tensors of 24 MiB. That does not happen while less room than the pad is left in the heap before.

    Args:
        environ: the process's variables; where they tune glibc's allocator, nothing is changed.

    Returns:
        True if the allocator has been told; False where it has other orders, or there is no glibc.

    Source: mallopt(3).
    """
    is_tuned = _TUNABLES_OF_MALLOC in environ.get(_TUNABLES, "")
    if sys.platform != "linux" or is_tuned or any(variable in environ for variable in _OWN_TUNING):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    orders = (
        (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD),
        (_M_MMAP_THRESHOLD, _MMAP_THRESHOLD),
        (_M_TOP_PAD, _TOP_PAD),
    )
    return all(bool(mallopt(*order)) for order in orders)


def find_library(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The library of an allocator, where the dynamic linker would find it.

    Raises:
        MallocUnavailable: it is not installed.
    """
    allocator = ALLOCATORS[name]
    for file in allocator.files:
        for path in _places(file, environ):
            if _fits(path):
                return path
    raise MallocUnavailable(
        f"--malloc={name}: found no {' and no '.join(allocator.files)} for this machine; install it (Debian "
        f"and Ubuntu: apt-get install {allocator.package}), or name its directory in LD_LIBRARY_PATH"
    )


def _places(file: str, environ: Mapping[str, str]) -> Iterable[Path]:
    for directory in filter(None, environ.get("LD_LIBRARY_PATH", "").split(":")):
        yield Path(directory, file).absolute()
    for cached, path in _CACHED.findall(_linker_cache()):
        if cached == file:
            yield Path(path)
    for directory in _DIRECTORIES:
        yield Path(directory, file)


def _linker_cache() -> str:
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            return subprocess.run(
                [program, "-p"], capture_output=True, text=True, check=False, timeout=10
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
    return ""  # there is none on musl, for one


def _fits(path: Path) -> bool:
    """True if a file is a library for the machine that this interpreter runs on."""
    try:
        return _machine(path) == _machine(Path(sys.executable))
    except OSError:
        return False


def _machine(path: Path) -> bytes:
    with path.open("rb") as file:
        header = file.read(20)
    return header[:7] + header[18:20]  # of an ELF file: word size, byte order and machine


def _is_loaded(library: Path) -> bool:
    wanted = str(library.resolve())
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        return any(line.rstrip("\n").endswith(wanted) for line in maps)
