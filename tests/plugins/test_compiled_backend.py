"""The example of a backend in C++: its wheel, served in an environment of its own, and by a real server."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tritonpy_sdk.testing import find_compiler

from .clean_environment import ROOT, Environment, Server, make_wheels, run

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.timeout(600),  # the first one waits until libraries are compiled
    pytest.mark.skipif(find_compiler(".cc") is None, reason="there is no C++ compiler"),
]

EXAMPLE = ROOT / "examples/tritonpy-backend-c-xyz"
README = (EXAMPLE / "README.md").read_text()


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheelhouse")
    make_wheels(directory, ROOT / "core", ROOT / "plugins/abi", EXAMPLE)
    return directory


@pytest.fixture(scope="module")
def environment(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    clean = Environment(tmp_path_factory.mktemp("clean") / "venv", "tritonpy", "tritonpy-abi")
    clean.install(wheelhouse, "tritonpy-backend-c-xyz")
    return clean


def readme_request() -> tuple[str, Any]:
    found = re.search(r"curl -s localhost:8000(\S+) -d '(.*)'", README)
    assert found is not None
    return found[1], json.loads(found[2])


def test_the_wheel_is_for_one_platform_and_any_python(wheelhouse: Path) -> None:
    [wheel] = wheelhouse.glob("tritonpy_backend_c_xyz-*")

    assert re.fullmatch(r"tritonpy_backend_c_xyz-1\.0\.0-py3-none-\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        assert "tritonpy_backend_c_xyz/libtriton_c-xyz.so" in archive.namelist()
    assert not list(EXAMPLE.glob("src/*/*.so"))


def test_it_is_listed_and_checked_as_a_library(environment: Environment) -> None:
    listed = json.loads(run(environment.corectl, "plugins", "--load", "--json"))
    [plugin] = [info for info in listed if info["name"] == "c-xyz"]
    library = environment.site_packages / "tritonpy_backend_c_xyz/libtriton_c-xyz.so"

    assert (plugin["kind"], plugin["version"], plugin["state"]) == ("backends", "1.0.0", "loaded")
    assert Path(plugin["library"]).samefile(library)
    checked = run(environment.corectl, "plugins", "check", "backends:c-xyz")
    assert checked == "backends:c-xyz of tritonpy-backend-c-xyz 1.0.0: can be used\n"


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_the_readme_is_true(environment: Environment, tmp_path: Path, isolation: str) -> None:
    shutil.copytree(EXAMPLE / "models", tmp_path / "models")
    with (tmp_path / "models/fruit/config.pbtxt").open("a") as config:
        config.write(f'parameters {{ key: "TRITONPY_ISOLATION" value {{ string_value: "{isolation}" }} }}\n')
    path, body = readme_request()

    server = Server(environment, "--model-repository", str(tmp_path / "models"))
    status, answer = server.ask(path, body)
    _, refusal = server.ask(path, {**body, "parameters": {"ignore_case": "maybe"}})

    assert server.stop() == 0
    assert status == 200
    counts, top = answer["outputs"]
    assert f'"data":{json.dumps(counts["data"], separators=(",", ":"))}' in README
    assert (counts["shape"], top["data"]) == ([2, 3], ["plum", ""])
    assert answer["parameters"] == {"total": 3}
    assert refusal == {"error": "ignore_case: expected true or false"}


def test_without_its_library_the_file_is_named(environment: Environment, tmp_path: Path) -> None:
    library = environment.site_packages / "tritonpy_backend_c_xyz/libtriton_c-xyz.so"
    library.rename(tmp_path / "aside")
    try:
        server = Server(
            environment, f"--model-repository={EXAMPLE / 'models'}", "--model-control-mode=explicit"
        )
        status, answer = server.ask("/v2/repository/models/fruit/load", {})
        assert server.stop() == 0
    finally:
        (tmp_path / "aside").rename(library)

    assert status != 200
    assert (
        f"cannot be used: its library {library} is not there: was tritonpy-backend-c-xyz built?"
        in (answer["error"])
    )


@pytest.mark.parity
def test_a_real_server_gives_the_same_answer(real_triton: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "c-xyz").mkdir()
    runpy.run_path(str(EXAMPLE / "build_backend.py"))["build"](tmp_path / "c-xyz")
    path, body = readme_request()

    ports = real_triton(EXAMPLE / "models", f"--backend-directory={tmp_path}")
    asked = Request(f"http://127.0.0.1:{ports['http']}{path}", json.dumps(body).encode())
    answer = json.load(urlopen(asked))

    assert [output["data"] for output in answer["outputs"]] == [[0, 1, 2, 0, 0, 0], ["plum", ""]]
    assert answer["parameters"] == {"total": 3}
