"""What is wrong with a configuration is said with its file and line, before any server reads it."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tritonpy.cli.config_check import RULES, check_config, find_targets
from tritonpy.cli.config_preview import settled_preview
from tritonpy.config import validate, yaml_text
from tritonpy.config.yaml_text import read_yaml
from tritonpy.errors import InvalidArg
from tritonpy.lifecycle.loading.settings import LoaderSettings

GOOD = """
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }
"""


def model(directory: Path, files: Mapping[str, str], *, version: str = "1") -> Path:
    """A model's directory with these files."""
    (directory / version).mkdir(parents=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def findings(path: Path, *, is_strict: bool = False, config_name: str = "") -> list[str]:
    """What is found, with paths below `path`'s parent."""
    found = check_config(path, is_strict=is_strict, config_name=config_name)
    return [str(finding).replace(f"{path.parent}/", "") for finding in found]


def test_every_rule_of_a_server_is_checked() -> None:
    steps = (validate.validate_structure, validate.validate_tensors, validate.validate_complete)
    rules = {name for step in steps for name in step.__code__.co_names if name.startswith("check_")}

    # The name is checked with the directory at hand, and devices are those of another machine.
    assert rules - {"check_name", "check_instance_groups"} == RULES.keys()


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert findings(model(tmp_path / "m", {"config.pbtxt": GOOD})) == []


def test_everything_that_is_wrong_is_found_at_once_with_its_place(tmp_path: Path) -> None:
    text = """\
name: "n"
backend: "python"
max_batch_size: -1
input [
  { name: "X" data_type: TYPE_FP32 dims: [ 1 ] },
  { name: "Z" data_type: TYPE_FP32 }
]
dynamic_batching { preferred_batch_size: [ 0 ] }
"""

    assert findings(model(tmp_path / "m", {"config.pbtxt": text})) == [
        "m/config.pbtxt:1:1: error: unexpected directory name 'm' for model 'n', directory name must equal "
        "model name",
        "m/config.pbtxt:3:1: error: 'max_batch_size' must be non-negative value for n",
        "m/config.pbtxt:8:1: error: dynamic batching preferred size must be positive for n",
        "m/config.pbtxt:6:11: error: model input 'Z' must specify 'dims' for n",
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("config.pbtxt", 'backend: "python"\nnope: 1\n', 'config.pbtxt:2:1: error: Message type "inference'),
        ("config.pbtxt", "input {{ }\n", "config.pbtxt:1:8: error: Expected identifier"),
        (
            "config.json",
            '{"backend": "python",\n "nope": 1}',
            "config.json:2:2: error: no field is called",
        ),
        ("config.json", "{", "config.json:1:2: error: Expecting property name enclosed in double quotes"),
        ("config.yaml", "backend: python\nnope: 1\n", "config.yaml:2:1: error: no field is called"),
        ("config.yaml", "a: [1\n", "config.yaml:2:1: error: "),
    ],
)
def test_what_cannot_be_read_is_found_with_its_place(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    (found,) = findings(model(tmp_path / "m", {name: text}))

    assert found.startswith(f"m/{expected}")


def test_strict_asks_for_a_file_and_for_inputs_and_outputs(tmp_path: Path) -> None:
    none = model(tmp_path / "none", {"1/model.onnx": ""})
    part = model(tmp_path / "part", {"config.pbtxt": GOOD.replace("output", "#")})

    assert findings(none) == []
    assert findings(part) == []
    assert findings(part, is_strict=True) == [
        "part/config.pbtxt: warning: 'output' is missing, and auto-complete is disabled"
    ]
    (found,) = findings(none, is_strict=True)
    assert found.startswith("none: error: failed to open text file for read none/config.pbtxt")


def test_versions_files_and_settings_are_looked_at_too(tmp_path: Path) -> None:
    labelled = GOOD.replace('"Y"', '"Y" label_filename: "labels.txt"')
    gone = "version_policy { specific { versions: [ 1, 7 ] } }"
    model(tmp_path / "labels", {"config.pbtxt": labelled})
    model(tmp_path / "gone", {"config.pbtxt": GOOD + gone})
    model(tmp_path / "odd", {"config.pbtxt": GOOD}, version="01")

    assert findings(tmp_path / "labels") == [
        "labels/config.pbtxt: error: failed to open text file for read labels/labels.txt: "
        "No such file or directory"
    ]
    assert findings(tmp_path / "gone") == [
        "gone/config.pbtxt: warning: version 7 is specified, but has no directory"
    ]
    assert findings(tmp_path / "odd") == [
        "odd/config.pbtxt: error: at least one version must be available under the version policy of model "
        "'odd'",
        "odd: warning: ignore version directory '01' which contains leading zeros in its directory name, of "
        "model 'odd'",
    ]


def test_a_text_is_not_read_anew_for_each_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(
        tmp_path / "m", {"config.yaml": "name: n\nbackend: python\nmax_batch_size: -1\ninput: [{}]\n"}
    )
    read: list[str] = []

    def read_once(text: str) -> object:
        read.append(text)
        return read_yaml(text)

    monkeypatch.setattr(yaml_text, "read_yaml", read_once)

    assert [found.partition(": ")[0] for found in findings(path)] == [
        "m/config.yaml:1:1",
        "m/config.yaml:3:1",
        "m/config.yaml:4:1",
    ]
    assert len(read) == 2  # for what it says, and for where


def test_two_configurations_are_one_too_many(tmp_path: Path) -> None:
    (found,) = findings(model(tmp_path / "m", {"config.pbtxt": GOOD, "config.json": "{}"}))

    assert found.startswith("m: error: ")
    assert "config.pbtxt and config.json" in found


def test_a_configuration_that_is_chosen_by_name_is_checked(tmp_path: Path) -> None:
    path = model(tmp_path / "m", {"config.pbtxt": GOOD})
    (path / "configs").mkdir()
    (path / "configs/small.pbtxt").write_text(GOOD + "max_batch_size: -1")

    assert findings(path) == []
    assert findings(path, config_name="small") == [
        "m/configs/small.pbtxt:5:1: error: 'max_batch_size' must be non-negative value for m"
    ]


def test_a_link_to_a_model_is_a_model_of_its_own_name(tmp_path: Path) -> None:
    target = model(tmp_path / "elsewhere", {"config.pbtxt": GOOD + 'name: "m"'})
    (tmp_path / "m").symlink_to(target)

    assert findings(tmp_path / "m") == []
    assert settled_preview(tmp_path / "m", LoaderSettings(), asks_backend=False)["name"] == "m"
    assert ": error: unexpected directory name 'elsewhere' for model 'm'" in findings(target)[0]


def test_where_the_shell_stands_is_a_model_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model(tmp_path / "m", {"config.pbtxt": GOOD + 'name: "m"'}))

    assert check_config(Path()) == []
    assert settled_preview(Path(), LoaderSettings(), asks_backend=False)["name"] == "m"


def test_a_directory_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(tmp_path / "m", {"config.pbtxt": GOOD})

    def refuse(self: Path) -> Iterator[Path]:  # nothing is refused to the user whom tests may run as
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)

    assert findings(path) == ["m: error: Permission denied"]


def test_a_file_without_a_model_is_checked_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text('{"max_batch_size": -1}')

    assert findings(path) == ["some.json:1:2: error: 'max_batch_size' must be non-negative value for some"]


def test_a_path_may_be_a_model_a_repository_or_a_file(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    a = model(repository / "a", {"config.pbtxt": GOOD})
    b = model(repository / "b", {})
    (repository / ".git").mkdir()
    (repository / "README").touch()
    alone = tmp_path / "alone.yaml"
    alone.touch()

    assert find_targets(repository) == [a, b]
    assert find_targets(a) == [a]
    assert find_targets(b) == [b]
    assert find_targets(a / "config.pbtxt") == [a]
    assert find_targets(alone) == [alone]


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_path_that_is_none_of_them_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(InvalidArg, match=name):
        find_targets(tmp_path / name)
