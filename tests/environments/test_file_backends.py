"""Backends that are a `model.py` in the backend directory, beside the real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REAL_TRITON = Path(__file__).parents[2] / "benchmarks" / "real_triton.py"
CODE_OF_THE_MODEL = "raise AssertionError('this is not what serves the model')"


@pytest.fixture
def backends(tmp_path: Path, model) -> Path:
    """A backend directory with the backend `mine`, whose code is that of the model that says what it sees."""
    code = (model("source") / "source" / "1" / "model.py").read_text()
    directory = tmp_path / "backends" / "mine"
    directory.mkdir(parents=True)
    (directory / "model.py").write_text(f"import helper\n{code}")
    (directory / "helper.py").touch()
    return directory.parent


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Models of that backend, which differ in what their directories hold."""
    root = tmp_path / "repository"
    for name, config, files in (
        ("plain", 'backend: "mine"', ["model.json"]),
        ("no_files", 'backend: "mine"', []),
        ("asks", 'backend: "mine" runtime: "model.py"', ["model.json"]),
        ("own_code", 'backend: "mine"', ["model.py"]),
        ("batches", 'backend: "mine" instance_group [ { count: 2 } ]', ["model.json"]),
        ("named.mine", None, ["model.mine"]),
    ):
        version = root / name / "1"
        version.mkdir(parents=True)
        for file in files:
            (version / file).write_text(CODE_OF_THE_MODEL)
        if config is not None:
            (version.parent / "config.pbtxt").write_text(config)
    return root


NAMES = ("plain", "no_files", "asks", "own_code", "batches", "named.mine")


def without_processes(found: dict) -> dict:
    """What depends neither on where a server has its own files nor on which instance answered."""
    seen = {key: found[key] for key in ("file", "module", "model_directory", "args")}
    instance = seen["args"]["model_instance_name"].rpartition("_")[0]
    return {**seen, "args": {**seen["args"], "model_instance_name": instance}}


def test_the_backend_s_file_serves_its_models(serve, backends, repository, ask, call):
    port = serve(repository, backend_directory=str(backends)).http_port

    for name in NAMES:
        found = ask(port, name)
        _, config = call(port, f"/v2/models/{name}/config", None)

        assert found["file"] == str(backends / "mine" / "model.py")
        assert found["module"] == "model"
        assert found["model_directory"] == str(repository / name / "1")
        assert found["args"]["model_repository"] == str(repository / name)
        assert found["path"][-1] == str(backends / "mine")
        assert (config["backend"], config["runtime"]) == ("mine", "model.py")
        assert config["default_model_filename"] == ("model.mine" if name == "named.mine" else "")


@pytest.mark.parity
def test_models_see_what_they_see_on_the_real_server(serve, backends, repository, ask, call, real_triton):
    fetched = subprocess.check_output([sys.executable, str(REAL_TRITON), "fetch"])
    shutil.copytree(Path(json.loads(fetched)["backends"]) / "python", backends / "python")
    their_port = real_triton(repository, f"--backend-directory={backends}")["http"]
    our_port = serve(repository, backend_directory=str(backends)).http_port

    for name in NAMES:
        assert without_processes(ask(our_port, name)) == without_processes(ask(their_port, name))
        config = f"/v2/models/{name}/config"
        assert call(our_port, config, None) == call(their_port, config, None)


def test_a_packed_environment_beside_the_file_is_that_of_its_models(
    serve, backends, repository, ask, packed, cache
):
    packed.rename(backends / "mine" / "pb_exec_env_model.py.tar.gz")
    for name in set(NAMES) - {"plain"}:
        shutil.rmtree(repository / name)

    found = ask(serve(repository, backend_directory=str(backends)).http_port, "plain")

    assert Path(found["prefix"]).parent == cache


def test_settings_of_the_python_backend_hold_for_it_too(serve, backends, repository, call):
    setting = ("python", "stub-timeout-seconds", "0")
    server = serve(
        repository, backend_directory=str(backends), backend_config=(setting,), exit_on_error=False
    )

    _, index = call(server.http_port, "/v2/repository/index", {})

    assert {entry["reason"] for entry in index} == {
        "Invalid argument: stub-timeout-seconds can't be smaller than or equal to zero."
    }


def test_a_backend_that_is_neither_installed_nor_a_file_is_refused_by_name(serve, backends, tmp_path, call):
    version = tmp_path / "other" / "net" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text('backend: "nosuch"')
    server = serve(tmp_path / "other", backend_directory=str(backends), exit_on_error=False)

    _, [entry] = call(server.http_port, "/v2/repository/index", {})

    assert "no installed plugin of kind 'backends' is called 'nosuch'" in entry["reason"]
