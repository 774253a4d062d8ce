"""Operators that are run once after a model is loaded, named in a file beside it."""

from __future__ import annotations

import json
from pathlib import Path

from tritonpy.plugin import InvalidArg, Model, Unavailable

from tritonpy_backend_tensorflow.settings import INIT_OPS


def read_init_ops(model: Model, filename: str) -> tuple[str, ...]:
    """Read names of operators: `{"init_ops": ["first", "second"]}`.

    Args:
        model: whose; the file lies in the directory of its version, or in that of the model.
        filename: what the parameter says; "" for none.

    Raises:
        Unavailable: there is no such file.
        InvalidArg: it is none of this form, or leads out of these directories.
    """
    if not filename:
        return ()
    if filename.startswith("/") or ".." in Path(filename).parts:
        raise InvalidArg(
            f"parameter '{INIT_OPS}' of model '{model.name}' is '{filename}': expected a path inside the "
            "model's "
            "directory, neither absolute nor with '..'"
        )
    path = next((each for each in _places(model, filename) if each.is_file()), None)
    if path is None:
        raise Unavailable(
            f"unable to find '{filename}' of parameter '{INIT_OPS}' for model '{model.name}', searched: "
            f"{', '.join(repr(str(each)) for each in _places(model, filename))}"
        )
    try:
        names = json.loads(path.read_text())["init_ops"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("expected a list of names")
    except (ValueError, KeyError, TypeError) as exc:
        raise InvalidArg(
            f"'{path}' of parameter '{INIT_OPS}' of model '{model.name}': expected "
            f'{{"init_ops": ["name of an operator"]}}: {type(exc).__name__}: {exc}'
        ) from exc
    return tuple(names)


def _places(model: Model, filename: str) -> tuple[Path, Path]:
    return model.version_directory / filename, model.directory / filename
