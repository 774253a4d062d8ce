from __future__ import annotations

import os

import pytest
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.pbtxt import format_config


def test_python_model_lies_where_a_server_looks_for_it(tmp_path):
    repository = ModelRepository(tmp_path / "models")

    directory = repository.python("echo", "    x = 1\n    y = 2\n", config='backend: "python"\n')

    assert directory == tmp_path / "models" / "echo"
    assert (directory / "1" / "model.py").read_text() == "x = 1\ny = 2\n"
    assert (directory / "config.pbtxt").read_text() == 'backend: "python"\n'
    assert os.fspath(repository) == str(tmp_path / "models")


def test_onnx_model_without_config_leaves_it_to_the_server(tmp_path):
    directory = ModelRepository(tmp_path).onnx("net", b"\x08\x07", version=3)

    assert (directory / "3" / "model.onnx").read_bytes() == b"\x08\x07"
    assert not (directory / "config.pbtxt").exists()


def test_second_version_keeps_the_configuration_of_the_first(tmp_path):
    repository = ModelRepository(tmp_path)
    repository.model("m", {"backend": "identity"})

    directory = repository.model("m", version=2, model_files={"labels.txt": "cat\ndog\n"})

    assert sorted(path.name for path in directory.iterdir()) == ["1", "2", "config.pbtxt", "labels.txt"]
    assert (directory / "config.pbtxt").read_text() == 'backend: "identity"\n'


def test_files_may_lie_in_folders_of_the_version_directory(tmp_path):
    directory = ModelRepository(tmp_path).model("m", files={"model.onnx/model.onnx": b"x"})

    assert (directory / "1" / "model.onnx" / "model.onnx").read_bytes() == b"x"


def test_dict_is_written_as_protobuf_text():
    text = format_config(
        {
            "name": "m",
            "max_batch_size": 8,
            "input": [{"name": 'I"N', "data_type": "TYPE_FP32", "dims": [-1, 3], "optional": True}],
            "dynamic_batching": {"preferred_batch_size": [4, 8]},
            "parameters": {"LIMIT": {"string_value": "96"}},
            "instance_group": [{"kind": "KIND_CPU", "count": 2}],
        }
    )

    assert text.split("\n") == [
        'name: "m"',
        "max_batch_size: 8",
        "input {",
        '  name: "I\\"N"',
        "  data_type: TYPE_FP32",
        "  dims: -1",
        "  dims: 3",
        "  optional: true",
        "}",
        "dynamic_batching {",
        "  preferred_batch_size: 4",
        "  preferred_batch_size: 8",
        "}",
        "parameters {",
        '  key: "LIMIT"',
        "  value {",
        '    string_value: "96"',
        "  }",
        "}",
        "instance_group {",
        "  kind: KIND_CPU",
        "  count: 2",
        "}",
        "",
    ]


def test_empty_message_and_string_map_are_written():
    text = format_config({"dynamic_batching": {}, "step": [{"input_map": {"A": "x"}}]})

    assert text == 'dynamic_batching {\n}\nstep {\n  input_map {\n    key: "A"\n    value: "x"\n  }\n}\n'


def test_priority_level_is_written_as_a_number():
    text = format_config({"priority_queue_policy": {"2": {"timeout_action": "DELAY"}}})

    assert text == "priority_queue_policy {\n  key: 2\n  value {\n    timeout_action: DELAY\n  }\n}\n"


def test_null_is_refused_with_the_name_of_its_field():
    with pytest.raises(TypeError, match="'max_batch_size': cannot write None"):
        format_config({"max_batch_size": None})
