"""What the page on model repositories says is so: its layout, its tables, its two commands."""

from __future__ import annotations

import http.client
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.config.complete import complete_backend
from tritonpy.config.load import parse_config
from tritonpy.config.versions import select_versions
from tritonpy.protos import ModelConfig
from tritonpy.repository.layout import read_model
from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/reference/model-repository.md").read_text()
COMMANDS = [shlex.split(line) for line in re.findall(r"^\$ corectl serve (.*)$", PAGE, re.MULTILINE)]
CONFIG: dict[str, Any] = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table in a section, without its head."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_layout_is_one_model_with_two_versions(tmp_path: Path) -> None:
    tree = PAGE.partition("models/\n")[2].partition("```")[0]
    path: list[str] = []
    for line in tree.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2 - 1
        path[depth:] = [name]
        target = tmp_path.joinpath(*path)
        if name.endswith("/"):
            target.mkdir()
        else:
            target.write_text("")

    assert [child.name for child in tmp_path.iterdir()] == ["digits"]
    model = read_model(tmp_path / "digits")
    assert model.versions == (1, 2)
    config = ModelConfig()
    complete_backend(config, model.path, 1)
    assert (config.backend, config.default_model_filename) == ("onnxruntime", "model.onnx")


POLICIES = [row[0] for row in rows("Versions")]


@pytest.mark.parametrize(
    ("policy", "served"), list(zip(POLICIES, ([3], [2, 3], [1, 2, 3], [1, 3]), strict=True))
)
def test_a_version_policy_serves_what_the_table_says(policy: str, served: list[int]) -> None:
    text = "" if policy == "left out" else f"version_policy {policy.strip('`')}"

    assert select_versions(parse_config(text, "m"), (1, 2, 3)) == served


@pytest.mark.parametrize("row", rows("Model files")[:-1], ids=lambda row: row[0])
def test_a_file_tells_its_backend(tmp_path: Path, row: list[str]) -> None:
    backend = row[0].strip("`")
    files = [re.findall("`([^`]+)`", part)[0] for part in row[1].split(";")]
    platforms = re.findall("`([^`]+)`", row[2]) or [""]
    for file, platform in zip(files, platforms, strict=True):
        model = tmp_path / file / "m"
        (model / "1" / file).mkdir(parents=True)
        config = ModelConfig()

        complete_backend(config, model, 1)

        assert (config.backend, config.platform, config.default_model_filename) == (backend, platform, file)


def test_the_commands_serve_two_repositories(served: Callable[..., Any], tmp_path: Path) -> None:
    for root in ("first", "second"):
        models = ModelRepository(tmp_path / root)
        models.model("both", CONFIG)
        models.model(f"only_{root}", CONFIG)
    states = []
    for command in COMMANDS:
        arguments = [str(tmp_path / word) if word in ("first", "second") else word for word in command]
        server = served(*arguments)
        connection = http.client.HTTPConnection("127.0.0.1", server.ports["HTTPService"], timeout=30)
        connection.request("POST", "/v2/repository/index")
        index = json.loads(connection.getresponse().read())
        connection.request("GET", "/v2/models/both/config")
        error = json.loads(connection.getresponse().read())["error"]
        connection.close()
        states.append([(row["name"], row["state"]) for row in index])
        server.stop()

    others = [("only_first", "READY"), ("only_second", "READY")]
    assert states == [
        [("both", "UNAVAILABLE"), *others],
        [("both", "READY"), ("both", "READY"), *others],
    ]
    assert error.split("'")[0] in " ".join(PAGE.split())
    assert error.split("'")[2] in " ".join(PAGE.split())
