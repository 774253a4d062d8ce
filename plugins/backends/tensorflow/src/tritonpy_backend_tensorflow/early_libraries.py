"""TensorFlow's shared libraries, opened before its import, so that the server goes on meanwhile.

The import opens 800 MB of libraries with the interpreter's lock held: nothing else of the process runs for
about a second. Opened before by a foreign function, which holds no lock, they are found in memory by the
import.
"""

from __future__ import annotations

import ctypes
import logging
import os
from importlib.util import find_spec
from pathlib import Path

_log = logging.getLogger("tritonpy.backend.tensorflow")

_NAMES = ("libtensorflow_framework*.so*", "libtensorflow_framework*.dylib", "libtensorflow_cc*")
"""In the order in which they need each other."""


def open_early() -> None:
    """Open the libraries of the TensorFlow that is installed; what cannot be opened is left to the import."""
    spec = find_spec("tensorflow")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        open_libraries_in(Path(folder))


def open_libraries_in(folder: Path) -> None:
    """Open the libraries in a folder without holding the interpreter's lock; on POSIX systems only."""
    if os.name != "posix":
        return
    program = ctypes.CDLL(None)
    program.dlopen.restype = ctypes.c_void_p
    program.dlopen.argtypes = (ctypes.c_char_p, ctypes.c_int)
    for name in _NAMES:
        for path in sorted(folder.glob(name)):
            if not program.dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_LOCAL):
                _log.debug("'%s' cannot be opened before the import of TensorFlow", path)
