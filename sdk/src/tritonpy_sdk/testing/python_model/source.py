"""Source of a Python model: its directory and configuration, found and settled as by a server."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tritonpy.config.complete import complete_backend, normalize
from tritonpy.config.load import find_config, load_config, parse_config
from tritonpy.config.read import config_from_dict
from tritonpy.config.validate import validate_complete, validate_files, validate_structure
from tritonpy.config.write import config_to_dict
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.handles import BackendAttributes, JsonObject
from tritonpy.lifecycle.resolved_config import proposed_config
from tritonpy.protos import ModelConfig

from tritonpy_sdk.repository import Config

_LAYOUT = "expected <model>, <model>/<version> or <model>/<version>/model.py"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One version of a Python model on disk.

    Attributes:
        directory: the model's; its name is the model's name.
        version: the number of the version directory.
        config: the configuration as it stands before the model has completed it.
        attributes: what the backend says of itself.
    """

    directory: Path
    version: int
    config: JsonObject
    attributes: BackendAttributes

    @property
    def version_directory(self) -> Path:
        """The directory of its `model.py`."""
        return self.directory / str(self.version)

    def settle(self, complete: Callable[[], JsonObject | None], device_id: int) -> JsonObject:
        """Have the model complete the configuration, then make every default explicit and check the whole.

        Args:
            complete: what the model makes of it; None for no change.
            device_id: a GPU that is taken to be there, along with those that the configuration names.

        Raises:
            InvalidArg: a server would refuse the configuration; the text is its.
        """
        completed = complete()
        config = config_from_dict(self.config if completed is None else completed, self.directory.name)
        validate_structure(config, self.directory.name)
        gpus = _named_gpus(config, device_id)
        normalize(config, self.attributes.preferred_groups, gpus)
        validate_complete(config, gpus)
        validate_files(config, self.directory)
        return config_to_dict(config)


def find_model(
    path: str | os.PathLike[str], config: Config | None, attributes: BackendAttributes
) -> ModelSource:
    """Find out which model version `path` means and read its configuration.

    Args:
        path: of a model directory, whose highest version is meant, a version directory, or a model file.
        config: stands for the configuration file, which is read where it is None.
        attributes: what the backend says of itself.

    Raises:
        NotFound: there is nothing at `path`, or it is no part of a model.
        InvalidArg: the configuration cannot be read, is not sound, or is for another backend or file.
    """
    directory, version, filename = _locate(Path(path).absolute())
    name = directory.name
    if config is None:
        file = find_config(directory)
        message = load_config(file) if file is not None else ModelConfig()
    elif isinstance(config, str):
        message = parse_config(config, "config")
    else:
        message = config_from_dict(config, name)
    complete_backend(message, directory, version)
    validate_structure(message, name)
    if message.backend != "python":
        raise InvalidArg(f"model '{name}' is for backend '{message.backend}', expected 'python'")
    document = proposed_config(message, attributes)
    configured = document["default_model_filename"]
    if filename not in ("", configured):
        raise InvalidArg(
            f"model '{name}': got the file '{filename}', but a server loads '{configured}'; "
            f"default_model_filename in the configuration names another one"
        )
    return ModelSource(directory, version, document, attributes)


def _locate(path: Path) -> tuple[Path, int, str]:
    """Model directory, version, and the name of the model file where the path is one."""
    if not path.exists():
        raise NotFound(f"no model at {path}: there is nothing; {_LAYOUT}")
    filename = ""
    if path.is_file():
        filename, path = path.name, path.parent
        if not _is_version(path.name):
            raise NotFound(f"no model at {path / filename}: '{path.name}' is no version number; {_LAYOUT}")
    if _is_version(path.name):
        return path.parent, int(path.name), filename
    versions = [int(child.name) for child in path.iterdir() if child.is_dir() and _is_version(child.name)]
    if not versions:
        raise NotFound(f"no model at {path}: it has no version directory; {_LAYOUT}")
    return path, max(versions), filename


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and (len(name) == 1 or name[0] != "0")


def _named_gpus(config: ModelConfig, device_id: int) -> list[int]:
    """The devices to take as present, so that a model for GPUs can be tested without one."""
    groups = [group for group in config.instance_group if group.kind == group.KIND_GPU]
    return sorted({device_id, *(gpu for group in groups for gpu in group.gpus)}) if groups else []
