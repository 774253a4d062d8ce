"""The example of a package with custom operators: its wheel, served in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
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


@pytest.mark.skipif(sys.platform != "linux", reason="the variable is one of Linux")
def test_what_is_preloaded_reaches_workers_and_is_not_opened_again(
    environment: Environment, models: Path, tmp_path: Path
) -> None:
    library = environment.site_packages / "tritonpy_ops_xyz/lib/pytorch.so"
    isolated = 'parameters { key: "TRITONPY_ISOLATION" value { string_value: "process" } }'
    named = 'model_operations { op_library_filename: "copy.so" }'
    for name, config in (("with_nothing", isolated), ("with_copy", named)):
        shutil.copytree(models / "squared_relu_pytorch", tmp_path / name)
        (tmp_path / name / "config.pbtxt").write_text(f'backend: "pytorch"\n{config}\n')
    shutil.copyfile(library, tmp_path / "with_copy/copy.so")  # opened beside the first, it ends the process
    tensor = {"name": "X", "datatype": "FP32", "shape": [1, 3], "data": [-1, 2, 3]}

    server = Server(
        environment,
        "--disable-plugin=op_libraries:xyz",
        f"--model-repository={tmp_path}",
        LD_PRELOAD=str(library),
        LD_LIBRARY_PATH=str(environment.site_packages / "torch/lib"),
    )
    answers = [server.ask(f"/v2/models/{name}/infer", {"inputs": [tensor]}) for name in os.listdir(tmp_path)]

    assert server.stop() == 0
    assert [(status, answer["outputs"][0]["data"]) for status, answer in answers] == [(200, [0, 4, 9])] * 2
