"""The files of one model version, and what they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritonpy.plugin import InvalidArg, Model, Unavailable

from tritonpy_backend_pytorch.contents import LOADABLE, Contents, Kind, read_contents

MODEL_FILENAME = "model.pt"
SOURCE_FILENAME = "model.py"
_NAMES = ("model.pt", "model.pt2", "model.safetensors")
_WEIGHTS = (".pt", ".safetensors", ".pth", ".bin")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What is loaded.

    Attributes:
        path: the model, or its weights where `source` is given.
        contents: what that is; of the source file where there are no weights.
        source: the `model.py` with the class of the module; None for files that hold their code.
    """

    path: Path
    contents: Contents
    source: Path | None = None


def find_files(model: Model, filename: str = "") -> ModelFiles:
    """Find the files of a model version by what they hold.

    Args:
        model: whose.
        filename: the model's file; "" for `default_model_filename`.

    Raises:
        Unavailable: there is none.
        InvalidArg: it is nothing that loads.
    """
    folder = model.version_directory
    filename = filename or model.config.get("default_model_filename", "") or MODEL_FILENAME
    if model.config.get("runtime") == SOURCE_FILENAME:
        names: tuple[str, ...] = (filename, SOURCE_FILENAME, MODEL_FILENAME)
    elif filename in _NAMES:  # the server has filled it in, or it could have
        names = (filename, *_NAMES, SOURCE_FILENAME)
    else:
        names = (filename,)
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise Unavailable(f"unable to find '{folder / filename}' for model instance '{model.name}'")
    return _with_source(model, path, read_contents(path))


def _with_source(model: Model, path: Path, contents: Contents) -> ModelFiles:
    source = path.with_name(SOURCE_FILENAME)
    if contents.kind is Kind.SOURCE:
        for suffix in _WEIGHTS:
            weights = path.with_suffix(suffix)
            if weights.is_file():
                found = read_contents(weights)
                if found.kind in (Kind.PICKLE, Kind.SAFETENSORS):
                    return ModelFiles(weights, found, path)
        return ModelFiles(path, contents, path)
    if contents.kind not in (Kind.PICKLE, Kind.SAFETENSORS):
        return ModelFiles(path, contents)
    if source.is_file():
        return ModelFiles(path, contents, source)
    if contents.kind is Kind.SAFETENSORS:
        raise InvalidArg(
            f"'{path}' of model '{model.name}' is safetensors: weights without code. Put a "
            f"{SOURCE_FILENAME} with "
            f"the class of the torch.nn.Module beside it; expected {LOADABLE}"
        )
    return ModelFiles(path, contents)
