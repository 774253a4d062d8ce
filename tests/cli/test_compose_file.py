"""The Compose file of `corectl compose` and those of examples keep to the schema of Compose."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from tritonpy_compose.recipe import Recipe, compose_file

from ..fetched import CACHE, environment

ROOT = Path(__file__).parents[2]
CHECKER = "check-jsonschema==0.39.0"  # brings the schema of compose-spec
PLAIN = Recipe("nets:1", "python:3.12-slim", repositories=("/srv/models",))
RECIPES = {
    "plain": PLAIN,
    "everything": Recipe(
        "nets:1",
        "python:3.12-slim",
        plugins=("backends:pytorch",),
        repositories=("/srv/one", "s3://bucket/two", "/srv/three"),
        backend_directory=Path("/opt/backends"),
        arguments=("--log-verbose=1", "--model-control-mode=explicit"),
        uses_gpus=True,
        unpacks=True,
    ),
    "nothing": Recipe("nets:1", "python:3.12-slim"),
}


@pytest.fixture(scope="module")
def python() -> Path:
    return environment(CACHE / "compose-schema", CHECKER)


def complaint(python: Path, file: Path) -> str:
    """What is wrong with a Compose file; "" for nothing."""
    command = [python, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.emulator
@pytest.mark.parametrize("name", RECIPES)
def test_what_is_made_keeps_to_the_schema(python: Path, name: str, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(compose_file(RECIPES[name]))

    assert complaint(python, file) == ""


@pytest.mark.emulator
def test_the_examples_keep_to_the_schema(python: Path) -> None:
    files = sorted(ROOT.glob("examples/*/compose.yaml"))

    assert files
    assert [complaint(python, file) for file in files] == [""] * len(files)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("key", "value"),
    [("cap_drop", "ALL"), ("read_only", 5), ("healtcheck", {}), ("deploy", {"resources": []})],
)
def test_the_schema_would_find_a_mistake(python: Path, key: str, value: object, tmp_path: Path) -> None:
    made = yaml.safe_load(compose_file(PLAIN))
    made["services"]["server"][key] = value
    file = tmp_path / "compose.yaml"
    file.write_text(yaml.safe_dump(made))

    assert "server" in complaint(python, file)


def test_no_value_is_taken_for_a_variable() -> None:
    recipe = Recipe(
        "nets:1",
        "python:3.12-slim",
        repositories=("/srv/$HOME",),
        arguments=("--cache-config=redis,password=a$b",),
    )

    service = yaml.safe_load(compose_file(recipe))["services"]["server"]

    assert service["volumes"][0]["source"] == "/srv/$$HOME"
    assert service["command"][-1] == "--cache-config=redis,password=a$$b"
