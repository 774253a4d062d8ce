"""A model's `model.py`: imported once, asked to complete the configuration, made into an instance."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

import triton_python_backend_utils as pb_utils
from triton_python_backend_utils._model_dir import forget_model_dir, set_model_dir

from .failure import BadResult
from .shared_imports import SharedImports
from .sources import forget_directory, import_from_source, spec_of

JsonObject = dict[str, Any]  # Any: JSON


RUNTIME_FILENAME = "model.py"
"""The file of a backend that is written in Python itself."""


class ModelFile:
    """The file that holds `class TritonPythonModel`.

    Args:
        spec: what SETUP says: name, version, directory, config, the backend's settings, and the backend's
            directory when it is the backend's file that serves all its models.
        package: what the version directory is imported as; its number, as in Triton, unless several models
            share this process.
        keeps_apart: others in this process are to see nothing of what this one imports, nor it of theirs.
    """

    def __init__(self, spec: JsonObject, package: str | None = None, *, keeps_apart: bool = False) -> None:
        self.name: str = spec["name"]
        self.version = str(spec["version"])
        self._package = package or self.version
        self._keeps_apart = keeps_apart
        self._imports: SharedImports | None = None
        self.directory: str = spec["directory"]
        self.config: JsonObject = spec["config"]
        self.settings: dict[str, str] = spec.get("settings") or {}
        self._version_directory = os.path.join(self.directory, self.version)
        self._backend_directory: str | None = spec.get("backend_directory")
        if self._backend_directory is not None:
            self.path = os.path.join(self._backend_directory, RUNTIME_FILENAME)
        else:
            filename = self.config.get("default_model_filename") or "model.py"
            self.path = os.path.join(self._version_directory, filename)
        self._class: Any = None  # Any: the model's own class
        self._source_directory: str | None = None  # once something has been imported from it

    def complete(self) -> str | None:
        """Have the model complete its configuration.

        Returns:
            The configuration as JSON, or None when the model has no `auto_complete_config`.
        """
        complete = getattr(self._model_class(), "auto_complete_config", None)
        if complete is None:
            return None
        completed = complete(pb_utils.ModelConfig(json.dumps(self.config)))
        if not isinstance(completed, pb_utils.ModelConfig):
            raise BadResult(
                f"auto_complete_config function in model '{self.name}' must return a valid "
                f"pb.ModelConfig object."
            )
        return json.dumps(completed.as_dict())

    def instantiate(self, instance: JsonObject) -> Any:  # Any: the model's own class
        """Make the model and initialize it.

        Args:
            instance: what INITIALIZE says: name, kind, device_id, config.
        """
        model = self._model_class()()
        initialize = getattr(model, "initialize", None)
        if initialize is not None:
            initialize(
                {
                    "model_config": json.dumps(instance["config"], separators=(",", ":")),
                    "model_instance_kind": instance["kind"].replace("KIND_", "", 1),
                    "model_instance_name": instance["name"],
                    "model_instance_device_id": str(instance["device_id"]),
                    "model_repository": self.directory,
                    "model_version": self.version,
                    "model_name": self.name,
                }
            )
        return model

    def forget(self) -> None:
        """The model is gone; for a process that goes on without it."""
        if self._imports is not None:
            self._imports.forget()
        if self._source_directory is not None:
            forget_directory(self._source_directory)
            forget_model_dir(self._version_directory)
            self._source_directory = None

    def _model_class(self) -> Any:  # Any: the model's own class
        if self._class is None:
            self._class = self._import().TritonPythonModel
        return self._class

    def _import(self) -> ModuleType:
        if not os.path.isfile(self.path):
            raise BadResult(f"model '{self.name}': expected its model file at {self.path}, which is no file")
        set_model_dir(self._version_directory)
        if self._backend_directory is not None:
            directories = [self._backend_directory]
        else:
            directories = [self._version_directory, self.directory]
        self._source_directory = directories[-1]
        import_from_source(self._source_directory)
        if not self._keeps_apart:
            sys.path += directories
            return self._run()
        self._imports = SharedImports(directories, self._package)
        with self._imports.own():
            return self._run()

    def _run(self) -> ModuleType:
        name, _, _ = os.path.basename(self.path).rpartition(".")
        if self._backend_directory is None:
            # A member of the version directory, so that `from .other import …` works, as in Triton.
            package = sys.modules[self._package] = ModuleType(self._package)
            package.__path__ = [self._version_directory]
            name = f"{self._package}.{name}"
        spec = spec_of(name, self.path)
        if spec is None or spec.loader is None:
            raise BadResult(f"model '{self.name}': {self.path} is no Python file; its name must end in .py")
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
