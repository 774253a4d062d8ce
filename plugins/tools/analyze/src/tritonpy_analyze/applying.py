"""Putting a configuration where a model's is: at once or not at all, and the old one beside it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tritonpy.config.load import FORMS
from tritonpy.config.read import config_from_dict
from tritonpy.config.write import write_config

JsonObject = dict[str, Any]  # Any: JSON


def config_text(config: JsonObject, model: str, path: Path | None = None) -> str:
    """A configuration as the text of a file, in the form that its name tells."""
    form = FORMS.get(path.suffix, "pbtxt") if path is not None else "pbtxt"
    return write_config(config_from_dict(config, model), form)


def apply(text: str, path: Path) -> Path | None:
    """Write a configuration.

    Args:
        text: of it.
        path: the file; what is there is kept as `NAME.bak`, which is overwritten.

    Returns:
        Where the old one is kept; None if there was none.

    Raises:
        OSError: it cannot be written; then the old one is where it was.
    """
    kept = None
    if path.exists():
        kept = path.with_name(f"{path.name}.bak")
        _replace(kept, path.read_text())
    _replace(path, text)
    return kept


def _replace(path: Path, text: str) -> None:
    """A reader sees the old file or the whole new one, also after a loss of power."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
