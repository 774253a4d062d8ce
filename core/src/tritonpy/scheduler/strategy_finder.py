"""Find a model's batching strategy: by the name or path in its configuration, or as a file beside it."""

from __future__ import annotations

import importlib
import logging
import os
from pathlib import Path

from tritonpy.errors import Internal, InvalidArg, NotFound
from tritonpy.handles import Model
from tritonpy.model.backend import BoundBackend
from tritonpy.plugin_files import Binder, PluginOpener, first_file, is_filename
from tritonpy.plugin_manager import PluginManager, bind_object
from tritonpy.scheduler.batcher import BoundStrategy

_log = logging.getLogger("tritonpy.batching")

PATH_PARAMETER = "TRITON_BATCH_STRATEGY_PATH"
UNASKED = "batching strategy '%s' is never asked: model '%s' %s"
"""How the log says it: of which strategy, of which model, and why."""
_FILENAMES = ("batchstrategy.so", "batchstrategy.py")


class StrategyFinder:
    """Looks up the strategy that a model's configuration or directory names.

    Args:
        strategies: installed ones.
        loaders: what opens shared objects.
        is_strict: what a model names must be installed, or a file inside the model's directory.
        backend_directory: `--backend-directory`; strategies for all models of a backend lie there.
    """

    def __init__(
        self,
        strategies: PluginManager,
        loaders: PluginManager,
        *,
        is_strict: bool,
        backend_directory: str = "",
    ) -> None:
        self._opener = PluginOpener(strategies, loaders, "batching strategy")
        self._is_strict = is_strict
        self._backend_directory = backend_directory

    def is_expected(self, model: Model, backend: BoundBackend) -> bool:
        """True if a strategy is named, or lies where one is looked for: else `find` finds none. Blocking."""
        return (
            _named(model) is not None
            or _file_beside(model) is not None
            or first_file(self._backend_directories(backend), _FILENAMES) is not None
            or any(backend.batching.values())
        )

    def find(self, model: Model, backend: BoundBackend, *, is_strict: bool = False) -> BoundStrategy | None:
        """Bind the model's strategy, or return None when it has none. Blocking.

        Order: the parameter `TRITON_BATCH_STRATEGY_PATH`; a file `batchstrategy.so` or `batchstrategy.py` in
        the directory of the version, of the model, of its backend; the backend's own hooks. A model with
        sequences has none: its batchers are of another kind, and a file beside it is passed over.

        Args:
            model: the model.
            backend: of the model.
            is_strict: what the parameter names must be inside the model's directory, or installed, despite
                the server's options; for a configuration that came over the network.

        Raises:
            TritonError: it is named but cannot be found, opened or bound.
        """
        name = _named(model)
        if model.config.get("sequence_batching") is not None:
            _check_beside_sequences(name, model)
            return None
        own = self._of_model(name, model, is_strict)
        if own is not None:
            if model.config.get("dynamic_batching") is None:
                _log.warning(UNASKED, own.name, model.name, "has no dynamic_batching")
            return own
        path = first_file(self._backend_directories(backend), _FILENAMES)
        if path is not None:
            return self._from_file(path, model)
        if any(backend.batching.values()):
            return BoundStrategy(f"backend {backend.name}", backend.batching.get, model)
        return None

    def _of_model(self, name: str | None, model: Model, is_strict: bool) -> BoundStrategy | None:
        if name is None:
            path = _file_beside(model)
            if path is None:
                return None
            if self._is_strict:
                _check_inside(path, str(path), model, "--strategy-path-policy=any allows it")
            return self._from_file(path, model)
        if not name or "/" in name or name.endswith((".so", ".py")):
            return self._from_file(self._resolve(name, model, is_strict), model)
        if ":" in name:
            if is_strict or self._is_strict:
                hint = "in a load request" if is_strict else "with --strategy-path-policy=strict"
                raise InvalidArg(
                    f"batching strategy '{name}' of model '{model.name}' is an object to import: {hint} "
                    f"expected the name of an installed strategy, or a file inside the model's directory"
                )
            return BoundStrategy(name, bind_object("batching", _import_object(name), name), model)
        return BoundStrategy(name, self._load(name, model), model)

    def _load(self, name: str, model: Model) -> Binder:
        """The binder of the hooks of an installed strategy."""
        try:
            return self._opener.load(name)
        except NotFound as exc:
            raise NotFound(
                f"{exc.message} (model '{model.name}', parameter {PATH_PARAMETER}; a path has a '/' in "
                f"it, or ends in .so or .py)"
            ) from exc

    def _resolve(self, name: str, model: Model, is_strict: bool) -> Path:
        candidates = [Path(name)]
        if not candidates[0].is_absolute():
            candidates = [model.version_directory / name, model.directory / name]
        path = next((each for each in candidates if name and os.path.exists(each)), None)
        if path is None:
            raise NotFound(
                f"Batching library path not found: {name} (model '{model.name}', parameter {PATH_PARAMETER}; "
                f"searched: {', '.join(map(str, candidates))})"
            )
        if is_strict or self._is_strict:
            hint = "never in a load request" if is_strict else "--strategy-path-policy=any allows it"
            _check_inside(path, name, model, hint)
        return path

    def _from_file(self, path: Path, model: Model) -> BoundStrategy:
        if not os.path.isfile(path):
            raise NotFound(
                f"unable to load shared library: {path} is no file (model '{model.name}'; a batching "
                f"strategy is a shared object or a file of Python)"
            )
        return BoundStrategy(str(path), self._opener.open(path), model)

    def _backend_directories(self, backend: BoundBackend) -> list[Path]:
        """The directories of strategies for all models of a backend."""
        if backend.handle.directory is not None:
            return [backend.handle.directory]
        name = backend.name
        if not self._backend_directory or not is_filename(name):
            return []
        return [Path(self._backend_directory).absolute() / name]


def _named(model: Model) -> str | None:
    """The strategy that the configuration names; None if it names none."""
    parameter = model.config.get("parameters", {}).get(PATH_PARAMETER)
    return None if parameter is None else model.parameter(PATH_PARAMETER)


def _check_beside_sequences(name: str | None, model: Model) -> None:
    if name is not None:
        raise InvalidArg(
            f"{PATH_PARAMETER} cannot be specified with sequence batcher, using default batching strategy "
            f"(model '{model.name}' has '{name}')"
        )
    path = _file_beside(model)
    if path is not None:
        _log.warning(UNASKED, path, model.name, "has sequence_batching")


def _file_beside(model: Model) -> Path | None:
    """The file of a model's strategy; a path that is no file is returned too, and refused later."""
    directories = (model.version_directory, model.directory)
    paths = [directory / filename for directory in directories for filename in _FILENAMES]
    return next((path for path in paths if os.path.lexists(path)), None)


def _check_inside(path: Path, name: str, model: Model, hint: str) -> None:
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(model.directory)):
        raise InvalidArg(
            f"Batching library path escapes model repository: {name} (model '{model.name}'; {hint})"
        )


def _import_object(name: str) -> object:
    module_name, _, attribute = name.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as exc:
        raise Internal(f"batching strategy '{name}' cannot be imported: {type(exc).__name__}: {exc}") from exc
    return found
