"""The shared library of an AOTInductor package, called by its C interface.

PyTorch's own loader holds the interpreter's lock for as long as a call takes, and the server answers nobody
meanwhile. `ctypes` lets go of it.
"""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_HANDLES = ("unsafe_alloc_void_ptrs_from_tensors", "alloc_tensors_by_stealing_from_void_ptrs")
_STUB = Path("_C", "_aoti.pyi")

_Pointers = ctypes.POINTER(ctypes.c_void_p)
_Size = ctypes.POINTER(ctypes.c_size_t)
_Text = ctypes.POINTER(ctypes.c_char_p)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # Any: types of ctypes
    "CreateWithDevice": (_Pointers, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_char_p),
    "GetCallSpec": (ctypes.c_void_p, _Text, _Text),
    "GetNumInputs": (ctypes.c_void_p, _Size),
    "GetNumOutputs": (ctypes.c_void_p, _Size),
    "Run": (
        ctypes.c_void_p,
        _Pointers,
        ctypes.c_size_t,
        _Pointers,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ),
    "Delete": (ctypes.c_void_p,),
}

_CHUNK_SIZE = 1 << 20

_lock = threading.Lock()  # guards the next two
_libraries: dict[bytes, ctypes.CDLL] = {}
_folders: list[tempfile.TemporaryDirectory[str]] = []  # none or one, which goes with the process

# Prototypes of our own: those of `ctypes.pythonapi` belong to whoever sets their types last.
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule_of = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def gives_handles() -> bool:
    """Whether the installed PyTorch hands out tensors as the C interface takes them; imports nothing.

    The functions are private to PyTorch, so that a later release may lack them.
    """
    spec = find_spec("torch")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        try:
            text = Path(folder, _STUB).read_text(encoding="utf-8")
        except OSError:
            continue
        return all(f"def {name}(" in text for name in _HANDLES)
    return False


class Library:
    """One set of weights of a library, ready to be called; calls may come from several threads.

    Args:
        archive: the PT2 archive.
        member: the library's name in it.
        count: how many calls may run at the same time; they share the weights, and more have to wait.

    Attributes:
        call_spec: how arguments and results are nested, as JSON.

    Raises:
        OSError: the library cannot be opened.
        AttributeError: it, or PyTorch, lacks a function that is called here.
        RuntimeError: it cannot be made ready.
    """

    def __init__(self, archive: Path, member: str, count: int) -> None:
        from torch._C import _aoti

        self._take, self._give = (getattr(_aoti, name) for name in _HANDLES)
        library = _opened(archive, member)
        self._functions = {name: _function(library, name, types) for name, types in _FUNCTIONS.items()}
        self._last_error = _last_error_of(library)
        container = ctypes.c_void_p()
        self._check(self._functions["CreateWithDevice"](ctypes.byref(container), count, b"cpu", None))
        self._finalizer = weakref.finalize(self, self._functions["Delete"], container)
        self._finalizer.atexit = False  # at the end of the process calls may still run
        self._container = container
        self._input_count = self._count("GetNumInputs")
        self._output_count = self._count("GetNumOutputs")
        texts = ctypes.c_char_p(), ctypes.c_char_p()
        self._check(self._functions["GetCallSpec"](container, *map(ctypes.byref, texts)))
        self.call_spec = [(text.value or b"").decode() for text in texts]
        self._run = self._functions["Run"]
        self._inputs, self._outputs = (
            ctypes.c_void_p * self._input_count,
            ctypes.c_void_p * self._output_count,
        )

    def run(self, tensors: Sequence[Any]) -> list[Any]:  # Any: tensors of PyTorch
        """Call the model; the interpreter's lock is free while it computes.

        Args:
            tensors: flattened, as many as the model takes, of the types and sizes that it was compiled for:
                nothing checks them here, and a wrong one reads or writes behind the end of memory.

        Raises:
            RuntimeError: the call failed.
        """
        if len(tensors) != self._input_count:
            raise RuntimeError(f"got {len(tensors)} tensors, the model takes {self._input_count}")
        inputs = self._inputs(*[_pointer_in(capsule, None) for capsule in self._take(tensors)])
        outputs = self._outputs()
        self._check(
            self._run(self._container, inputs, self._input_count, outputs, self._output_count, None, None)
        )
        made: list[Any] = self._give([_capsule_of(pointer, None, None) for pointer in outputs])
        return made

    def close(self) -> None:
        """Give back the weights; no call may run."""
        self._finalizer()

    def _count(self, name: str) -> int:
        count = ctypes.c_size_t()
        self._check(self._functions[name](self._container, ctypes.byref(count)))
        return count.value

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(self._last_error() or f"the library of the package returned error {code}")


def _opened(archive: Path, member: str) -> ctypes.CDLL:
    """Open a library of an archive, or take it as it was opened before.

    GCC marks symbols of these libraries so that the system never unloads them. One that is loaded again is
    therefore the same one, and what stays behind is one copy of each, not one of each load.
    """
    with _lock:
        folder = (
            _folders[0]
            if _folders
            else tempfile.TemporaryDirectory(prefix="tritonpy-aoti-", ignore_cleanup_errors=True)
        )
        _folders[:] = [folder]
        path = Path(folder.name, f"{len(_libraries)}-{Path(member).name}")
        digest = hashlib.sha256()
        with zipfile.ZipFile(archive) as opened, opened.open(member) as source, path.open("wb") as target:
            while chunk := source.read(_CHUNK_SIZE):
                digest.update(chunk)
                target.write(chunk)
        known = _libraries.get(digest.digest())
        if known is not None:
            path.unlink()
            return known
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            path.unlink()
            raise
        _libraries[digest.digest()] = library  # its file stays: some libraries read their weights from it
        return library


def _function(library: ctypes.CDLL, name: str, types: Sequence[Any]) -> Callable[..., int]:
    function = library[f"AOTInductorModelContainer{name}"]
    function.argtypes = types
    function.restype = ctypes.c_int32
    return function


def _last_error_of(library: ctypes.CDLL) -> Callable[[], str]:
    """Reads the text of this thread's last error; libraries of old releases of PyTorch have none."""
    try:
        function = library["AOTInductorGetLastError"]
    except AttributeError:
        return str
    function.argtypes = (_Text,)

    def read() -> str:
        text = ctypes.c_char_p()
        function(ctypes.byref(text))
        return (text.value or b"").decode(errors="replace")

    return read
