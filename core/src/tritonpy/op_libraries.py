"""Libraries of custom operators in a process: those of all models of a backend, and each opened once."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from tritonpy.errors import Internal, TritonError, Unavailable, exception_text
from tritonpy.handles import Backend, OpLibrary

SETTING = "op-library"


def backend_op_libraries(backend: Backend) -> list[OpLibrary]:
    """The libraries for all models of a backend: `--backend-config=NAME,op-library=PATH`, several by `;`."""
    named_by = f"--backend-config={backend.name},{SETTING}"
    paths = backend.settings.get(SETTING, "").split(";")
    return [OpLibrary(Path(path).absolute(), named_by) for path in paths if path]


class OpenOpLibraries:
    """The libraries of custom operators that this process has opened; thread-safe.

    No framework lets go of a library again, and an operator that is registered twice cannot be used any more
    or ends the process. So each is opened once, by what is in it, wherever copies of it lie.

    Args:
        framework: with its version, for errors.
        load: opens the library of a path, and says whether that has registered operators.
    """

    def __init__(self, framework: str, load: Callable[[str], bool]) -> None:
        self._framework = framework
        self._load = load
        self._lock = threading.Lock()  # guards _hashes, and lets one library in at a time
        self._hashes: set[str] | None = None

    def open(self, library: OpLibrary) -> None:
        """Open a library, unless this process has it already.

        Raises:
            Unavailable: there is no such file.
            Internal: it is no library for this framework, or has no operators.
        """
        path = library.path
        if not path.is_file():
            raise Unavailable(f"unable to find '{path}', which {library.named_by} names")
        with self._lock:
            if self._hashes is None:
                self._hashes = _preloaded()
            key = _content_hash(path)
            if key in self._hashes:
                return
            is_known = _is_in_process(path)
            try:
                registers = self._load(str(path))
            except Exception as exc:  # of the dynamic linker, of the framework, or of what the file does
                text = exc.message if isinstance(exc, TritonError) else exception_text(exc)
                raise Internal(
                    f"'{path}', which {library.named_by} names, is no library of operators for "
                    f"{self._framework}: {text}"
                ) from exc
            if not registers and not is_known:
                raise Internal(
                    f"'{path}', which {library.named_by} names, registers no operator that this process has "
                    f"not had before"
                )
            self._hashes.add(key)


def _preloaded() -> set[str]:
    """Hashes of the libraries that the dynamic linker has put into this process before it began."""
    paths = map(Path, re.split("[: ]", os.environ.get("LD_PRELOAD", "")))
    return {_content_hash(path) for path in paths if path.is_file()}


def _is_in_process(path: Path) -> bool:
    """True if the library of this path was there already, where the system can tell."""
    try:
        ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)
    except (AttributeError, OSError):  # on Windows there is no such mode
        return False
    return True


def _content_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
