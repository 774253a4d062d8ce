"""The store of the page, installed as a stranger's distribution, serves models."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tritonpy.errors import Internal
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ..servers import local_options

PAGE = (Path(__file__).parents[2] / "docs/how-to/write-a-store.md").read_text()
FILES = dict(re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
CORECTL = Path(sys.executable).with_name("corectl")
CONFIG = """
backend: "identity"
input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive with a model, in the working directory."""
    monkeypatch.chdir(tmp_path)
    pack("one")
    return tmp_path


def pack(*models: str) -> None:
    """Put an archive with these models in the place of the one there is."""
    for name in models:
        Path("made", name, "1").mkdir(parents=True)
        Path("made", name, "config.pbtxt").write_text(CONFIG)
        Path("made", name, "1/weights").write_text(name)
    made = shutil.make_archive("made-anew", "zip", "made")
    shutil.rmtree("made")
    os.replace(made, "models.zip")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("zip_store")
    exec(compile(FILES["zip_store.py"], "zip_store.py", "exec"), vars(module))
    return module


def install(folder: Path, distribution: str) -> Path:
    """What pip would make of the page's two files; for PYTHONPATH."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    [(prefix, module)] = project["entry-points"]["tritonpy.stores"].items()
    site = folder / distribution
    info = site / f"{distribution.replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (site / f"{module}.py").write_text(FILES["zip_store.py"])
    metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata)
    (info / "entry_points.txt").write_text(f"[tritonpy.stores]\n{prefix} = {module}\n")
    return site


def run(*arguments: str, path: list[Path]) -> tuple[int, str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [CORECTL, *arguments],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


def infer(port: int, model: str) -> Any:
    tensor = {"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [21]}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urlopen(f"http://127.0.0.1:{port}/v2/models/{model}/infer", body, timeout=20) as answer:
        return json.loads(answer.read())["outputs"][0]["data"]


def is_served(port: int, model: str) -> bool:
    try:
        return bool(infer(port, model) == [21])
    except HTTPError as error:
        error.close()
        return False


def test_an_installed_store_serves_and_is_followed(
    folder: Path, corectl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install(folder, "zip-store")
    _, command = re.findall(
        r"^\$ corectl serve (.*)$", PAGE, re.MULTILINE
    )  # the first: what `corectl new` makes
    monkeypatch.setenv("PYTHONPATH", str(site))
    (folder / "copies").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder / "copies"))

    server = corectl(*command.split(), "--repository-poll-secs=0.1")
    port = server.ports["HTTPService"]
    at_first = infer(port, "one"), is_served(port, "two")
    pack("two")
    until(lambda: is_served(port, "two") and not is_served(port, "one"))
    status = server.stop()

    assert at_first == ([21], False)
    assert status == 0
    assert not list((folder / "copies").glob("tritonpy-models-*/zip-*"))


def test_corectl_lists_the_store_and_leaves_it_out_when_told(folder: Path) -> None:
    site = install(folder, "zip-store")
    root = "--model-repository=zip://models.zip"

    _, listed = run("plugins", "--load", path=[site])
    disabled = run("serve", root, "--disable-plugin=stores:zip", path=[site])
    missing = run("serve", root, path=[])

    assert re.search(r"^zip +stores +1\.0\.0 +zip-store +loaded +store_open$", listed, re.MULTILINE)
    assert disabled[0] == missing[0] == 1
    assert "plugin 'zip' of kind 'stores' is disabled by --disable-plugin stores:zip" in disabled[1]
    assert "model repository 'zip://models.zip' has the unknown prefix 'zip://'" in missing[1]


def test_a_prefix_that_two_distributions_offer_is_refused_with_both_names(folder: Path) -> None:
    path = [install(folder, "zip-store"), install(folder, "other-zips")]

    status, said = run("serve", "--model-repository=zip://models.zip", path=path)

    assert status == 1
    assert re.search(
        r"'zip' is offered by several distributions, (zip-store, other-zips|other-zips, zip-store)", said
    )


def server_of(root: str, store: ModuleType) -> Server:
    return Server(local_options(root), plugins={"stores": {"zip": store}})


def test_a_program_hands_its_own_store_to_the_server_inside(folder: Path, store: ModuleType) -> None:
    with server_of("zip://models.zip", store) as server:
        assert infer(server.http_port, "one") == [21]


def test_what_a_store_raises_ends_the_start_and_names_the_repository(
    folder: Path, store: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(Internal, match=r"model repository zip://none\.zip cannot be read: .*No such file"),
        server_of("zip://none.zip", store),
    ):
        pass
    monkeypatch.setattr(store.ZipStore, "model_names", lambda self: {}["models"])
    with (
        pytest.raises(Internal, match=r"the store of model repository zip://models\.zip: KeyError: 'models'"),
        server_of("zip://models.zip", store),
    ):
        pass


def test_the_test_of_the_page_passes(folder: Path) -> None:
    for name in ("zip_store.py", "test_zip_store.py"):
        (folder / name).write_text(FILES[name])

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
