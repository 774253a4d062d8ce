from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.config.named_files import (
    check_model_files,
    check_named_file,
    check_sent_files,
    label_path,
    named_files,
    read_labels,
    read_named_file,
    read_states,
)
from tritonpy.config.read import config_from_dict
from tritonpy.errors import Internal, InvalidArg
from tritonpy.protos import ModelConfig

OUTSIDE = ["/etc/passwd", "../secret", "sub/../../secret", "sub/..", "..", "a\0b"]


def naming(field: str, path: str) -> ModelConfig:
    """A configuration with one field that names a file."""
    text = {"string_value": path}
    fields: dict[str, object] = {
        "default_model_filename": {"default_model_filename": path},
        "cc_model_filenames": {"cc_model_filenames": {"8.0": path}},
        "label_filename": {"output": [{"name": "Y", "label_filename": path}]},
        "op_library_filename": {"model_operations": {"op_library_filename": [path]}},
        "data_file": {
            "sequence_batching": {"state": [{"initial_state": [{"name": "s", "data_file": path}]}]}
        },
        "input_data_file": {"model_warmup": [{"name": "w", "inputs": {"X": {"input_data_file": path}}}]},
        "parameter EXECUTION_ENV_PATH": {"parameters": {"EXECUTION_ENV_PATH": text}},
        "parameter TRITON_BATCH_STRATEGY_PATH": {"parameters": {"TRITON_BATCH_STRATEGY_PATH": text}},
    }
    return config_from_dict(fields[field], "m")  # type: ignore[arg-type]


FIELDS = [
    "default_model_filename",
    "cc_model_filenames",
    "label_filename",
    "op_library_filename",
    "data_file",
    "input_data_file",
    "parameter EXECUTION_ENV_PATH",
    "parameter TRITON_BATCH_STRATEGY_PATH",
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model beside something that is none of its business."""
    directory = tmp_path / "m"
    for below in ("1", "warmup", "initial_state"):
        (directory / below).mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    return directory


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_that_names_a_file_is_known(field: str) -> None:
    (file,) = named_files(naming(field, "dir/some.py"))

    assert (file.field, file.path) == (field, "dir/some.py")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("path", OUTSIDE)
def test_a_load_request_names_no_file_outside_of_the_model(model: Path, field: str, path: str) -> None:
    if "STRATEGY" in field and "/" not in path:
        path = f"{path}/x"

    with pytest.raises(
        InvalidArg, match="a load request names files inside the model's directory only"
    ) as error:
        check_sent_files(naming(field, path), model, (1,), ())

    assert str(error.value).startswith(f"'{field}' of model 'm' is '{path}'")


@pytest.mark.parametrize("field", FIELDS)
def test_a_load_request_names_files_of_the_model(model: Path, field: str) -> None:
    (model / "1/real.py").write_text("")
    (model / "1/link.py").symlink_to("real.py")

    for path in ("real.py", "link.py", "not/there.py"):
        check_sent_files(naming(field, path), model, (1,), ())


@pytest.mark.parametrize("field", FIELDS)
def test_a_load_request_goes_through_no_link_that_leads_out(model: Path, tmp_path: Path, field: str) -> None:
    for base in (".", "1", "warmup", "initial_state"):
        (model / base / "out").symlink_to(tmp_path)
        (model / base / "link.py").symlink_to(tmp_path / "secret")

    for path in ("out/secret", "link.py"):
        with pytest.raises(InvalidArg, match="nor through a symbolic link that leads out"):
            check_sent_files(naming(field, path), model, (1,), ())


def test_links_that_the_models_owner_names_are_followed(model: Path, tmp_path: Path) -> None:
    (model / "labels.txt").symlink_to(tmp_path / "secret")
    (model / "1/model.onnx").symlink_to(tmp_path / "secret")
    (model / "1/weights").symlink_to(tmp_path / "secret")

    check_sent_files(naming("label_filename", "labels.txt"), model, (1,), {"labels.txt"})
    check_sent_files(naming("default_model_filename", "model.onnx"), model, (1,), ())
    with pytest.raises(InvalidArg, match="'default_model_filename' of model 'm' is 'weights'"):
        check_sent_files(naming("default_model_filename", "weights"), model, (1,), ())


def test_a_link_in_a_circle_is_refused_and_a_long_name_is_not_repeated(model: Path) -> None:
    (model / "circle").symlink_to("circle")

    for path in ("circle", "../" + "x" * 5000):
        with pytest.raises(InvalidArg, match="a load request names files inside") as error:
            check_sent_files(naming("label_filename", path), model, (1,), ())
        assert len(str(error.value)) < 500


def test_an_environment_may_be_named_from_the_models_directory_on(model: Path) -> None:
    for path in ("$$TRITON_MODEL_DIRECTORY/env.tar.gz", "$$TRITON_MODEL_DIRECTORY/envs/a"):
        check_sent_files(naming("parameter EXECUTION_ENV_PATH", path), model, (1,), ())

    with pytest.raises(InvalidArg, match="parameter EXECUTION_ENV_PATH"):
        check_sent_files(
            naming("parameter EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/../secret"), model, (1,), ()
        )


@pytest.mark.parametrize("field", ["default_model_filename", "cc_model_filenames"])
@pytest.mark.parametrize("path", OUTSIDE)
def test_no_configuration_names_a_model_file_outside_of_the_version(field: str, path: str) -> None:
    with pytest.raises(InvalidArg, match="expected a path inside the version directory") as error:
        check_model_files(naming(field, path), "m")

    assert str(error.value).startswith(f"'{field}' of model 'm' is ")


@pytest.mark.parametrize("path", ["model.py", "sub/model.py", "a..b", "./model.py", ""])
def test_model_files_may_lie_deeper(path: str) -> None:
    check_model_files(naming("default_model_filename", path), "m")


def test_a_label_file_is_below_the_model_also_if_it_begins_with_a_slash(tmp_path: Path) -> None:
    assert label_path(tmp_path, "/etc/labels.txt") == tmp_path / "etc/labels.txt"
    assert label_path(tmp_path, "../labels.txt") == tmp_path / "../labels.txt"


def test_what_is_no_regular_file_is_not_read_and_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "device").symlink_to("/dev/zero")
    reasons = {
        "pipe": "it is no regular file",
        "directory": "it is no regular file",
        "device": "it is no regular file",
        "circle": "Too many levels of symbolic links",
        "nope": "No such file or directory",
        "a\0b": "embedded null byte",
        "x" * 300: "File name too long",
    }

    for name, reason in reasons.items():
        for call in (read_named_file, check_named_file):
            with pytest.raises(Internal, match=f"failed to open text file for read .*: {reason}"):
                call(tmp_path / name)


def test_a_file_is_read_through_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\n")
    (tmp_path / "link").symlink_to("file")

    check_named_file(tmp_path / "link")
    assert read_named_file(tmp_path / "link") == b"a\n"


def test_a_line_is_a_label_whatever_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"cat\nbig dog\n\n  lead\ncrlf\r\n\xff\nlast")
    config = {"output": [{"name": "OUTPUT0", "label_filename": "labels.txt"}, {"name": "OUTPUT1"}]}

    labels = read_labels(config, tmp_path)

    assert labels == {"OUTPUT0": [b"cat", b"big dog", b"", b"  lead", b"crlf\r", b"\xff", b"last"]}


def test_the_end_of_the_last_line_begins_no_other(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"cat\ndog\n")
    (tmp_path / "empty.txt").write_bytes(b"")
    config = {
        "output": [
            {"name": "OUTPUT0", "label_filename": "labels.txt"},
            {"name": "OUTPUT1", "label_filename": "empty.txt"},
        ]
    }

    assert read_labels(config, tmp_path) == {"OUTPUT0": [b"cat", b"dog"], "OUTPUT1": []}


def test_a_model_without_label_files_has_none(tmp_path: Path) -> None:
    assert read_labels({"output": [{"name": "OUTPUT0", "label_filename": ""}]}, tmp_path) == {}
    assert read_labels({}, tmp_path) == {}


def test_a_missing_label_file_is_named(tmp_path: Path) -> None:
    config = {"output": [{"name": "OUTPUT0", "label_filename": "nope.txt"}]}

    with pytest.raises(
        Internal, match=f"failed to open text file for read {tmp_path}/nope.txt: No such file"
    ):
        read_labels(config, tmp_path)


def config(file: str) -> dict[str, Any]:
    initial = {"name": "start", "data_type": "TYPE_INT32", "dims": [2], "data_file": file}
    state = {"input_name": "IN", "output_name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}
    return {
        "name": "m",
        "max_batch_size": 2,
        "sequence_batching": {"state": [{**state, "initial_state": [initial]}]},
    }


def write(directory: Path, name: str, *values: int) -> None:
    path = directory / "initial_state" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.array(values, np.int32).tobytes())


def test_a_model_without_states_has_none(tmp_path: Path) -> None:
    assert read_states({"name": "m"}, tmp_path) is None
    assert read_states({"name": "m", "sequence_batching": {}}, tmp_path) is None


@pytest.mark.parametrize("name", ["start", "below/start"])
def test_a_state_begins_with_what_is_in_its_file(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, 7, -8)

    states = read_states(config(name), tmp_path)

    assert states is not None
    assert states.fresh().tensor("IN").numpy().tolist() == [[7, -8]]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        Internal, match=r"failed to open text file for read .*/initial_state/start: No such file"
    ):
        read_states(config("start"), tmp_path)


@pytest.mark.parametrize("name", ["", "..", "../start", "/etc/hostname", "a\0b"])
def test_a_file_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, "start", 7, -8)
    (tmp_path / "start").write_bytes(bytes(8))

    with pytest.raises(InvalidArg, match="initial_state setting expects 'data_file' to name a file below"):
        read_states(config(name), tmp_path)


def test_a_file_that_is_too_small_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "start", 7)

    with pytest.raises(
        InvalidArg, match="expects 8 bytes, but the data provided from start only has 4 bytes"
    ):
        read_states(config("start"), tmp_path)
