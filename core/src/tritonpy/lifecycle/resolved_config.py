"""From a model's files to its settled configuration, in the two steps around the backend's completion."""

from __future__ import annotations

from pathlib import Path

from tritonpy.config.complete import complete_backend, normalize
from tritonpy.config.load import MAX_CONFIG_BYTE_SIZE, find_config, load_config, parse_config_json
from tritonpy.config.read import config_from_dict
from tritonpy.config.validate import (
    validate_complete,
    validate_files,
    validate_structure,
    validate_tensors,
)
from tritonpy.config.write import config_to_dict
from tritonpy.devices.gpus import NO_GPUS, Gpus
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.handles import BackendAttributes, JsonObject
from tritonpy.protos import ModelConfig
from tritonpy.repository.layout import CONFIG_FILENAME, ModelDirectory


def read_config(directory: ModelDirectory, *, is_strict: bool = False, config_name: str = "") -> ModelConfig:
    """Read a model's configuration with `read_given_config`, and check it with `check_config`.

    For tools that only look at a model: its repository agents are not asked.
    """
    config = read_given_config(directory, is_strict=is_strict, config_name=config_name)
    check_config(config, directory, is_strict=is_strict)
    return config


def read_given_config(
    directory: ModelDirectory,
    *,
    is_strict: bool = False,
    override: str | None = None,
    config_name: str = "",
    max_byte_size: int = MAX_CONFIG_BYTE_SIZE,
) -> ModelConfig:
    """Read a model's configuration; nothing is filled in or judged.

    Args:
        directory: the model.
        is_strict: a model without a configuration file is refused, because nothing completes one.
        override: a configuration as JSON that stands in for the file.
        config_name: which of several configurations; see `find_config`.
        max_byte_size: how large the configuration may be.

    Raises:
        TritonError: why the model cannot even be tried.
    """
    if override is not None:
        try:
            config = parse_config_json(override, directory.name, max_byte_size=max_byte_size)
        except InvalidArg as exc:
            raise InvalidArg(f"Invalid config override: {exc}") from exc
    elif (path := find_config(directory.path, config_name)) is not None:
        config = load_config(path, max_byte_size=max_byte_size)
    elif is_strict:
        raise NotFound(
            f"failed to open text file for read {directory.path / CONFIG_FILENAME}: No such file or "
            f"directory; with --disable-auto-complete-config every model needs one"
        )
    else:
        config = ModelConfig()
    return config


def check_config(config: ModelConfig, directory: ModelDirectory, *, is_strict: bool = False) -> None:
    """Derive a model's backend, and check the fields that no backend may change.

    Args:
        config: as it was read; the backend is filled in.
        directory: where the model's files are.
        is_strict: inputs and outputs are checked, too, because no backend completes them.

    Raises:
        TritonError: why the model cannot even be tried.
    """
    config.name = config.name or directory.name
    complete_backend(config, directory.path, directory.versions[0] if directory.versions else None)
    validate_structure(config, directory.name)
    if is_strict:
        validate_tensors(config)


def proposed_config(config: ModelConfig, attributes: BackendAttributes, gpus: Gpus = NO_GPUS) -> JsonObject:
    """The configuration that the backend is to complete: the file's, with derived names and defaults."""
    if not config.default_model_filename:
        config.default_model_filename = attributes.default_filename
    normalize(config, attributes.preferred_groups, gpus.ids, uses_gpus=attributes.uses_gpus)
    return config_to_dict(config)


def settled_config(
    document: JsonObject,
    attributes: BackendAttributes,
    directory: Path,
    gpus: Gpus = NO_GPUS,
    *,
    name: str = "",
    proposed: ModelConfig | None = None,
) -> JsonObject:
    """Normalise and check what the backend made of the configuration.

    Args:
        document: the configuration.
        attributes: of the backend.
        directory: the model's.
        gpus: where it can be placed beside the CPU.
        name: the model, if its directory is not called like it.
        proposed: the configuration that the backend was asked to complete; where the document says the same,
            it is not read once more.

    Raises:
        InvalidArg: a field is unknown, or a rule is broken.
        Internal: a label file is not there.
    """
    name = name or directory.name
    if proposed is None or document != config_to_dict(proposed):
        proposed = config_from_dict(document, name)
        validate_structure(proposed, name)
        normalize(proposed, attributes.preferred_groups, gpus.ids, uses_gpus=attributes.uses_gpus)
        document = config_to_dict(proposed)
    validate_complete(proposed, gpus.ids, gpus.min_compute_capability)
    validate_files(proposed, directory)
    return document
