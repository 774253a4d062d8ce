"""Which file of a model's directory is its configuration."""

from __future__ import annotations

import os
from pathlib import Path

from tritonpy.config.load import FORMS
from tritonpy.errors import InvalidArg

CONFIG_NAMES_DIRECTORY = "configs"
"""Where, in a model's directory, configurations lie that are chosen by name."""

_DEFAULT_NAME = "config"


def find_config(directory: Path, config_name: str = "") -> Path | None:
    """The configuration file of a model; None if it has none. Blocking.

    Args:
        directory: of the model.
        config_name: `configs/<config_name>.pbtxt` is taken where it is there, in whichever form, and
            `config.pbtxt` otherwise; "" for always the latter. See `check_config_name`.

    Raises:
        InvalidArg: two files are there, and which of them counts nobody can know.
    """
    if config_name:
        named = _single_file(directory / CONFIG_NAMES_DIRECTORY, config_name)
        if named is not None:
            return named
    return _single_file(directory, _DEFAULT_NAME)


def _single_file(directory: Path, stem: str) -> Path | None:
    # Also a link that leads nowhere: a model whose configuration cannot be read is not one that has none.
    present = [path for path in (directory / f"{stem}{suffix}" for suffix in FORMS) if os.path.lexists(path)]
    if len(present) > 1:
        raise InvalidArg(
            f"{directory} has {' and '.join(path.name for path in present)}: expected one of them, because "
            f"a model has one configuration"
        )
    return present[0] if present else None


def check_config_name(name: str) -> None:
    """Refuse a name that is not the name of one file in a model's `configs`.

    Raises:
        InvalidArg: says what a name must not have.
    """
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise InvalidArg(
            f"'{name}' is no name of a configuration: expected the name of a file in the models' "
            f"'{CONFIG_NAMES_DIRECTORY}', without '.pbtxt', '/' and NUL and not beginning with '.' "
            f"(--model-config-name)"
        )
