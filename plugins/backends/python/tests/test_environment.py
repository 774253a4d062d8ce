"""Which environment a model gets, and what is said when it cannot have it."""

from __future__ import annotations

import json
import sys
import tarfile
import venv
from pathlib import Path

import numpy as np
import pytest
import tritonpy_backend_python
from tritonpy.plugin import Backend, Internal, InvalidArg, Model, TritonError

EXPECTED = (
    "expected the directory of a virtual or conda environment, the path of an interpreter, or a packed "
    "environment (.tar.gz, .tgz, .tar, .tar.bz2, .tbz2, .tar.xz, .txz, .zip)"
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITONPY_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def make_environment(tmp_path):
    def make_environment(directory: Path) -> Path:
        venv.create(directory, symlinks=True)
        [site_packages] = directory.glob("lib/python*/site-packages")
        (site_packages / "numpy.pth").write_text(str(Path(np.__file__).parent.parent))
        return directory

    return make_environment


def pack(environment: Path, archive: Path) -> Path:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(environment, ".")
    return archive


def python_of(given: str | Path | None, tmp_path: Path, *, directory: Path | None = None, runtime: str = ""):
    """The interpreter that a model's workers get."""
    config = {"name": "net"}
    if given is not None:
        config["parameters"] = {"EXECUTION_ENV_PATH": {"string_value": str(given)}}
    backend = Backend("python", {"python-runtime": runtime}, directory=directory)
    model = Model("net", 1, config, tmp_path / "models" / "net", backend)
    return Path(tritonpy_backend_python.worker_command(model).command[0])


@pytest.mark.parametrize("given", [None, ""])
def test_a_model_that_names_none_runs_on_the_server_s_interpreter(tmp_path, given):
    assert python_of(given, tmp_path) == Path(sys.executable)


def test_a_directory_an_interpreter_and_an_archive_may_be_named(tmp_path, make_environment):
    environment = make_environment(tmp_path / "env")
    archive = pack(environment, tmp_path / "env.tar.gz")

    unpacked = python_of(archive, tmp_path)

    assert python_of(environment, tmp_path) == environment / "bin" / "python"
    assert python_of(environment / "bin" / "python3", tmp_path) == environment / "bin" / "python3"
    assert unpacked.is_relative_to(tmp_path / "cache" / "environments")
    assert python_of(archive, tmp_path) == unpacked


def test_the_path_may_begin_with_the_model_s_directory_and_go_up(tmp_path, make_environment):
    inside = make_environment(tmp_path / "models" / "net" / "env")
    beside = make_environment(tmp_path / "models" / "shared")

    assert python_of("$$TRITON_MODEL_DIRECTORY/env", tmp_path) == inside / "bin" / "python"
    assert python_of("$$TRITON_MODEL_DIRECTORY/../shared", tmp_path) == beside / "bin" / "python"


def test_the_order_is_the_model_s_then_the_backend_s_then_the_setting_s(tmp_path, make_environment):
    environment = make_environment(tmp_path / "env")
    backend = tmp_path / "backends" / "mine"
    archive = backend / "pb_exec_env_model.py.tar.gz"
    pack(environment, archive)
    runtime = str(environment / "bin" / "python3")

    from_archive = python_of(None, tmp_path, directory=backend, runtime=runtime)
    from_model = python_of(environment, tmp_path, directory=backend, runtime=runtime)
    archive.unlink()
    from_setting = python_of(None, tmp_path, directory=backend, runtime=runtime)

    assert from_model == environment / "bin" / "python"
    assert from_archive.is_relative_to(tmp_path / "cache")
    assert from_setting == Path(runtime)


def refusal(given: str | Path, tmp_path: Path, **options) -> TritonError:
    with pytest.raises(TritonError) as refused:
        python_of(given, tmp_path, **options)
    return refused.value


@pytest.mark.parametrize(
    ("given", "path", "reason"),
    [
        ("/nonexistent/env.tar.gz", "/nonexistent/env.tar.gz", "No such file or directory"),
        ("/nonexistent/../nosuch", "/nosuch", "No such file or directory"),
        ("nosuch.tar.gz", "nosuch.tar.gz", "No such file or directory"),
        ("/etc/passwd/env", "/etc/passwd/env", "Not a directory"),
        ("/tmp/$$TRITON_MODEL_DIRECTORY/x", "/tmp/$$TRITON_MODEL_DIRECTORY/x", "No such file or directory"),
    ],
)
def test_a_path_that_is_not_there_is_refused_in_triton_s_words(tmp_path, given, path, reason):
    error = refusal(given, tmp_path)

    assert isinstance(error, Internal)
    assert error.message == (
        f"Failed to get the canonical path for {path}. {reason}: "
        f"parameter EXECUTION_ENV_PATH of model 'net' is '{given}'; {EXPECTED}"
    )


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    assert refusal(tmp_path / "a", tmp_path).message.startswith("Failed to get the canonical path for ")


def test_what_is_there_but_no_environment_is_refused_with_all_that_could_be(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    no_interpreter = refusal(tmp_path / "empty", tmp_path)
    no_program = refusal(tmp_path / "text", tmp_path)

    assert isinstance(no_interpreter, InvalidArg)
    assert no_interpreter.message == (
        f"Path {tmp_path}/empty/bin/python does not exist. The Python environment should contain an "
        f"interpreter there: parameter EXECUTION_ENV_PATH of model 'net' is '{tmp_path}/empty'; {EXPECTED}"
    )
    assert no_program.message.startswith(f"{tmp_path}/text is neither a program nor an archive: parameter")


def test_an_archive_with_its_folder_at_the_top_says_how_to_pack_it(tmp_path, make_environment):
    environment = make_environment(tmp_path / "env")
    archive = tmp_path / "env.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(environment, "env")

    assert refusal(archive, tmp_path).message.startswith(
        f"{archive} cannot be unpacked: it has no bin/python at its top; pack what is in the environment's "
        f"directory; parameter"
    )
    assert not list((tmp_path / "cache" / "environments").glob("*/bin"))


def test_an_archive_that_cannot_be_read_is_refused_with_who_named_it(tmp_path):
    archive = tmp_path / "env.tar.gz"
    archive.write_text("hello")

    assert refusal(archive, tmp_path).message == (
        f"{archive} cannot be unpacked: it is neither a tar nor a zip archive; "
        f"parameter EXECUTION_ENV_PATH of model 'net' is '{archive}'"
    )


def test_a_setting_that_names_a_wrong_interpreter_is_told_apart_from_a_parameter(tmp_path):
    fake = tmp_path / "python"
    fake.write_text(
        f"#!/bin/sh\necho '{json.dumps({'version': [3, 8, 1], 'variables': {}, 'numpy': '1'})}'\n"
    )
    fake.chmod(0o755)

    assert refusal("", tmp_path, runtime=str(fake)).message == (
        f"{fake} is Python 3.8.1, and models need 3.9 or newer: "
        f"--backend-config=python,python-runtime is '{fake}'; {EXPECTED}"
    )
