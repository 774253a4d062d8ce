"""What a configuration leaves out is filled in from files, backends and defaults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tritonpy.config.complete import complete_backend, normalize
from tritonpy.config.load import parse_config
from tritonpy.config.read import config_from_dict
from tritonpy.config.write import config_to_dict
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.handles import PreferredGroup
from tritonpy.lifecycle.loading.backend_files import find_backend_files
from tritonpy.lifecycle.resolved_config import check_config
from tritonpy.protos import ModelConfig, ModelInstanceGroup
from tritonpy.repository.layout import read_model


def derived(text: str, directory: Path, files: Sequence[str], *, name: str = "m") -> tuple[str, str, str]:
    """Backend, platform and model file name that come of a configuration and the files of version 1."""
    version = directory / name / "1"
    version.mkdir(parents=True)
    for file in files:
        (version / file).touch()
    config = parse_config(text, "config.pbtxt")
    complete_backend(config, directory / name, 1)
    assert config.name == name
    return config.backend, config.platform, config.default_model_filename


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("model.savedmodel", ("tensorflow", "tensorflow_savedmodel", "model.savedmodel")),
        ("saved_model.pb", ("tensorflow", "tensorflow_savedmodel", "model.savedmodel")),
        ("model.graphdef", ("tensorflow", "tensorflow_graphdef", "model.graphdef")),
        ("model.plan", ("tensorrt", "tensorrt_plan", "model.plan")),
        ("model.onnx", ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ("model.xml", ("openvino", "", "model.xml")),
        ("model.tflite", ("litert", "", "model.tflite")),
        ("model.pt", ("pytorch", "pytorch_libtorch", "model.pt")),
        ("model.pt2", ("pytorch", "torch_aoti", "model.pt2")),
        ("model.py", ("python", "", "model.py")),
    ],
)
def test_a_model_file_tells_its_backend(file: str, expected: tuple[str, str, str], tmp_path: Path) -> None:
    assert derived("", tmp_path, [file, "weights.bin"]) == expected


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        # The configuration counts more than the files.
        ('backend: "python"', ["model.onnx"], ("python", "", "model.py")),
        ('backend: "onnxruntime"', [], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('platform: "onnxruntime_onnx"', [], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('default_model_filename: "model.onnx"', [], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (
            'backend: "onnxruntime" default_model_filename: "net.onnx"',
            ["model.py"],
            ("onnxruntime", "onnxruntime_onnx", "net.onnx"),
        ),
        ('backend: "python" platform: "mine"', [], ("python", "mine", "model.py")),
        ('backend: "xyz"', ["model.onnx"], ("xyz", "", "")),
        ('platform: "unheard"', ["model.onnx"], ("", "unheard", "")),
        ('default_model_filename: "net.onnx"', ["net.onnx"], ("", "", "net.onnx")),
        # Of several files the framework's own wins over Python code beside it.
        ("", ["model.py", "model.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        # One backend that reads several kinds of files.
        (
            'backend: "tensorflow"',
            ["model.graphdef"],
            ("tensorflow", "tensorflow_graphdef", "model.graphdef"),
        ),
        (
            'backend: "tensorflow" platform: "tensorflow_graphdef"',
            ["model.savedmodel"],
            ("tensorflow", "tensorflow_graphdef", "model.graphdef"),
        ),
        ('backend: "tensorflow"', [], ("tensorflow", "", "")),
        ('backend: "pytorch"', ["model.pt2"], ("pytorch", "torch_aoti", "model.pt2")),
        ('backend: "pytorch"', [], ("pytorch", "pytorch_libtorch", "model.pt")),
        # An ensemble has neither backend nor files.
        ('platform: "ensemble"', ["model.py"], ("", "ensemble", "")),
        ("ensemble_scheduling {}", ["model.py"], ("", "", "")),
    ],
)
def test_backend_platform_and_file_name_follow_from_each_other(
    text: str, files: list[str], expected: tuple[str, str, str], tmp_path: Path
) -> None:
    assert derived(text, tmp_path, files) == expected


@pytest.mark.parametrize(("name", "backend"), [("model.xyz", "xyz"), ("a.b.c", "b.c")])
def test_a_model_may_name_an_unknown_backend_behind_a_dot(name: str, backend: str, tmp_path: Path) -> None:
    assert derived("", tmp_path, ["net.bin"], name=name) == (backend, "", f"model.{backend}")


@pytest.mark.parametrize("version", [None, 1])
def test_a_model_that_tells_nothing_is_refused(version: int | None, tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)

    with pytest.raises(InvalidArg) as raised:
        complete_backend(ModelConfig(), tmp_path / "m", version)

    assert str(raised.value) == (
        "Invalid model name: Could not determine backend for model 'm' with no backend in model "
        "configuration. Expected model name of the form 'model.<backend_name>'."
    )


def test_a_name_that_is_given_is_kept_for_the_check_against_the_directory(tmp_path: Path) -> None:
    config = parse_config('name: "other" backend: "python"', "config.pbtxt")

    complete_backend(config, tmp_path, None)

    assert config.name == "other"


# Defaults.


JsonValue = Any  # Any: JSON


def normalized(text: str, *preferred: PreferredGroup, gpus: Sequence[int] = ()) -> dict[str, JsonValue]:
    config = parse_config(f'name: "m" {text}', "config.pbtxt")
    normalize(config, preferred, gpus)
    return config_to_dict(config)


def groups(text: str, *preferred: PreferredGroup, gpus: Sequence[int] = ()) -> list[tuple[JsonValue, ...]]:
    """Name, kind, count and GPUs of every instance group."""
    return [
        (group["name"], group["kind"].removeprefix("KIND_"), group["count"], group["gpus"])
        for group in normalized(text, *preferred, gpus=gpus)["instance_group"]
    ]


@pytest.mark.parametrize(
    ("preferred", "gpus", "expected"),
    [
        ([PreferredGroup("KIND_GPU", 2, [1, 7])], [0, 1], ("GPU", 2, [1])),
        ([PreferredGroup("KIND_GPU", 2, [7]), PreferredGroup("KIND_CPU", 3)], [0, 1], ("CPU", 3, [])),
        ([PreferredGroup("KIND_GPU", 2, [0])], [], ("CPU", 1, [])),
        ([PreferredGroup("KIND_AUTO", 4, [1])], [0, 1], ("GPU", 4, [1])),
        ([PreferredGroup("KIND_AUTO", 4, [1])], [], ("CPU", 4, [])),
        ([PreferredGroup("KIND_CPU", 4, [1])], [0, 1], ("CPU", 4, [])),
    ],
)
def test_a_backend_may_prefer_some_gpus(
    preferred: Sequence[PreferredGroup], gpus: Sequence[int], expected: tuple[JsonValue, ...]
) -> None:
    assert groups("", *preferred, gpus=gpus) == [("m", *expected)]


def test_the_newest_version_is_served_unless_a_policy_says_otherwise() -> None:
    assert normalized("")["version_policy"] == {"latest": {"num_versions": 1}}
    assert normalized("version_policy { latest {} }")["version_policy"] == {"latest": {"num_versions": 0}}
    assert normalized("version_policy {}")["version_policy"] == {}


def test_pinned_memory_is_on_unless_it_is_switched_off() -> None:
    optimization = normalized("optimization { input_pinned_memory { enable: false } }")["optimization"]

    assert optimization["input_pinned_memory"] == {"enable": False}
    assert optimization["output_pinned_memory"] == {"enable": True}


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("max_batch_size: 8 dynamic_batching {}", [8]),
        ("max_batch_size: 8 dynamic_batching { preferred_batch_size: [2, 4] }", [2, 4]),
        ("dynamic_batching {}", []),
    ],
)
def test_the_dynamic_batcher_prefers_full_batches(text: str, sizes: list[int]) -> None:
    assert normalized(text)["dynamic_batching"]["preferred_batch_size"] == sizes


def test_sequences_idle_a_second_and_the_oldest_strategy_prefers_full_batches() -> None:
    batching = normalized("max_batch_size: 4 sequence_batching { oldest {} }")["sequence_batching"]

    assert batching["max_sequence_idle_microseconds"] == 1_000_000
    assert batching["oldest"]["preferred_batch_size"] == [4]
    direct = normalized("max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 7 }")
    assert direct["sequence_batching"]["max_sequence_idle_microseconds"] == 7


def test_no_scheduler_is_added() -> None:
    assert not {"dynamic_batching", "sequence_batching"} & normalized("max_batch_size: 8").keys()


def test_an_ensemble_has_a_transaction_policy_and_neither_groups_nor_optimization() -> None:
    ensemble = normalized('platform: "ensemble" ensemble_scheduling {}')

    assert ensemble["model_transaction_policy"] == {"decoupled": False}
    assert ensemble["instance_group"] == []
    assert "optimization" not in ensemble


def test_a_model_without_groups_gets_one_instance_called_like_itself() -> None:
    assert groups("") == [("m", "CPU", 1, [])]


def test_without_groups_the_wish_of_the_backend_counts() -> None:
    two = PreferredGroup("KIND_CPU", 2)

    assert groups("", two) == [("m", "CPU", 2, [])]
    assert groups("", PreferredGroup("KIND_MODEL")) == [("m", "MODEL", 1, [])]
    assert groups("", PreferredGroup("KIND_AUTO", 3), gpus=[0]) == [("m", "GPU", 3, [0])]


def test_of_several_wishes_the_first_one_counts_that_the_machine_has_devices_for() -> None:
    wishes = PreferredGroup("KIND_GPU", 0), PreferredGroup("KIND_CPU", 2)

    assert groups("", *wishes, gpus=[0, 1]) == [("m", "GPU", 1, [0, 1])]
    assert groups("", *wishes) == [("m", "CPU", 2, [])]
    assert groups("", *reversed(wishes), gpus=[0, 1]) == [("m", "CPU", 2, [])]
    assert groups("", wishes[0]) == [("m", "CPU", 1, [])]


@pytest.mark.parametrize("text", ["", "instance_group {}", "instance_group { gpus: [0] }"])
def test_a_backend_that_cannot_use_gpus_is_left_on_the_cpu_unless_told_otherwise(text: str) -> None:
    config = parse_config(f'name: "m" {text}', "config.pbtxt")
    normalize(config, [PreferredGroup("KIND_AUTO")], [0], uses_gpus=False)
    assert [group.kind for group in config.instance_group] == [ModelInstanceGroup.KIND_CPU]

    told = parse_config('name: "m" instance_group { kind: KIND_GPU }', "config.pbtxt")
    normalize(told, [], [0], uses_gpus=False)
    assert [(g.kind, list(g.gpus)) for g in told.instance_group] == [(ModelInstanceGroup.KIND_GPU, [0])]


def test_a_group_without_a_count_takes_the_one_its_backend_prefers_for_that_kind() -> None:
    two = PreferredGroup("KIND_CPU", 2)

    assert groups("instance_group {} instance_group { kind: KIND_MODEL }", two) == [
        ("m_0", "CPU", 2, []),
        ("m_1", "MODEL", 1, []),
    ]
    assert groups("instance_group { count: 1 }", two) == [("m_0", "CPU", 1, [])]
    assert groups("instance_group { count: -3 }") == [("m_0", "CPU", 1, [])]


def test_groups_are_named_by_their_position_unless_they_have_a_name() -> None:
    text = 'instance_group { name: "g" } instance_group {} instance_group { name: "g" } instance_group {}'

    assert [group[0] for group in groups(text)] == ["g", "m_1", "g", "m_3"]


@pytest.mark.parametrize(
    ("group", "gpus", "expected"),
    [
        ("", [], ("CPU", [])),
        ("", [0, 1], ("GPU", [0, 1])),
        ("gpus: [1]", [0, 1], ("GPU", [1])),
        ("gpus: [7]", [0, 1], ("CPU", [7])),
        ("gpus: [0]", [], ("CPU", [0])),
        ("kind: KIND_CPU", [0, 1], ("CPU", [])),
        ("kind: KIND_MODEL", [0, 1], ("MODEL", [])),
        ("kind: KIND_GPU", [0, 1], ("GPU", [0, 1])),
        ("kind: KIND_GPU", [], ("GPU", [])),
    ],
)
def test_a_group_is_on_gpus_when_it_may_and_they_are_there(
    group: str, gpus: list[int], expected: tuple[str, list[int]]
) -> None:
    [(_, kind, _, listed)] = groups(f"instance_group {{ {group} }}", gpus=gpus)

    assert (kind, listed) == expected


def test_normalizing_twice_changes_nothing() -> None:
    text = 'max_batch_size: 4 dynamic_batching {} instance_group {} instance_group { name: "g" count: 2 }'
    config = parse_config(f'name: "m" {text}', "config.pbtxt")
    normalize(config, [PreferredGroup("KIND_CPU", 2)])
    once = config_to_dict(config)

    normalize(config, [PreferredGroup("KIND_CPU", 2)])

    assert config_to_dict(config) == once


# Batching that the model file allows.


CAFFE2 = "convert the model to ONNX and serve it with backend 'onnxruntime'"
KERAS = "keras.models.load_model('net.keras').export('model.savedmodel')\""
CHECKPOINT = "by tf.compat.v1.saved_model.simple_save"
CUSTOM = "make a backend of it: docs/how-to/write-a-backend.md, or a Python model"


@pytest.mark.parametrize(
    ("document", "said", "advice"),
    [
        ({"platform": "caffe2_netdef"}, "unexpected platform type 'caffe2_netdef' for m: ", CAFFE2),
        ({"platform": "custom"}, "unexpected platform type 'custom' for m: ", CUSTOM),
        ({"default_model_filename": "libcustom.so"}, "unexpected platform type '' for m: ", CUSTOM),
        ({"default_model_filename": "model.netdef"}, "unexpected platform type '' for m: ", CAFFE2),
    ],
)
def test_who_brings_a_retired_platform_is_told_what_to_do(
    tmp_path: Path, document: dict[str, Any], said: str, advice: str
) -> None:
    (tmp_path / "m/1").mkdir(parents=True)

    with pytest.raises(InvalidArg) as error:
        check_config(config_from_dict(document, "m"), read_model(tmp_path / "m"))

    assert str(error.value).startswith(said)
    assert str(error.value).endswith(advice)


@pytest.mark.parametrize(
    ("filenames", "advice"),
    [
        ("model.netdef", CAFFE2),
        ("libcustom.so", CUSTOM),
        ("net.keras", KERAS),
        ("net.h5", KERAS.replace(".keras", ".h5")),
        ("model.ckpt.index model.ckpt.data-00000-of-00001", CHECKPOINT),
        ("vectors.index", ""),
        ("other.bin", ""),
    ],
)
def test_who_brings_only_its_files_is_told_so_too(tmp_path: Path, filenames: str, advice: str) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    for filename in filenames.split():
        (tmp_path / "m/1" / filename).write_text("")

    with pytest.raises(InvalidArg, match="Could not determine backend for model 'm'") as error:
        check_config(config_from_dict({}, "m"), read_model(tmp_path / "m"))

    assert str(error.value).endswith(advice or "Expected model name of the form 'model.<backend_name>'.")


@pytest.mark.parametrize(
    ("filenames", "advice"),
    [
        ("net.keras", f": 'net.keras' is a file as Keras saves models.*{re.escape(KERAS)}$"),
        (
            "model.ckpt.index model.ckpt.data-00000-of-00001",
            f": 'model.ckpt' is a checkpoint of TensorFlow.*{CHECKPOINT}$",
        ),
        ("net.bin", "$"),
    ],
)
def test_a_backend_whose_files_have_another_form_says_how_to_make_that_form(
    tmp_path: Path, filenames: str, advice: str
) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    for filename in filenames.split():
        (tmp_path / "m/1" / filename).write_text("")

    with pytest.raises(
        InvalidArg, match=f"^unexpected 'platform' and 'backend' pair, got:, tensorflow{advice}"
    ):
        check_config(config_from_dict({"backend": "tensorflow"}, "m"), read_model(tmp_path / "m"))


@pytest.mark.parametrize(("backend", "advice"), [("caffe2", CAFFE2), ("custom", CUSTOM)])
def test_a_retired_backend_is_refused_unless_somebody_has_made_one(
    tmp_path: Path, backend: str, advice: str
) -> None:
    config = config_from_dict({"backend": backend}, "m")

    with pytest.raises(NotFound, match=f"is called '{backend}': ") as error:
        find_backend_files(config, tmp_path, ())

    assert str(error.value).endswith(advice)
    assert find_backend_files(config, tmp_path, (backend,)) is None


@pytest.mark.parametrize("name", ["..", ".", "../other", "/etc", "a/../..", "a\0b"])
def test_the_name_of_a_backend_leads_out_of_no_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "backends/a").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "backends", tmp_path / "other"):
        place.mkdir(exist_ok=True)
        (place / "model.py").write_text("")
    config = config_from_dict({"backend": name}, "m")

    with pytest.raises(NotFound, match="no installed plugin of kind 'backends' is called"):
        find_backend_files(config, tmp_path / "backends", ("python",))
