"""`corectl models` and its commands against a server in explicit mode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tritonpy.cli.http_client import HttpClient
from tritonpy.cli.main import main
from tritonpy.options import ServerOptions
from tritonpy.server import Server

TENSORS = """
    input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] } ]
    output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
CONFIGS = {
    "echo": f'backend: "identity" max_batch_size: 8 {TENSORS}',
    "other": f'backend: "identity" {TENSORS}',
    "broken": f'backend: "no_such_backend" {TENSORS}',
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    for name, config in CONFIGS.items():
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
    options = ServerOptions(
        (str(tmp_path / "models"),),
        model_control_mode="explicit",
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
    )
    with Server(options) as server:
        yield server


class Corectl:
    """Runs `corectl models …` against the server."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        status = main(["models", *arguments, f"--url={self.url}"])
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err

    def ready(self) -> list[str]:
        """Names of the models that serve."""
        status, out, _ = self("index", "--ready", "--json")
        assert status == 0
        return [entry["name"] for entry in json.loads(out)]


@pytest.fixture
def corectl(server: Server, capsys: pytest.CaptureFixture[str]) -> Corectl:
    return Corectl(f"127.0.0.1:{server.http_port}", capsys)


def test_models_are_loaded_and_unloaded_by_name(corectl: Corectl) -> None:
    assert corectl.ready() == []
    assert corectl("load", "echo", "other") == (0, "loaded echo\nloaded other\n", "")
    assert corectl.ready() == ["echo", "other"]
    assert corectl("unload", "echo") == (0, "unloaded echo\n", "")
    assert corectl.ready() == ["other"]


def test_the_index_is_a_table_with_the_names_of_what_is_not_loaded(corectl: Corectl) -> None:
    corectl("load", "echo")

    listed = corectl("index")

    rows = [line.split() for line in listed[1].splitlines()]
    assert ["echo", "1", "READY", "-"] in rows
    assert ["other", "-", "-", "-"] in rows
    assert corectl() == listed


def test_one_model_that_is_refused_does_not_keep_the_others(corectl: Corectl) -> None:
    status, out, err = corectl("load", "nope", "broken", "echo")

    assert status == 1
    assert out == "loaded echo\n"
    assert "Error: failed to load 'nope', failed to poll from model repository" in err
    assert "(HTTP status 500)" in err
    assert "load failed for model 'broken': version 1 is at UNAVAILABLE state" in err
    assert "no_such_backend" in err


def test_a_name_that_is_not_there_is_told_those_that_are(corectl: Corectl) -> None:
    _, _, err = corectl("load", "ecko")

    assert err.endswith("; did you mean echo? The server knows broken, echo, other\n")
    assert "The server knows" not in corectl("load", "broken")[2]


def test_reload_loads_what_has_not_changed(
    corectl: Corectl, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tritonpy.repository")
    corectl("load", "echo")
    corectl("load", "echo")

    assert corectl("reload", "echo") == (0, "reloaded echo\n", "")

    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("successfully loaded 'echo' version 1") == 2
    assert lines.count("'echo' is loaded and has not changed") == 1


def test_a_configuration_can_be_sent_as_text_or_from_a_file(corectl: Corectl, tmp_path: Path) -> None:
    tensor = {"data_type": "TYPE_FP32", "dims": [2]}
    config = {
        "backend": "identity",
        "input": [{"name": "INPUT0", **tensor}],
        "output": [{"name": "OUTPUT0", **tensor}],
    }
    (tmp_path / "config.json").write_text(json.dumps({**config, "max_batch_size": 3}))

    assert corectl("load", "echo", "--config", json.dumps({**config, "max_batch_size": 2}))[0] == 0
    assert max_batch_size(corectl) == 2
    assert corectl("load", "echo", f"--config=@{tmp_path / 'config.json'}")[0] == 0
    assert max_batch_size(corectl) == 3


def max_batch_size(corectl: Corectl) -> int:
    with closing(HttpClient(corectl.url, 10)) as client:
        found: int = client.get_json("/v2/models/echo/config")["max_batch_size"]
    return found


def test_a_model_can_be_made_of_files_that_are_sent(corectl: Corectl, tmp_path: Path) -> None:
    tensor = {"data_type": "TYPE_FP32", "dims": [2]}
    config = {
        "backend": "identity",
        "input": [{"name": "INPUT0", **tensor}],
        "output": [{"name": "OUTPUT0", **tensor, "label_filename": "labels.txt"}],
    }
    (tmp_path / "names").write_text("one\ntwo\n")
    (tmp_path / "empty").write_text("")

    status, out, err = corectl(
        "load",
        "sent",
        f"--config={json.dumps(config)}",
        f"--file=7/x={tmp_path / 'empty'}",
        f"--file=labels.txt={tmp_path / 'names'}",
    )

    assert (status, out, err) == (0, "loaded sent\n", "")
    assert corectl.ready() == ["sent"]


def test_a_sent_configuration_names_no_strategy_outside_of_the_model(
    corectl: Corectl, tmp_path: Path
) -> None:
    """The same line in the repository's own configuration is fine unless the server was told to be strict."""
    strategy = tmp_path / "strategy.py"
    strategy.write_text("raise RuntimeError('this must not run')")
    tensor = {"data_type": "TYPE_FP32", "dims": [2]}
    config = {
        "backend": "identity",
        "max_batch_size": 4,
        "dynamic_batching": {},
        "input": [{"name": "INPUT0", **tensor}],
        "output": [{"name": "OUTPUT0", **tensor}],
        "parameters": {"TRITON_BATCH_STRATEGY_PATH": {"string_value": str(strategy)}},
    }

    status, _, err = corectl("load", "echo", f"--config={json.dumps(config)}")

    assert status == 1
    assert "a load request names files inside the model's directory only" in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["load"], "Missing argument"),
        (["load", "a", "b", "--config={}"], "are for one model"),
        (["load", "a", "--config=@/nowhere"], "cannot read '/nowhere'"),
        (["load", "a", "--file=1/model.py"], "expected the path in the model and the file to send"),
        (["load", "a", "--file=1/model.py=/nowhere"], "cannot read '/nowhere'"),
    ],
)
def test_wrong_usage_is_named(corectl: Corectl, arguments: list[str], problem: str) -> None:
    status, _, err = corectl(*arguments)

    assert status == 1
    assert problem in err


def test_the_address_may_stand_before_the_command(
    corectl: Corectl, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", f"--url={corectl.url}", "load", "echo"]) == 0
    assert capsys.readouterr().out == "loaded echo\n"


def test_a_server_in_mode_none_refuses_in_tritons_words_and_the_mode_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ServerOptions(
        (str(tmp_path),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    with Server(options) as server:
        status = main(["models", "load", "echo", f"--url=127.0.0.1:{server.http_port}"])

    assert status == 1
    assert capsys.readouterr().err == (
        "Error: explicit model load / unload is not allowed if polling is enabled (HTTP status 503)"
        "; start the server with --model-control-mode=explicit\n"
    )
