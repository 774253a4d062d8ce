"""Our `libtritonserver.so`, opened once in a process, and its errors as exceptions."""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

import cffi
from tritonpy.abi_child import TritonError, Unavailable, Unsupported

from tritonpy_abi.build import ELSEWHERE, SOURCES, digest, library, read_sources

CData = Any  # what cffi makes; it has no types

_SERVER = re.compile(r"libtritonserver\b.*\.so\b")

_opening = threading.Lock()


class Shim:
    """The opened library.

    Attributes:
        ffi: its types.
        lib: its functions.
    """

    def __init__(self, ffi: cffi.FFI, lib: CData) -> None:
        self.ffi = ffi
        self.lib = lib

    def text(self, chars: CData) -> str:
        """The text of a `const char *`; plugins write in any encoding."""
        raw = self.ffi.string(chars)
        assert isinstance(raw, bytes)  # it is text only for wide characters
        return raw.decode(errors="replace")

    def metrics(self) -> str:
        """The metrics in this process, as `TRITONPY_MetricsRead` gives them."""
        size = self.ffi.new("size_t *")
        data = self.lib.TRITONPY_MetricsRead(size)
        if data == self.ffi.NULL:
            return "[]"
        try:
            return bytes(self.ffi.buffer(data, size[0])).decode(errors="replace")
        finally:
            self.lib.TRITONPY_MetricsFree(data)

    def error(self, error: CData) -> TritonError:
        """The exception that stands for a `TRITONSERVER_Error *`, which is ended."""
        text = self.text(self.lib.TRITONPY_ErrorMessage(error))
        exception = TritonError.with_code(self.lib.TRITONPY_ErrorCode(error), text)
        self.lib.TRITONPY_ErrorDelete(error)
        return exception

    def check(self, error: CData) -> None:
        """Raise what a `TRITONSERVER_Error *` says, unless it is NULL.

        Raises:
            TritonError: with the code and the text that the plugin gave.
        """
        if error != self.ffi.NULL:
            raise self.error(error)


def open_shim() -> Shim:
    """The library, opened when first needed. Blocking.

    Raises:
        Unsupported: this is no Linux.
        Unavailable: it was not compiled when the distribution was installed, or from other sources, or does
            not fit this machine; or the real one is in this process.
    """
    with _opening:
        return _open()


@functools.cache
def _open() -> Shim:
    if not sys.platform.startswith("linux"):
        raise Unsupported(
            f"shared objects compiled for Triton are ELF files of Linux; this is {sys.platform}"
        )
    if others := other_servers():
        # The linker would take functions from the one that came first.
        raise Unavailable(
            f"Triton's own {', '.join(sorted(others))} is loaded in this process, and shared objects "
            f"compiled for Triton would find its functions instead of those of tritonpy; serve from a "
            f"process that does not import it"
        )
    path = library()
    if not path.is_file():
        if ELSEWHERE in os.environ:
            raise Unavailable(f"{ELSEWHERE} names {path}, and there is no such file")
        raise Unavailable(
            f"tritonpy-abi was installed without its library, because no C++ compiler could make it; "
            f"install one (Debian and Ubuntu: apt-get install g++) and run: {_build_command(path)}"
        )
    if digest(read_sources()).encode() not in path.read_bytes():
        raise Unavailable(
            f"{path} was compiled from other sources than those in {SOURCES}; compile it anew: "
            f"{_build_command(path)}"
        )
    ffi = cffi.FFI()
    declarations = sorted((SOURCES / "host").glob("*.h"))
    declarations.sort(key=lambda file: file.name != "core.h")  # has the types of all others
    for file in declarations:
        ffi.cdef(file.read_text())
    try:
        # Global: shared objects that do not name the library they need find its functions only there.
        return Shim(ffi, ffi.dlopen(str(path.absolute()), os.RTLD_NOW | os.RTLD_GLOBAL))
    except OSError as exc:
        raise Unavailable(
            f"tritonpy-abi's library cannot be opened here: {exc}; compile it anew: {_build_command(path)}"
        ) from exc


def _build_command(path: Path) -> str:
    output = ["--output", str(path)] if ELSEWHERE in os.environ else []
    return shlex.join([sys.executable, "-m", "tritonpy_abi.build", *output])


def other_servers() -> set[str]:
    """The files of Triton's own library that are loaded in this process."""
    maps = os.fsdecode(Path("/proc/self/maps").read_bytes())
    mapped = {line.partition("/")[2] for line in maps.split("\n")}
    files = {Path(f"/{name.removesuffix(' (deleted)')}") for name in mapped}
    ours = library().resolve()
    return {str(file) for file in files if _SERVER.match(file.name) and file != ours}
