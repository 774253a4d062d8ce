"""Shared objects, each opened once and never closed: their threads and statics may be in use for ever."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tritonpy.plugin import NotFound, TritonError, Unavailable

from tritonpy_abi.build import library as server_library
from tritonpy_abi.elf import Elf, empty_library, read_elf
from tritonpy_abi.shim import CData, Shim, open_shim, other_servers

_log = logging.getLogger("tritonpy.abi")

# What `auditwheel` makes of the name of Triton's library, in plugins that come in wheels.
_HASHED_SERVER = re.compile(r"libtritonserver-[0-9a-f]{8}\.so(\.\d+)*")

_NO_SUCH_FILE = ": cannot open shared object file: No such file or directory"
_API_NAME = re.compile(r"undefined symbol: (TRITON[A-Z]+_\w+)")

_lock = threading.Lock()  # guards the tables below, and lets one library be opened at a time
_opened: dict[tuple[str, _State], Library] = {}
_aliases = set[str]()


@dataclass(frozen=True, slots=True)
class Library:
    """A shared object that is open until the process ends.

    Attributes:
        path: where the file is, or was.
        handle: what the linker calls it.
    """

    path: Path
    handle: CData
    _shim: Shim

    def function(self, name: str) -> CData | None:
        """The address of a function, a `void *`; None if it does not define one of this name."""
        address = self._shim.lib.TRITONPY_Symbol(self.handle, name.encode())
        return None if address == self._shim.ffi.NULL else address


@dataclass(frozen=True, slots=True)
class _State:
    """What changes when a file is replaced or written over."""

    device: int
    inode: int
    byte_size: int
    changed_ns: int


def open_library(path: str | Path) -> Library:
    """Open a shared object, or give what was opened before; blocking, from any thread.

    A file that has changed since is another library. It is opened from a copy, because the linker would give
    back the first one for the same path.

    Raises:
        NotFound: it cannot be opened; with the linker's words, and what they mean.
        Unavailable: Triton's own library is in this process, or came with this one.
        Unsupported: this is no Linux.
    """
    shim = open_shim()
    real = os.path.realpath(path)
    with _lock:
        try:
            found = os.stat(real)
            state = _State(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if (library := _opened.get((real, state))) is not None:
                return library
            elf = read_elf(Path(real)) if os.path.isfile(real) else None
        except OSError as exc:
            raise _refused(f"{path}: cannot open shared object file: {exc.strerror}") from exc
        older = [known for name, known in _opened if name == real]
        with tempfile.TemporaryDirectory(prefix="tritonpy-abi-") as directory:
            if elf is not None:
                _provide_aliases(shim, elf, Path(directory))
            source = Path(real)
            if older:
                _say_that_it_changed(real, in_place=any(known.inode == state.inode for known in older))
                source = Path(shutil.copyfile(real, Path(directory) / source.name))
            library = Library(Path(real), _open(shim, source, elf), shim)
        _opened[real, state] = library
        return library


def aliases(path: str | Path) -> list[bytes]:
    """The libraries that are to be opened before this one, by whoever opens it in another process."""
    try:
        elf = read_elf(Path(path))
    except OSError:
        return []
    return [] if elf is None else list(_aliases_of(elf).values())


def _open(shim: Shim, path: Path, elf: Elf | None) -> CData:
    before = other_servers()
    out = shim.ffi.new("void **")
    try:
        shim.check(shim.lib.TRITONPY_Open(os.fsencode(path), out))
    except TritonError as exc:
        raise _refused(exc.message + _meaning(exc.message, path, elf)) from None
    handle = out[0]
    intruder = shim.lib.TRITONPY_Intruder(handle)
    if intruder != shim.ffi.NULL:
        raise Unavailable(
            f"{path} has functions of Triton's API from {shim.text(intruder)} instead of tritonpy's; it must "
            f"be linked with the server's library dynamically, or not at all"
        )
    if came := other_servers() - before:
        raise Unavailable(
            f"{path} brought Triton's own library with it, {', '.join(sorted(came))}: remove that file, or "
            f"the search path (RPATH) in {path.name} that leads to it, for example by patchelf --remove-rpath"
        )
    return handle


def _provide_aliases(shim: Shim, elf: Elf, directory: Path) -> None:
    for name, content in _aliases_of(elf).items():
        if name in _aliases:
            continue
        alias = directory / f"alias-{len(_aliases)}.so"  # nobody takes it for the real one
        alias.write_bytes(content)
        _open(shim, alias, elf)
        _aliases.add(name)


def _aliases_of(elf: Elf) -> dict[str, bytes]:
    """Libraries from wheels ask for the server under a name that it has only there."""
    names = filter(_HASHED_SERVER.fullmatch, elf.needed)
    return {name: empty_library(name, elf.machine) for name in names}


def _say_that_it_changed(path: str, *, in_place: bool) -> None:
    _log.info("%s has changed since it was opened; the new one is opened from a copy", path)
    if in_place:
        _log.warning(
            "%s was written over while it was in use, and models that were loaded before may crash; put a "
            "new file in its place instead, with mv or install",
            path,
        )


def _meaning(reason: str, path: Path, elf: Elf | None) -> str:
    """What the linker does not say: whose fault it is."""
    ours = read_elf(server_library())
    if elf is not None and ours is not None and elf.machine != ours.machine:
        return f"; it is made for {elf.machine_name}, and this process is {ours.machine_name}"
    if api := _API_NAME.search(reason):
        return f"; tritonpy-abi knows no {api[1]}: it is no function of Triton's API, or of a later one"
    missing = reason.removesuffix(_NO_SUCH_FILE)
    if elf is not None and missing in elf.needed:
        return f"; {path} needs {missing}: install it, or set LD_LIBRARY_PATH before the server starts"
    return ""


def _refused(reason: str) -> NotFound:
    return NotFound(f"unable to load shared library: {reason}")
