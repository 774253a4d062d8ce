"""Models with an environment of their own: which interpreter runs them, and what is said of others."""

from __future__ import annotations

import json
import logging
import os
import site
import sys
import urllib.request
import venv
from pathlib import Path

import psutil
import pytest
from tritonpy.errors import TritonError
from tritonpy.handles import Backend, Model
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_backend_tensorflow import environment

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="the environments of these tests are made for POSIX"
)


def model_of(path, directory):
    config = {"parameters": {"EXECUTION_ENV_PATH": {"string_value": str(path)}} if path else {}}
    return Model("net", 1, config, directory, Backend("tensorflow"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A virtual environment that finds the packages of this one, TensorFlow too."""
    folder = tmp_path_factory.mktemp("environments") / "other"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (own,) = (path for path in site.getsitepackages() if path.startswith(sys.prefix))
    (packages / "own.pth").write_text(f"import site; site.addsitedir({own!r})\n")
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A virtual environment with nothing in it."""
    folder = tmp_path_factory.mktemp("environments") / "bare"
    venv.create(folder, symlinks=True)
    return folder


def test_a_model_without_the_parameter_runs_on_the_server_s_interpreter(tmp_path):
    assert environment.environment_command(model_of("", tmp_path)) is None


def test_models_run_side_by_side_with_the_tensorflow_of_their_environments(tf, other, saved, place, tmp_path):
    doubled = saved(lambda x: {"y": x * 2}, {"x": (tf.float32, [None, 2])})
    for name, path in (("here", ""), ("there", "$$TRITON_MODEL_DIRECTORY/../../env")):
        config = {"backend": "tensorflow", "instance_group": [{"kind": "KIND_CPU", "count": 1}]}
        if path:
            config["parameters"] = {"EXECUTION_ENV_PATH": {"string_value": path}}
        place(tmp_path / "models", doubled, config, name=name)
    (tmp_path / "env").symlink_to(other)
    options = ServerOptions(
        (str(tmp_path / "models"),),
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
    )
    with Server(options) as server:
        programs = [child.cmdline() for child in psutil.Process().children(recursive=True)]
        for name in ("here", "there"):
            x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
            url = f"http://127.0.0.1:{server.http_port}/v2/models/{name}/infer"
            with urllib.request.urlopen(url, json.dumps({"inputs": [x]}).encode(), timeout=60) as answer:
                assert json.load(answer)["outputs"][0]["data"] == [2, 4]

    workers = [program[0] for program in programs if "tritonpy.workers.child.main" in program]
    assert workers == [str(tmp_path / "env/bin/python")]  # the other model is on a thread


@pytest.mark.usefixtures("tf")
def test_an_interpreter_may_be_named_itself(other, tmp_path):
    command = environment.environment_command(model_of(other / "bin/python3", tmp_path))

    assert command.command[0] == str(other / "bin/python3")
    assert command.environment["VIRTUAL_ENV"] == str(other)
    assert command.environment["PYTHONPATH"] is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere", "is not there, expected the directory of a virtual or conda environment"),
        ("models", "there is no bin/python in '"),
        ("env.tar.gz", "is a file that is no program"),
        ("broken", "is no Python from 3.11 on that works: what is -P?"),
    ],
)
def test_what_is_no_environment_is_refused(tmp_path, path, words):
    (tmp_path / "models").mkdir()
    (tmp_path / "env.tar.gz").write_bytes(b"")
    (tmp_path / "broken").write_text("#!/bin/sh\necho 'what is -P?' >&2\nexit 2\n")
    (tmp_path / "broken").chmod(0o755)

    with pytest.raises(TritonError) as caught:
        environment.environment_command(model_of(f"$$TRITON_MODEL_DIRECTORY/{path}", tmp_path))

    assert str(caught.value).startswith("parameter EXECUTION_ENV_PATH of model 'net' is '$$TRITON_MODEL_DIR")
    assert words in str(caught.value)


def test_what_is_not_installed_there_is_named_with_the_command_that_installs_it(bare, tmp_path):
    with pytest.raises(TritonError) as caught:
        environment.environment_command(model_of(bare, tmp_path))

    said = str(caught.value)
    assert "no tritonpy, tritonpy-backend-tensorflow, tensorflow is installed there" in said
    assert f"'{bare}/bin/python -m pip install'" in said


@pytest.mark.usefixtures("tf")
def test_another_version_of_the_server_is_refused(other, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "version", lambda name: "9.9.9")

    with pytest.raises(TritonError, match=r"is installed there, expected the server's version 9\.9\.9"):
        environment.environment_command(model_of(other, tmp_path))


def test_a_model_on_a_thread_is_warned_of(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "tritonpy"):
        environment.warn_of_thread(model_of("", tmp_path))
        environment.warn_of_thread(model_of(sys.prefix, tmp_path))
        environment.warn_of_thread(model_of(Path(sys.prefix, "bin/python"), tmp_path))
        assert not caplog.text
        environment.warn_of_thread(model_of(tmp_path, tmp_path))

    assert "model 'net' runs on a thread of the server, and so with the server's TensorFlow" in caplog.text
