"""`corectl config`, on files, without a server."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from tritonpy.cli.main import main
from tritonpy.config.load import load_config
from tritonpy.config.read import config_from_dict
from tritonpy.config.write import write_config
from tritonpy.handles import JsonObject
from tritonpy_sdk.repository import ModelRepository

from ..config.test_read import documents

COMPLETING = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [3]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [3]})
        config.set_max_batch_size(7)
        return config

    def initialize(self, args):
        raise RuntimeError("nobody asked for this")
"""


@given(documents("inference.ModelConfig"))
def test_a_configuration_converted_through_all_forms_is_the_same_in_the_end(document: JsonObject) -> None:
    config = config_from_dict(document, "m")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("a.pbtxt", "b.json", "c.yaml", "d.pbtxt")]
        paths[0].write_text(write_config(config, "pbtxt"), encoding="utf-8")
        for source, target in pairwise(paths):
            assert main(["config", "convert", str(source), "-o", str(target)]) == 0

        assert load_config(paths[-1]) == config


def test_a_converted_configuration_is_printed_where_no_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "config.pbtxt"
    source.write_text('# why\nmax_batch_size: 2 parameters { key: "a" value { string_value: "ä" } }')

    assert main(["config", "convert", str(source), "--to", "json"]) == 0

    assert json.loads(capsys.readouterr().out) == {
        "max_batch_size": 2,
        "parameters": {"a": {"string_value": "ä"}},
    }


def test_what_cannot_be_converted_is_said_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "config.json"
    source.write_text('{\n "nope": 2}')

    assert main(["config", "convert", str(source), "--to", "yaml"]) == 1
    assert (
        f"failed to read JSON from {source}: line 2, column 2: no field is called 'nope'"
        in capsys.readouterr().err
    )
    assert main(["config", "convert", str(source)]) == 1
    assert "say with --to what to write: pbtxt, json, yaml" in capsys.readouterr().err
    assert main(["config", "convert", str(tmp_path / "none.json"), "--to", "yaml"]) == 1
    assert "No such file or directory" in capsys.readouterr().err
    source.write_text("{}")
    assert main(["config", "convert", str(source), "-o", str(tmp_path / "no/such.yaml")]) == 1
    assert f"cannot write '{tmp_path}/no/such.yaml': No such file or directory" in capsys.readouterr().err


def test_check_prints_what_is_wrong_and_ends_with_status_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ModelRepository(tmp_path)
    models.python("good", COMPLETING)
    models.python("bad", COMPLETING, "max_batch_size: -1")

    assert main(["config", "check", str(tmp_path)]) == 1

    printed = capsys.readouterr()
    assert printed.out == (
        f"{tmp_path}/bad/config.pbtxt:1:1: error: 'max_batch_size' must be non-negative value for bad\n"
    )
    assert printed.err == "2 configurations checked: 1 error\n"


def test_check_of_what_is_good_ends_with_status_zero_unless_it_is_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = ModelRepository(tmp_path).python("good", COMPLETING)

    assert main(["config", "check", str(good)]) == 0
    assert capsys.readouterr().err == "1 configuration checked: no error\n"
    assert main(["config", "check", "--strict", str(good)]) == 1
    assert "config.pbtxt: No such file or directory" in capsys.readouterr().out


def test_check_of_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(tmp_path / "nowhere")]) == 1
    assert "no such file or directory" in capsys.readouterr().err


def test_show_lets_a_python_model_complete_its_configuration_and_does_not_initialize_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ModelRepository(tmp_path).python("m", COMPLETING)

    assert main(["config", "show", str(model)]) == 0

    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    assert (shown["name"], shown["backend"], shown["max_batch_size"]) == ("m", "python", 7)
    assert shown["input"][0]["dims"] == [3]
    assert printed.err == "backend 'python' was asked, as in a load\n"


def test_show_of_an_ensemble_asks_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ModelRepository(tmp_path).model(
        "e",
        {
            "platform": "ensemble",
            "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [1]}],
            "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [1]}],
            "ensemble_scheduling": {
                "step": [{"model_name": "m", "input_map": {"X": "A"}, "output_map": {"Y": "B"}}]
            },
        },
    )

    assert main(["config", "show", str(model)]) == 0

    printed = capsys.readouterr()
    assert json.loads(printed.out)["ensemble_scheduling"]["step"][0]["model_name"] == "m"
    assert printed.err == "an ensemble has no backend; whether it fits its models is seen in a load\n"


@pytest.mark.parametrize("flag", ["--no-backend", "--strict"])
def test_show_without_the_backend_shows_what_follows_from_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    model = ModelRepository(tmp_path).python("m", COMPLETING, "max_batch_size: 2")

    assert main(["config", "show", flag, str(model)]) == 0

    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    assert (shown["backend"], shown["max_batch_size"], shown["input"]) == ("python", 2, [])
    assert printed.err == "backend 'python' was not asked\n"


@pytest.mark.parametrize("form", ["pbtxt", "json", "yaml"])
def test_what_show_prints_is_a_configuration_that_settles_to_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    models = ModelRepository(tmp_path)
    model = models.python("m", COMPLETING)
    assert main(["config", "show", str(model), "--format", form]) == 0
    first = capsys.readouterr().out
    (model / f"config.{form}").write_text(first)

    assert main(["config", "show", "--no-backend", str(model), "--format", form]) == 0

    assert capsys.readouterr().out == first


def test_show_of_what_cannot_be_served_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = ModelRepository(tmp_path)
    odd = models.model("odd", 'backend: "nobody_has_this"')
    broken = models.python("broken", COMPLETING.replace("set_max_batch_size(7)", "nope()"))

    assert main(["config", "show", str(odd)]) == 1
    assert "nobody_has_this" in capsys.readouterr().err
    assert main(["config", "show", "--no-backend", str(odd)]) == 0
    capsys.readouterr()
    assert main(["config", "show", str(broken)]) == 1
    assert "has no attribute 'nope'" in capsys.readouterr().err
    assert main(["config", "show", str(tmp_path / "nowhere")]) == 1
    assert "is no directory; expected that of a model" in capsys.readouterr().err
