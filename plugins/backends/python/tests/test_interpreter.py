"""Which Pythons models can run on, and the environment they get there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import venv
from pathlib import Path

import numpy as np
import pytest
from tritonpy_backend_python.interpreter import (
    BadInterpreter,
    Interpreter,
    check_interpreter,
    find_interpreter,
)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with numpy and nothing else."""
    directory = tmp_path / "env"
    venv.create(directory, symlinks=True)
    [site_packages] = directory.glob("lib/python*/site-packages")
    for package in Path(np.__file__).parent.parent.glob("numpy*"):
        (site_packages / package.name).symlink_to(package)
    return directory


@pytest.fixture
def fake(tmp_path: Path):
    """A program that behaves as `script` says, in the place of an interpreter."""

    def fake(script: str) -> Path:
        path = tmp_path / "fake"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return fake


def answer(version: list[int], **found: str) -> str:
    return json.dumps({"version": version, "variables": {}, "numpy": "1.0", **found})


def variables(interpreter: Interpreter) -> dict[str, str]:
    """The environment of a process on it, as the server makes it."""
    changed = {**os.environ, **interpreter.environment}
    return {name: value for name, value in changed.items() if value is not None}


def run(interpreter: Interpreter, code: str) -> str:
    command = [str(interpreter.path), "-c", code]
    return subprocess.check_output(command, text=True, env=variables(interpreter)).strip()


def test_a_virtual_environment_runs_with_its_own_packages_only(environment, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(np.__file__).parent.parent))
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")

    interpreter = check_interpreter(find_interpreter(environment))

    assert interpreter.path == environment / "bin" / "python"
    code = "import sys, numpy, importlib.util as u; print(sys.prefix, u.find_spec('tritonpy'))"
    assert run(interpreter, code) == f"{environment} None"


def test_a_virtual_environment_is_active_in_its_processes(environment, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", "/the/server's")
    monkeypatch.setenv("CONDA_PREFIX", "/the/server's")
    monkeypatch.setenv("PATH", f"{environment}/bin:/usr/bin:/bin")

    found = variables(check_interpreter(find_interpreter(environment)))

    assert found["VIRTUAL_ENV"] == str(environment)
    assert found["PATH"] == f"{environment}/bin:/usr/bin:/bin"
    assert "CONDA_PREFIX" not in found


def test_what_activate_sets_is_set(environment):
    with (environment / "bin" / "activate").open("a") as activate:
        activate.write("\nexport LICENCE='a b'\necho activated\n")

    interpreter = check_interpreter(find_interpreter(environment))

    assert interpreter.environment["LICENCE"] == "a b"
    assert not {"PWD", "SHLVL", "_", "PS1"} & set(interpreter.environment)


def test_without_a_shell_an_environment_still_runs(environment, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    interpreter = check_interpreter(find_interpreter(environment))

    assert interpreter.environment["VIRTUAL_ENV"] == str(environment)


def test_an_environment_that_was_moved_is_active_where_it_is_now(environment, tmp_path):
    moved = environment.rename(tmp_path / "moved")

    found = variables(check_interpreter(find_interpreter(moved)))

    assert found["VIRTUAL_ENV"] == str(moved)
    assert found["PATH"].split(":")[0] == f"{moved}/bin"


def make_conda(environment: Path) -> None:
    """Turn it into what conda makes: no venv, a record of packages, scripts for activation."""
    (environment / "pyvenv.cfg").unlink()
    for script in environment.glob("bin/[aA]ctivate*"):
        script.unlink()
    (environment / "conda-meta").mkdir()
    (environment / "bin" / "python").unlink()
    # It stands for an interpreter that lies in the environment with all it needs.
    runs = f'#!/bin/sh\nPYTHONPATH={Path(np.__file__).parent.parent} exec {sys.executable} "$@"\n'
    (environment / "bin" / "python").write_text(runs)
    (environment / "bin" / "python").chmod(0o755)


def test_a_conda_environment_finds_its_libraries_and_runs_its_activation_scripts(environment, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/lib")
    make_conda(environment)
    scripts = environment / "etc" / "conda" / "activate.d"
    scripts.mkdir(parents=True)
    (scripts / "a.sh").write_text('export DATA="$CONDA_PREFIX/share"\n')
    (scripts / "b.sh").write_text('export MORE="$DATA/more"\n')

    found = variables(check_interpreter(find_interpreter(environment)))

    assert found["CONDA_PREFIX"] == str(environment)
    assert found["MORE"] == f"{environment}/share/more"
    assert found["LD_LIBRARY_PATH"] == f"{environment}/lib:/usr/lib"
    assert found["PATH"].split(":")[0] == f"{environment}/bin"
    assert found["PYTHONNOUSERSITE"] == "1"
    assert "VIRTUAL_ENV" not in found


def test_a_packed_conda_environment_is_activated_by_its_own_script(environment):
    make_conda(environment)
    # conda-pack's does nothing when its environment seems to be active already.
    activate = f'[ "$CONDA_PREFIX" = {environment} ] || export CONDA_PREFIX={environment} ACTIVATED=yes\n'
    (environment / "bin" / "activate").write_text(activate)

    found = variables(check_interpreter(find_interpreter(environment)))

    assert found["ACTIVATED"] == "yes"
    assert found["CONDA_PREFIX"] == str(environment)


def test_an_interpreter_of_the_system_runs_without_the_server_s_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/the/server's")
    monkeypatch.setenv("VIRTUAL_ENV", "/the/server's")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/lib")
    runs = f'#!/bin/sh\nPYTHONPATH={Path(np.__file__).parent.parent} exec {sys.executable} "$@"\n'
    python = tmp_path / "python"
    python.write_text(runs)
    python.chmod(0o755)

    interpreter = check_interpreter(python)

    assert interpreter.path == python
    assert interpreter.environment["VIRTUAL_ENV"] is None
    assert "LD_LIBRARY_PATH" not in interpreter.environment


@pytest.mark.parametrize("version", [[2, 7, 18], [3, 6, 15], [3, 8, 18]])
def test_a_python_that_is_too_old_is_refused_with_its_version(fake, version):
    path = fake(f"echo '{answer(version)}'")

    with pytest.raises(BadInterpreter) as refused:
        check_interpreter(path)

    assert (
        str(refused.value) == f"{path} is Python {'.'.join(map(str, version))}, and models need 3.9 or newer"
    )


def test_a_python_without_numpy_is_refused_with_the_command_that_installs_it(environment):
    for package in environment.glob("lib/python*/site-packages/numpy*"):
        package.unlink()
    path = environment / "bin" / "python"

    with pytest.raises(BadInterpreter) as refused:
        check_interpreter(path)

    version = ".".join(map(str, sys.version_info[:3]))
    assert str(refused.value) == (
        f"{path} (Python {version}) has no numpy that can be imported: "
        f"ModuleNotFoundError: No module named 'numpy'; '{path} -m pip install numpy' installs it"
    )


def test_numpy_in_the_server_s_working_directory_is_not_the_environment_s(environment, monkeypatch):
    [site_packages] = environment.glob("lib/python*/site-packages")
    for package in site_packages.glob("numpy*"):
        package.unlink()
    (environment / "numpy").mkdir()
    (environment / "numpy" / "__init__.py").write_text("__version__ = '1'\n")
    monkeypatch.chdir(environment)

    with pytest.raises(BadInterpreter, match="has no numpy"):
        check_interpreter(environment / "bin" / "python")


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo no Python at all", r"is no Python interpreter that works \(status 0\): it said nothing"),
        ("echo Fatal >&2; exit 7", r"is no Python interpreter that works \(status 7\): Fatal"),
        ("kill -SEGV $$", r"is no Python interpreter that works \(status -11\): it said nothing"),
    ],
)
def test_what_is_no_python_is_refused_with_what_it_said(fake, script, text):
    with pytest.raises(BadInterpreter, match=text):
        check_interpreter(fake(script))


def test_a_program_that_cannot_be_run_is_refused(tmp_path):
    path = tmp_path / "python"
    path.write_text("no program")
    path.chmod(0o755)

    with pytest.raises(BadInterpreter, match="python cannot be run: Exec format error"):
        check_interpreter(path)


def test_an_activation_that_ends_the_shell_is_told(environment):
    (environment / "bin" / "activate").write_text("echo no licence >&2; exit 5\n")

    with pytest.raises(BadInterpreter, match=r"\(status 5\): no licence"):
        check_interpreter(environment / "bin" / "python")


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_directory_without_an_interpreter_is_refused_with_the_path_that_is_missing(tmp_path, is_dangling):
    (tmp_path / "bin").mkdir()
    reason = ""
    if is_dangling:
        (tmp_path / "bin" / "python").symlink_to("/nonexistent/python3.9")
        reason = " (a link to /nonexistent/python3.9, which is not on this machine)"

    with pytest.raises(BadInterpreter) as refused:
        find_interpreter(tmp_path)

    assert str(refused.value) == (
        f"Path {tmp_path}/bin/python does not exist{reason}. "
        f"The Python environment should contain an interpreter there"
    )


def test_an_environment_may_have_python3_only(environment):
    (environment / "bin" / "python").unlink()
    python = environment / "bin" / "python3"
    python.unlink()
    python.symlink_to(sys.executable)

    assert find_interpreter(environment) == python


def test_an_interpreter_is_asked_once_by_loads_at_once_and_again_when_it_has_changed(fake, tmp_path):
    script = f"echo asked >> {tmp_path}/log; sleep 0.2; echo '{answer([3, 9, 0])}'"
    path = fake(script)
    threads = [threading.Thread(target=check_interpreter, args=(path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked_at_first = (tmp_path / "log").read_text().count("asked")

    fake(script + " # changed")
    check_interpreter(path)

    assert asked_at_first == 1
    assert (tmp_path / "log").read_text().count("asked") == 2


def test_a_refusal_is_not_remembered(environment):
    [site_packages] = environment.glob("lib/python*/site-packages")
    away = environment / "away"
    (site_packages / "numpy").rename(away)
    with pytest.raises(BadInterpreter):
        check_interpreter(environment / "bin" / "python")
    away.rename(site_packages / "numpy")

    assert check_interpreter(environment / "bin" / "python").path == environment / "bin" / "python"


def test_a_changed_activation_is_seen(environment):
    python = environment / "bin" / "python"
    before = check_interpreter(python).environment.get("LICENCE")
    with (environment / "bin" / "activate").open("a") as activate:
        activate.write("\nexport LICENCE=new\n")

    assert (before, check_interpreter(python).environment["LICENCE"]) == (None, "new")


def test_the_shell_of_the_tests_is_there():
    assert shutil.which("bash")  # without it, activation is not what is tested above


def test_allocator_of_the_server_stays_with_the_server_and_other_preloaded_libraries_come_along(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ours, other) = ("/nowhere/libjemalloc.so.2", "/nowhere/ops.so")
    monkeypatch.setenv("TRITONPY_MALLOC_LIBRARY", ours)
    monkeypatch.setenv("LD_PRELOAD", f"{ours}:{other}")

    found = variables(check_interpreter(find_interpreter(environment)))

    assert found["LD_PRELOAD"] == other
    assert "TRITONPY_MALLOC_LIBRARY" not in found

    monkeypatch.setenv("LD_PRELOAD", ours)
    other_environment = environment.rename(environment.with_name("other"))

    assert "LD_PRELOAD" not in variables(check_interpreter(find_interpreter(other_environment)))
