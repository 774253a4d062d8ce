"""Imports of the Python models of one process, kept apart.

In a server every Python model has a process of its own, and `import tokens` finds the `tokens.py` beside it.
In a test several models, or one model loaded twice, share one `sys.path` and one `sys.modules`. While a model
is at work both are as it expects them: of files with the same name it sees its own. Between times the modules
of all models stay, for the threads that models have started. When a model is closed, nothing of it is left.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from types import ModuleType

_lock = threading.RLock()  # guards these lists, `sys.modules` and `sys.path`; not held while a model runs
_open: list[ModelImports] = []
_at_work: list[ModelImports] = []


class ModelImports:
    """The modules of one model.

    Args:
        directories: where its files lie, as they will stand in `sys.path`.
    """

    def __init__(self, *directories: str) -> None:
        self._directories = directories
        self._extra: list[str] = []  # what the model itself has put in `sys.path`
        self._modules: dict[str, ModuleType] = {}
        self._before: Set[str] = frozenset()  # what was imported when it began to work
        with _lock:
            held = self._held_by_others()
            # Those that stand in `sys.path` for the model's sake only: the test may have put them there too.
            self._paths = [path for path in directories if path not in sys.path or path in held]
            _open.append(self)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Imports in here find the model's own files; what they bring is remembered."""
        with _lock:
            for other in _at_work:  # one that calls this one, or has answered and not come to its end
                other._remember_modules()
            _at_work.append(self)
            self._install()
            self._before, paths = set(sys.modules), list(sys.path)
        try:
            yield
        finally:
            with _lock:
                self._remember_modules()
                self._remember_paths(paths)
                _at_work.remove(self)
                if _at_work:  # the model that called this one, or one on another thread
                    _at_work[-1]._install()

    def close(self) -> None:
        """Take the model's modules and directories out again."""
        with _lock:
            if self not in _open:
                return
            _open.remove(self)
            for name, module in self._modules.items():
                if sys.modules.get(name) is module:
                    del sys.modules[name]
            gone = {*self._paths, *self._extra} - self._held_by_others()
            sys.path[:] = [path for path in sys.path if path not in gone]
            for other in _open[::-1]:
                for name, module in other._modules.items():
                    sys.modules.setdefault(name, module)

    def _install(self) -> None:
        """Put the model's own modules and directories before those of others."""
        if self not in _open:  # closed, and left behind at work
            return
        others = [other for other in _open if other is not self]
        for other in others:
            for name, module in other._modules.items():
                if sys.modules.get(name) is module and self._claims(name):
                    del sys.modules[name]
        sys.modules.update(self._modules)
        foreign = {path for other in others for path in other._paths} - set(self._paths)
        rest = [path for path in sys.path if path not in self._paths]
        index = next((index for index, path in enumerate(rest) if path in foreign), len(rest))
        sys.path[:] = [*rest[:index], *self._paths, *rest[index:]]

    def _remember_modules(self) -> None:
        """Note what has been imported since it began to work: what lies in its directories is its own."""
        if self not in _open:  # closed, and left behind at work
            return
        for name in set(sys.modules) - self._before:
            module = sys.modules[name]
            if self._holds(_origin(module)) and not _is_under_way(module):
                self._modules.setdefault(name, module)

    def _remember_paths(self, paths: Sequence[str]) -> None:
        """Note what has been added to `sys.path` since."""
        if self not in _open:
            return
        own = {directory for each in _open for directory in each._directories}
        self._extra += [path for path in sys.path if path not in paths and path not in own]
        for path in self._directories:
            if sys.path.count(path) > paths.count(path):  # the worker's code has added it again, at the end
                del sys.path[len(sys.path) - 1 - sys.path[::-1].index(path)]

    def _held_by_others(self) -> set[str]:
        return {path for other in _open if other is not self for path in (*other._paths, *other._extra)}

    def _claims(self, name: str) -> bool:
        """True if the model would look for a module of this name among its own files."""
        top = name.partition(".")[0]
        return any(
            os.path.exists(os.path.join(directory, file))
            for directory in self._directories
            for file in (top, f"{top}.py")
        )

    def _holds(self, path: str | None) -> bool:
        return path is not None and any(
            os.path.join(os.path.abspath(path), "").startswith(os.path.join(directory, ""))
            for directory in self._directories
        )


def _origin(module: object) -> str | None:
    """The file or the directory of a module, without waking one that loads itself when it is touched."""
    names = getattr(module, "__dict__", {})
    file = names.get("__file__")
    if isinstance(file, str):
        return file
    return next(iter(names.get("__path__") or ()), None)


def _is_under_way(module: object) -> bool:
    """True if a thread is importing it, which has to find it where it has put it."""
    spec = getattr(module, "__dict__", {}).get("__spec__")
    return bool(getattr(spec, "_initializing", False))
