"""The files of one model version, and what they are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tritonpy.plugin import InvalidArg, Model, Unavailable

_GRAPH_NAMES = ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb")


class Format(StrEnum):
    """The two formats that are served, as `platform` calls them."""

    SAVED_MODEL = "tensorflow_savedmodel"
    GRAPH_DEF = "tensorflow_graphdef"


DEFAULT_NAMES = {Format.SAVED_MODEL: "model.savedmodel", Format.GRAPH_DEF: "model.graphdef"}
"""What is looked for where a configuration says nothing."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What is loaded.

    Attributes:
        path: a directory for a SavedModel, a file for a GraphDef.
        format: which of them.
    """

    path: Path
    format: Format


def find_files(model: Model, filename: str = "") -> ModelFiles:
    """Find the files of a model version.

    Args:
        model: whose; `platform` says the format, and without it the content does.
        filename: the model's file or directory; "" for `default_model_filename`. Where there is none, the
            version directory itself may be a SavedModel.

    Raises:
        InvalidArg: `platform` is none of TensorFlow's, or the files are of another format.
        Unavailable: there are none.
    """
    platform = model.config.get("platform", "")
    if platform not in ("", *Format):
        raise InvalidArg(f"platform {platform} not supported for TensorFlow model '{model.name}'")
    wanted = Format(platform) if platform else None
    filename = filename or model.config.get("default_model_filename", "")
    folder = model.version_directory
    names = (
        (filename,) if filename else tuple(DEFAULT_NAMES[each] for each in Format if wanted in (None, each))
    )
    path = next((folder / name for name in names if (folder / name).exists()), None)
    if path is None and wanted is not Format.GRAPH_DEF and _is_saved_model(folder):
        return ModelFiles(folder, Format.SAVED_MODEL)  # as TensorFlow Serving has them
    if path is None:
        raise Unavailable(
            f"unable to find '{folder / names[0]}' for model instance '{model.name}'"
            + _advice(folder, wanted)
        )
    found = _format_of(path, model.name)
    if wanted not in (None, found):
        raise InvalidArg(
            f"'{path}' of model '{model.name}' is {_said(found)}, and platform '{platform}' wants "
            f'{_said(Format(platform))}; write platform: "{found}", or leave it out'
        )
    return ModelFiles(path, found)


def _format_of(path: Path, model_name: str) -> Format:
    if path.is_dir():
        if any((path / name).is_file() for name in _GRAPH_NAMES):
            return Format.SAVED_MODEL
        inside = next((child for child in sorted(path.iterdir()) if _is_saved_model(child)), None)
        what = "a directory without saved_model.pb"
        if inside is not None:
            what += f"; the SavedModel is in '{inside.name}' inside of it, and has to lie there itself"
        raise InvalidArg(f"'{path}' of model '{model_name}' is {what}{_checkpoint_advice(path)}")
    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(b"PK"):
        raise InvalidArg(f"'{path}' of model '{model_name}' is an archive, {_KERAS}")
    if head.startswith(b"\x89HDF"):
        raise InvalidArg(f"'{path}' of model '{model_name}' is an HDF5 file, {_KERAS}")
    if head[4:8] == b"TFL3":
        raise InvalidArg(
            f"'{path}' of model '{model_name}' is a TensorFlow Lite model; the backend 'litert' serves it: "
            "call it model.tflite and leave the platform out (pip install 'tritonpy-backend-litert[cpu]')"
        )
    if head.startswith(b"version "):
        raise InvalidArg(
            f"'{path}' of model '{model_name}' is a Git LFS pointer; `git lfs pull` fetches the file"
        )
    return Format.GRAPH_DEF


_KERAS = (
    "as Keras saves models: code and weights, which only Keras reads. Export it: "
    "python -c \"import keras; keras.models.load_model('model.keras').export('model.savedmodel')\""
)
_CHECKPOINT = (
    "is a checkpoint of TensorFlow: weights without a graph. Export it, in TensorFlow 2 by "
    "tf.saved_model.save(module, 'model.savedmodel', signatures=...) and in TensorFlow 1 by "
    "tf.compat.v1.saved_model.simple_save(session, 'model.savedmodel', inputs={...}, outputs={...})"
)


def _advice(folder: Path, wanted: Format | None) -> str:
    """A sentence on what lies in a version directory in the place of a model; "" for nothing known."""
    other = next((each for each in Format if wanted not in (None, each)), None)
    if other is not None and (folder / DEFAULT_NAMES[other]).exists():
        return f"; there is '{DEFAULT_NAMES[other]}': write platform: \"{other}\", or leave it out"
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return ""
    for name in names:
        if name.endswith((".keras", ".h5")):
            return (
                f"; '{name}' is a file as Keras saves models: code and weights, {_KERAS.partition(', ')[2]}"
            )
    found = next(
        (name for name in names if (folder / name).is_dir() and _is_saved_model(folder / name)), None
    )
    if found is not None:
        advice = f"; there is a SavedModel '{found}': write default_model_filename: \"{found}\""
        return advice + (f' and platform: "{other}"' if other is Format.SAVED_MODEL else "")
    return _checkpoint_advice(folder)


def _checkpoint_advice(folder: Path) -> str:
    index = next((path for path in sorted(folder.iterdir()) if path.name.endswith(".index")), None)
    return f"; '{index.stem}' {_CHECKPOINT}" if index is not None else ""


def _is_saved_model(path: Path) -> bool:
    return any((path / name).is_file() for name in _GRAPH_NAMES)


def _said(format_: Format) -> str:
    return "a SavedModel" if format_ is Format.SAVED_MODEL else "a GraphDef"
