"""The page for authors of backends in C++: its files, compiled and served as it says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.testing import find_compiler

from ..shell import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/write-a-backend-in-cpp.md").read_text()
README = (ROOT / "examples/tritonpy-backend-c-xyz/README.md").read_text()

pytestmark = [
    pytest.mark.timeout(240),  # they compile
    pytest.mark.skipif(find_compiler(".cc") is None, reason="there is no compiler for C++"),
]


def files() -> dict[str, str]:
    """The files of the page, by the name in their first line."""
    blocks = re.findall(
        r"^```(?:cpp|protobuf|python)\n(?://|#) (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    return dict(blocks)


def typed(beginning: str) -> list[str]:
    """The commands of the page that begin so."""
    found = re.findall(rf"^\$ ({re.escape(beginning)}.*)", PAGE, re.MULTILINE)
    assert found, beginning
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the page, after the commands that compile them."""
    root = tmp_path_factory.mktemp("page")
    for command in typed("mkdir"):
        run(command, root)
    assert len(files()) == 5
    for name, text in files().items():
        (root / name).write_text(text)
    for command in typed("c++"):
        run(command, root)
    return root


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("repository", ["models", "streams"])
def test_models_are_served_as_the_page_shows(
    folder: Path, served: Callable[..., Any], repository: str
) -> None:
    command = f"$ corectl serve --model-repository {repository}\n```\n"
    shown = re.search(
        rf"{re.escape(command)}\n```console\n\$ (curl .*)\n((?:.*\n)*?)```",
        PAGE.partition("## One file is enough")[2],
    )
    assert shown is not None
    server = served(f"--model-repository={folder / repository}")

    printed = run(shown[1].replace("localhost:8000", f"localhost:{server.http_port}"), folder)

    assert printed.strip() == shown[2].strip()


def test_the_test_of_the_page_passes(folder: Path) -> None:
    [command] = typed("python -m pytest test_doubles.py")

    assert " passed" in run(f"{command} -p no:cacheprovider", folder)


def test_a_new_backend_is_begun_as_in_the_readme_of_the_example() -> None:
    begin = PAGE.partition("## Begin\n")[2].partition("\n## ")[0]

    assert "$ corectl new backend words --language c++\n" in begin
    for line in ("pip install --no-build-isolation .", "corectl serve --model-repository models"):
        assert f"$ {line}\n" in begin
        assert f"    {line}\n" in README
    assert "corectl plugins check backends:c-xyz" in README
