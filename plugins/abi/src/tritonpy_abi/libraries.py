"""Shared objects, each opened once and never closed: their threads and statics may stay in use."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tritonpy.abi_child import NotFound, TritonError, Unavailable

from tritonpy_abi.build import library as server_library
from tritonpy_abi.elf import Elf, empty_library, read_elf
from tritonpy_abi.shim import CData, Shim, open_shim, other_servers

_log = logging.getLogger("tritonpy.abi")

# What `auditwheel` makes of the name of Triton's library, in plugins that come in wheels.
_HASHED_SERVER = re.compile(r"libtritonserver-[0-9a-f]{8}\.so(\.\d+)*")

_CANNOT_OPEN = ": cannot open shared object file: "
_NEWER = re.compile(r"version `((?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)' not found")
_MUSL = re.compile(r"libc\.musl-\w+\.so\.\d+|ld-musl-\w+\.so\.\d+")
_API_NAME = re.compile(r"undefined symbol: (TRITON[A-Z]+_\w+)")

_lock = threading.Lock()  # guards the tables below, and lets one library be opened at a time
_opened: dict[Path, list[_Opened]] = {}
_linked: dict[Path, _State] = {}  # paths that the linker keeps, and the files it means by them
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
    """The state of a file, which changes when it is replaced, written over or touched."""

    device: int
    inode: int
    byte_size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class _Opened:
    state: _State
    digest: bytes
    library: Library


def open_library(path: str | Path) -> Library:
    """Open a shared object, or give what was opened before; blocking, from any thread.

    A file with another content than before is another library. It is opened from a copy, because the linker
    would give back the first one for the same path.

    Raises:
        NotFound: it cannot be opened; with the linker's words, and what they mean.
        Unavailable: Triton's own library is in this process, or came with this one.
        Unsupported: this is no Linux.
    """
    shim = open_shim()
    real = Path(os.path.realpath(path))
    with _lock:
        try:
            found = real.stat()
            state = _State(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            known = _opened.get(real, [])
            for opened in known:
                if opened.state == state:
                    return opened.library
            content = real.read_bytes() if real.is_file() else b""
        except OSError as exc:
            raise _refused(f"{path}{_CANNOT_OPEN}{exc.strerror}") from exc
        digest = hashlib.sha256(content).digest()
        library = next((opened.library for opened in known if opened.digest == digest), None)
        if library is None:
            library = _open(shim, real, content, state)
        _opened.setdefault(real, []).append(_Opened(state, digest, library))
        return library


def _open(shim: Shim, path: Path, content: bytes, state: _State) -> Library:
    elf = read_elf(content)
    if elf is not None:
        if len(content) < elf.byte_size:  # the linker would map what is not there, and the process would end
            raise _refused(
                f"{path}: file too short; it has {len(content)} bytes of {elf.byte_size} or more: was it "
                f"copied to its end?"
            )
        for name, alias in _aliases_of(elf).items():
            if name not in _aliases:
                _open_copy(shim, alias, path, None)
                _aliases.add(name)
    if path not in _linked:
        return Library(path, _open_file(shim, path, path, elf, state), shim)
    _log.info("%s has changed since it was opened; the new one is opened from a copy", path)
    if (_linked[path].device, _linked[path].inode) == (state.device, state.inode):
        _log.warning(
            "%s was written over while it was in use, and models that were loaded before may crash; put a "
            "new file in its place instead, with mv or install",
            path,
        )
    return Library(path, _open_copy(shim, content, path, elf), shim)


def aliases(path: str | Path) -> list[bytes]:
    """The libraries that another process has to open before this one."""
    try:
        elf = read_elf(Path(path).read_bytes())
    except OSError:
        return []
    return [] if elf is None else list(_aliases_of(elf).values())


def _open_copy(shim: Shim, content: bytes, path: Path, elf: Elf | None) -> CData:
    """Open a library that is in no file, or in one under whose path the linker knows another."""
    try:
        with tempfile.TemporaryDirectory(prefix="tritonpy-abi-") as directory:
            file = Path(directory) / f"copy-of-{path.name}"  # not to be mistaken for Triton's own library
            file.write_bytes(content)
            return _open_file(shim, file, path, elf, None)
    except OSError as exc:
        raise _refused(
            f"{path} has to be opened from a copy, which cannot be made in {tempfile.gettempdir()}: "
            f"{exc.strerror}; TMPDIR names another directory"
        ) from exc


def _open_file(shim: Shim, file: Path, path: Path, elf: Elf | None, state: _State | None) -> CData:
    """Open a file that is `path`, then with its state, or a copy of it."""
    before = other_servers()
    out = shim.ffi.new("void **")
    try:
        shim.check(shim.lib.TRITONPY_Open(os.fsencode(file), out))
    except TritonError as exc:
        reason = exc.message.replace(str(file), str(path))
        raise _refused(reason + _meaning(reason, path, elf)) from None
    if state is not None:
        _linked[file] = state  # also if it is refused below: nothing is ever closed
    handle = out[0]
    intruder = shim.lib.TRITONPY_Intruder(handle)
    if intruder != shim.ffi.NULL:
        raise Unavailable(
            f"{path} has functions of Triton's API from {shim.text(intruder).replace(str(file), str(path))} "
            f"instead of tritonpy's; link it with the server's library dynamically, or not at all"
        )
    if came := other_servers() - before:
        raise Unavailable(
            f"{path} brought Triton's own library with it, {', '.join(sorted(came))}: remove that file, or "
            f"the search path (RPATH) in {path.name} that leads to it, for example by patchelf --remove-rpath"
        )
    return handle


def _aliases_of(elf: Elf) -> dict[str, bytes]:
    """Libraries from wheels ask for the server under a name that it has only there."""
    names = filter(_HASHED_SERVER.fullmatch, elf.needed)
    return {name: empty_library(name, elf.machine) for name in names}


def _meaning(reason: str, path: Path, elf: Elf | None) -> str:
    """The cause of a linker's error, which its text leaves out."""
    ours = read_elf(server_library().read_bytes())
    if elf is not None and ours is not None and elf.machine != ours.machine:
        return f"; it is made for {elf.machine_name}, and this process is {ours.machine_name}"
    if api := _API_NAME.search(reason):
        return f"; tritonpy-abi knows no {api[1]}: it is no function of Triton's API, or of a later one"
    if newer := _NEWER.search(reason):
        return (
            f"; it was built on a newer system than this one, which has no {newer[1]}: build it on the "
            "oldest that it is to run on"
        )
    missing, separator, _ = reason.partition(_CANNOT_OPEN)
    if elf is None or not separator or missing == str(path):
        return ""
    needer = path if missing in elf.needed else f"a library that {path} needs"
    if _MUSL.fullmatch(missing):
        return f"; {needer} was built for musl, as on Alpine, and this process has glibc: build it for glibc"
    if "/" in missing:
        return (
            f"; {needer} needs {missing}, at this place: it had no soname when it was linked with, and so is "
            f"not looked for; build it with -Wl,-soname,{Path(missing).name}"
        )
    if path.with_name(missing).exists():
        return (
            f"; {needer} needs {missing}, which lies beside it, where the linker does not look: link with "
            f"-Wl,-rpath,'$ORIGIN', or set LD_LIBRARY_PATH={path.parent} before the server starts"
        )
    return f"; {needer} needs {missing}: install it, or set LD_LIBRARY_PATH before the server starts"


def _refused(reason: str) -> NotFound:
    return NotFound(f"unable to load shared library: {reason}")
