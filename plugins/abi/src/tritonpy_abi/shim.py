"""Our `libtritonserver.so`, opened once in a process, and its errors as exceptions."""

from __future__ import annotations

import functools
import os
import shlex
import sys
import threading
from collections.abc import Mapping
from typing import Any

import cffi
from tritonpy.plugin import (
    AlreadyExists,
    Cancelled,
    ErrorCode,
    Internal,
    InvalidArg,
    NotFound,
    TritonError,
    Unavailable,
    UnknownError,
    Unsupported,
)

from tritonpy_abi.build import ELSEWHERE, SONAME, SOURCES, library

CData = Any  # what cffi makes; it has no types

BUILD_COMMAND = shlex.join([sys.executable, "-m", "tritonpy_abi.build"])

_EXCEPTIONS: Mapping[int, type[TritonError]] = {
    0: UnknownError,
    1: Internal,
    2: NotFound,
    3: InvalidArg,
    4: Unavailable,
    5: Unsupported,
    6: AlreadyExists,
    7: Cancelled,
}
"""By the numbers of `TRITONSERVER_Error_Code`."""

ERROR_NUMBERS: Mapping[ErrorCode, int] = {kind.code: number for number, kind in _EXCEPTIONS.items()}

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
        """What a `const char *` says; plugins write in whatever encoding they like."""
        raw = self.ffi.string(chars)
        assert isinstance(raw, bytes)  # it is text only for wide characters
        return raw.decode(errors="replace")

    def error(self, error: CData) -> TritonError:
        """The exception that stands for a `TRITONSERVER_Error *`, which is ended."""
        number = self.lib.TRITONPY_ErrorCode(error)
        exception = _EXCEPTIONS.get(number, UnknownError)(self.text(self.lib.TRITONPY_ErrorMessage(error)))
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
        Unavailable: it was not compiled when the distribution was installed, or the real one is in this
            process.
    """
    with _opening:
        return _open()


@functools.cache
def _open() -> Shim:
    if not sys.platform.startswith("linux"):
        raise Unsupported(
            f"shared objects compiled for Triton are ELF files of Linux; this is {sys.platform}"
        )
    _refuse_the_real_one()
    path = library()
    if not path.is_file():
        if ELSEWHERE in os.environ:
            raise Unavailable(f"{ELSEWHERE} names {path}, and there is no such file")
        raise Unavailable(
            f"tritonpy-abi was installed without its library, because there was no C++ compiler; install one "
            f"(Debian and Ubuntu: apt-get install g++) and run: {BUILD_COMMAND}"
        )
    ffi = cffi.FFI()
    for declarations in sorted((SOURCES / "host").glob("*.h")):
        ffi.cdef(declarations.read_text())
    # Global: shared objects that do not name the library they need find its functions only there.
    return Shim(ffi, ffi.dlopen(str(path.absolute()), os.RTLD_NOW | os.RTLD_GLOBAL))


def _refuse_the_real_one() -> None:
    """With both in one process, the linker would take functions from the one that came first."""
    ffi = cffi.FFI()
    ffi.cdef("const char *TRITONPY_Version(void); void TRITONSERVER_ErrorDelete(void *error);")
    try:
        found = ffi.dlopen(SONAME, os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        found = ffi.dlopen(None)
        if not hasattr(found, "TRITONSERVER_ErrorDelete"):
            return
    if not hasattr(found, "TRITONPY_Version"):
        raise Unavailable(
            f"Triton's own {SONAME} is loaded in this process, and shared objects compiled for Triton would "
            f"find its functions instead of those of tritonpy; serve from a process that does not import it"
        )
