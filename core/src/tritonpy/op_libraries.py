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
        self._lock = threading.Lock()  # guards the next two, and lets one library in at a time
        self._usable: dict[str, bool] | None = None  # by content: whether there are operators in it
        self._paths: dict[Path, str] = {}  # the content that was opened

    def open(self, library: OpLibrary) -> None:
        """Open a library, unless this process has it already.

        Raises:
            Unavailable: there is no such file, or it has changed since it was opened.
            Internal: it is no library for this framework, or has no operators.
        """
        path, named = library.path, f"'{library.path}', which {library.named_by} names"
        if not path.is_file():
            raise Unavailable(f"unable to find {named}")
        with self._lock:
            if self._usable is None:
                self._usable = dict.fromkeys(_preloaded(), True)
            key = _content_hash(path)
            if self._paths.get(path, key) != key:
                raise Unavailable(
                    f"{named}, has changed since this process opened it, which cannot be undone: start the "
                    f"server anew, or run the model in a process of its own"
                )
            if key not in self._usable:
                self._usable[key] = self._open(path, named)
                self._paths[path] = key
            if not self._usable[key]:
                raise Internal(f"{named}, registers no operator that this process has not had before")

    def _open(self, path: Path, named: str) -> bool:
        is_known = _is_in_process(path)
        try:
            return self._load(str(path)) or is_known
        except Exception as exc:  # of the dynamic linker, of the framework, or of what the file does
            text = exc.message if isinstance(exc, TritonError) else exception_text(exc)
            raise Internal(f"{named}, is no library of operators for {self._framework}: {text}") from exc


def _preloaded() -> list[str]:
    """Hashes of the libraries that the dynamic linker has put into this process before it began."""
    paths = map(Path, re.split("[: ]", os.environ.get("LD_PRELOAD", "")))
    return [_content_hash(path) for path in paths if path.is_file()]


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
