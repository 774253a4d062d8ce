"""The commands of the page on images: a recipe as shown, an environment that serves where it was moved."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest
import yaml
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess

from ..plugins.clean_environment import clean_variables
from ..shell import run

pytestmark = [pytest.mark.neighbours, pytest.mark.timeout(900)]

DOWNLOAD_S = 600

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/make-an-image.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which the examples lie as in a clone."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def typed(block: str) -> list[str]:
    return re.findall(r"^\$ (.*)", block, re.MULTILINE)


def without_sizes(text: str) -> list[str]:
    """What is told, without what depends on where pip finds packages, and on the engine that is installed."""
    text = re.sub(r"^wheels: \d+ of \d+ packages, [\d.]+ MB$", "wheels: some", text, flags=re.MULTILINE)
    return re.sub(r"^to build it: \w+ (build|bud) ", "to build it: ", text, flags=re.MULTILINE).splitlines()


def test_the_recipe_is_told_as_on_the_page(folder: Path) -> None:
    _, recipe, _ = BLOCKS
    [command] = typed(recipe)

    told = run(command, folder, DOWNLOAD_S)

    assert without_sizes(told) == without_sizes(recipe.partition("\n")[2])
    service = yaml.safe_load((folder / "compose/compose.yaml").read_text())["services"]["server"]
    assert service["volumes"][0]["target"] == "/models"
    locked = (folder / "compose/requirements.txt").read_text()
    assert len(re.findall(r"^[\w-]+==\S+ --hash=sha256:[0-9a-f]{64}$", locked, re.MULTILINE)) > 20


def test_the_environment_serves_where_it_was_moved(folder: Path) -> None:
    compose, move, serve = typed(BLOCKS[-1])
    moved = folder / "srv/tritonpy"
    moved.parent.mkdir()
    request = (ROOT / "examples/digits/requests/seven.json").read_bytes()

    run(compose, folder, DOWNLOAD_S)
    run(move.replace("/srv/tritonpy", str(moved)), folder)
    program, _, *arguments = serve.split()
    with ServerProcess(
        *arguments,
        program=program.replace("/srv/tritonpy", str(moved)),
        environment=clean_variables(HOME=str(folder)),
        directory=folder,
    ) as server:
        url = f"http://127.0.0.1:{server.http_port}/v2/models/digits/infer"
        with build_opener(ProxyHandler({})).open(url, request, timeout=DEADLINE_S) as answer:
            scores = json.loads(answer.read())["outputs"][0]["data"]

    assert scores.index(max(scores)) == 7
