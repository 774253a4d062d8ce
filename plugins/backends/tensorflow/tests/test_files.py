"""Model files by what a configuration says and by what they are; TensorFlow is not needed for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy.plugin import Backend, InvalidArg, Model, Unavailable
from tritonpy_backend_tensorflow import model_execution
from tritonpy_backend_tensorflow.files import Format, find_files

GRAPH = b"\x0a\x10a GraphDef, almost"


def model(folder: Path, **config) -> Model:
    (folder / "1").mkdir(exist_ok=True)
    return Model("net", 1, config, folder, Backend("tensorflow"))


def put(folder: Path, *names: str, content: bytes = GRAPH) -> None:
    for name in names:
        path = folder / "1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


SAVED, GRAPH_DEF = "model.savedmodel/saved_model.pb", "model.graphdef"


@pytest.mark.parametrize(
    ("files", "config", "name", "format_"),
    [
        ([SAVED], {}, "model.savedmodel", Format.SAVED_MODEL),
        ([GRAPH_DEF], {}, "model.graphdef", Format.GRAPH_DEF),
        ([SAVED, GRAPH_DEF], {}, "model.savedmodel", Format.SAVED_MODEL),
        ([SAVED, GRAPH_DEF], {"platform": "tensorflow_graphdef"}, "model.graphdef", Format.GRAPH_DEF),
        ([SAVED, GRAPH_DEF], {"platform": "tensorflow_savedmodel"}, "model.savedmodel", Format.SAVED_MODEL),
        (["saved_model.pb"], {"platform": "tensorflow_savedmodel"}, "1", Format.SAVED_MODEL),
        (["saved_model.pb"], {"default_model_filename": "model.savedmodel"}, "1", Format.SAVED_MODEL),
        (["other/saved_model.pb"], {"default_model_filename": "other"}, "other", Format.SAVED_MODEL),
        (["text/saved_model.pbtxt"], {"default_model_filename": "text"}, "text", Format.SAVED_MODEL),
        (
            ["frozen.pb"],
            {"default_model_filename": "frozen.pb", "platform": "tensorflow_graphdef"},
            "frozen.pb",
            Format.GRAPH_DEF,
        ),
        (
            ["model.savedmodel"],
            {"default_model_filename": "model.savedmodel"},
            "model.savedmodel",
            Format.GRAPH_DEF,
        ),
    ],
)
def test_platform_file_name_and_content_say_what_is_loaded(tmp_path, files, config, name, format_):
    put(tmp_path, *files)

    found = find_files(model(tmp_path, **config))

    assert (found.path.name, found.format) == (name, format_)


@pytest.mark.parametrize(
    ("files", "config", "error", "message"),
    [
        (
            [SAVED],
            {"platform": "tensorflow"},
            InvalidArg,
            "platform tensorflow not supported for TensorFlow model",
        ),
        ([], {}, Unavailable, "unable to find '.*/1/model.savedmodel' for model instance 'net'$"),
        (
            [],
            {"platform": "tensorflow_graphdef"},
            Unavailable,
            "unable to find '.*/1/model.graphdef' for model instance",
        ),
        (
            [SAVED],
            {"platform": "tensorflow_graphdef", "default_model_filename": "model.savedmodel"},
            InvalidArg,
            "is a SavedModel, and platform 'tensorflow_graphdef' wants a GraphDef; write platform: "
            '"tensorflow_savedmodel"',
        ),
        (
            [GRAPH_DEF],
            {"platform": "tensorflow_savedmodel", "default_model_filename": "model.graphdef"},
            InvalidArg,
            "is a GraphDef, and platform 'tensorflow_savedmodel' wants a SavedModel",
        ),
        (
            ["export/saved_model.pb"],
            {},
            Unavailable,
            "a SavedModel 'export': write default_model_filename: \"export\"$",
        ),
        (
            ["export/saved_model.pb"],
            {"platform": "tensorflow_graphdef"},
            Unavailable,
            'write default_model_filename: "export" and platform: "tensorflow_savedmodel"$',
        ),
        (
            [SAVED],
            {"platform": "tensorflow_graphdef"},
            Unavailable,
            "model.graphdef' .*; there is 'model.savedmodel': write platform: \"tensorflow_savedmodel\", or",
        ),
        (
            [GRAPH_DEF],
            {"platform": "tensorflow_savedmodel"},
            Unavailable,
            "model.savedmodel' .*; there is 'model.graphdef': write platform: \"tensorflow_graphdef\", or",
        ),
        (
            ["model.savedmodel/1/saved_model.pb"],
            {},
            InvalidArg,
            "a directory without saved_model.pb; the SavedModel is in '1' inside of it",
        ),
        (
            ["model.ckpt.index", "model.ckpt.data-00000-of-00001"],
            {},
            Unavailable,
            "'model.ckpt' is a checkpoint of",
        ),
        (
            ["net.keras"],
            {},
            Unavailable,
            r"'net.keras' is a file as Keras saves models.*\.export\('model.savedmodel'",
        ),
    ],
)
def test_files_that_do_not_fit_are_told(tmp_path, files, config, error, message):
    put(tmp_path, *files)

    with pytest.raises(error, match=message):
        find_files(model(tmp_path, **config))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04....", r"is an archive, as Keras saves models.*load_model\('model.keras'\).export"),
        (b"\x89HDF\r\n..", "is an HDF5 file, as Keras saves models"),
        (b"\x1c\x00\x00\x00TFL3....", "is a TensorFlow Lite model"),
        (b"version https://git-lfs.github.com/spec/v1", "`git lfs pull`"),
    ],
)
def test_files_of_other_kinds_are_told_by_their_content(tmp_path, content, message):
    put(tmp_path, "model.graphdef", content=content)

    with pytest.raises(InvalidArg, match=message):
        find_files(model(tmp_path))


def test_models_with_operators_of_their_own_run_in_processes(tmp_path):
    operations = {"model_operations": {"op_library_filename": ["ops.so"]}}

    assert model_execution(model(tmp_path)) is None
    assert model_execution(model(tmp_path, **operations)) == "process"
