"""Imports of Python models that share a process, each with its own copy of what lies beside its `model.py`.

In a process of its own a model may call its modules what it likes: no other one is there. On a thread of the
server there are others, and the same model as it was before it was loaded anew. All have one `sys.modules`
and one `sys.path`, so both are as a model expects them while its file is imported. What it has imported by
then stays in its own global variables. Imports that come later find the modules of the model that was loaded
last, where several have modules of the same name.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from .sources import is_below

_lock = threading.RLock()  # guards the list, and `sys.modules` and `sys.path` while a model is imported
_live: list[SharedImports] = []


class SharedImports:
    """The entries of one model in `sys.modules` and `sys.path`.

    Args:
        directories: where its files lie, in the order in which they are searched.
        package: a name of its own, for what it imports relative to its file.
    """

    def __init__(self, directories: Sequence[str], package: str) -> None:
        self._directories = list(directories)
        self._package = package
        self._paths: list[str] = []  # including what the model itself has added
        self._modules: dict[str, ModuleType] = {}

    @contextmanager
    def own(self) -> Iterator[None]:
        """In here an import finds the model's own files, and none that another model has imported."""
        with _lock:
            others = _live[:]
            _live.append(self)
            before = Counter(sys.path)
            foreign = {path for other in others for path in other._paths}
            first = next((index for index, path in enumerate(sys.path) if path in foreign), len(sys.path))
            sys.path[first:first] = self._directories
            hidden = {
                name: module
                for name, module in list(sys.modules.items())
                if any(model._holds(name, module) for model in _live)
            }
            for name in hidden:
                del sys.modules[name]
            try:
                yield
            finally:
                self._paths = list((Counter(sys.path) - before).elements())
                self._modules = {
                    name: module for name, module in list(sys.modules.items()) if self._holds(name, module)
                }
                for name, module in hidden.items():
                    if not self._claims(name):
                        sys.modules.setdefault(name, module)

    def forget(self) -> None:
        """The model is gone: take out what is there for its sake, and let others have their own again."""
        with _lock:
            if self not in _live:
                return
            _live.remove(self)
            # The same model, loaded anew: what was imported later may be either's.
            is_shared = any(set(self._directories) & set(other._directories) for other in _live)
            for name, module in list(sys.modules.items()):
                if (
                    name.partition(".")[0] == self._package
                    or self._modules.get(name) is module
                    or (not is_shared and self._holds(name, module))
                ):
                    del sys.modules[name]
            for path in self._paths:
                if path in sys.path:
                    sys.path.remove(path)
            for other in reversed(_live):
                for name, module in other._modules.items():
                    sys.modules.setdefault(name, module)

    def _holds(self, name: str, module: object) -> bool:
        """True if an import by this model, and not by the server, has made a module."""
        path = _origin(module)
        return (
            path is not None
            and any(is_below(path, directory) for directory in self._directories)
            and not is_below(path, sys.prefix)
            and self._claims(name)
        )

    def _claims(self, name: str) -> bool:
        """True if the model would look for a module of this name among its own files."""
        top = name.partition(".")[0]
        return any(
            os.path.exists(os.path.join(directory, file))
            for directory in self._directories
            for file in (top, f"{top}.py")
        )


def _origin(module: object) -> str | None:
    """The file or the directory of a module, without waking one that loads itself when it is touched."""
    names = getattr(module, "__dict__", {})
    file = names.get("__file__")
    if isinstance(file, str):
        return file
    path = names.get("__path__")
    return next(iter(path), None) if path else None
