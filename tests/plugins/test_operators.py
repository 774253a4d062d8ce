"""The example of a package with custom operators: its wheel, served in an environment of its own."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest
from tritonpy_sdk.testing import find_compiler

from .clean_environment import (
    ROOT,
    Environment,
    Server,
    dependencies_of,
    link_distribution,
    make_wheels,
    run,
)

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.timeout(600),  # the first one waits until operators are compiled
    pytest.mark.skipif(find_compiler(".cc") is None, reason="there is no C++ compiler"),
]

EXAMPLE = ROOT / "examples/tritonpy-ops-xyz"
BACKEND = ROOT / "plugins/backends/pytorch"


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    directory = tmp_path_factory.mktemp("wheelhouse")
    make_wheels(directory, ROOT / "core", BACKEND, EXAMPLE)
    return directory


@pytest.fixture(scope="module")
def environment(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    clean = Environment(tmp_path_factory.mktemp("clean") / "venv", "tritonpy", "tritonpy-backend-pytorch")
    for name in ("torch", *dependencies_of("torch")):
        link_distribution(name, clean.site_packages)
    clean.install(wheelhouse, "tritonpy-backend-pytorch", "tritonpy-ops-xyz")
    return clean


@pytest.fixture(scope="module")
def models(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("models")
    run(environment.python, "-W", "ignore", EXAMPLE / "make_models.py", repository)
    return repository


def test_the_wheel_is_for_one_platform_and_any_python(wheelhouse: Path) -> None:
    [wheel] = wheelhouse.glob("tritonpy_ops_xyz-*")

    assert re.fullmatch(r"tritonpy_ops_xyz-1\.0\.0-py3-none-(linux|macosx)\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        assert "tritonpy_ops_xyz/lib/pytorch.so" in archive.namelist()
    assert not (EXAMPLE / "src/tritonpy_ops_xyz/lib").exists()


def test_a_model_that_calls_its_operator_is_served(environment: Environment, models: Path) -> None:
    listed = json.loads(run(environment.corectl, "plugins", "--load", "--json"))
    [plugin] = [info for info in listed if info["kind"] == "op_libraries"]
    found = re.search(r"curl -s localhost:8000(\S+) -d '(.*)'", (EXAMPLE / "README.md").read_text())
    assert found is not None

    server = Server(environment, "--model-repository", str(models))
    status, answer = server.ask(found[1], json.loads(found[2]))

    assert server.stop() == 0
    assert (plugin["name"], plugin["distribution"], plugin["state"], plugin["hooks"]) == (
        "xyz",
        "tritonpy-ops-xyz",
        "loaded",
        ["op_library_paths"],
    )
    assert (status, answer["outputs"][0]["data"]) == (200, [0, 4, 9])


def test_without_the_plugin_the_missing_operator_is_told(environment: Environment, models: Path) -> None:
    flags = ["--disable-plugin=op_libraries:xyz", "--model-control-mode=explicit"]
    server = Server(environment, "--model-repository", str(models), *flags)
    status, answer = server.ask("/v2/repository/models/squared_relu_pytorch/load", {})

    assert server.stop() == 0
    assert status != 200
    assert "its operator 'ops_xyz::squared_relu' is not known to PyTorch; a library" in answer["error"]
