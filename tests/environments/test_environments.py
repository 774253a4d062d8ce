"""Python models that name the environment they run in, behind a server."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tritonpy.errors import TritonError
from tritonpy_sdk.testing import until


def test_a_model_runs_in_the_environment_it_names_with_none_of_the_server_s_packages(
    serve, model, ask, environment, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", "/the/server's")
    repository = model("net", environment)

    found = ask(serve(repository).http_port, "net")

    assert found["prefix"] == str(environment)
    assert found["variables"]["VIRTUAL_ENV"] == str(environment)
    assert "PYTHONPATH" not in found["variables"]
    assert found["modules"] == []
    server_s = str(Path(sys.prefix) / "lib")
    assert not [entry for entry in found["path"] if entry.startswith(server_s)]


def test_models_that_name_none_run_on_the_server_s_interpreter_or_on_the_one_that_is_set(
    serve, model, ask, environment
):
    repository = model("net")

    on_server_s = ask(serve(repository).http_port, "net")
    setting = ("python", "python-runtime", str(environment / "bin" / "python"))
    on_set = ask(serve(repository, backend_config=(setting,)).http_port, "net")

    assert on_server_s["prefix"] == sys.prefix
    assert on_set["prefix"] == str(environment)


def test_a_packed_environment_is_unpacked_once_for_all_that_name_it(serve, model, ask, packed, cache):
    model("a", packed)
    repository = model("b", "$$TRITON_MODEL_DIRECTORY/env.tar.gz")
    shutil.copy(packed, repository / "b" / "env.tar.gz")
    port = serve(repository).http_port

    prefix = Path(ask(port, "a")["prefix"])

    assert prefix == Path(ask(port, "b")["prefix"])
    assert prefix.parent == cache
    assert {path.name for path in cache.iterdir() if path.is_dir()} == {"hashes", prefix.name}


def test_a_reload_runs_new_code_of_the_same_second_and_size_in_a_new_environment(
    serve, model, ask, call, environment, monkeypatch
):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    repository = model("net")
    code, config = repository / "net" / "1" / "model.py", repository / "net" / "config.pbtxt"
    os.utime(code, (0, 0))
    port = serve(repository, model_control_mode="explicit", load_models=("net",)).http_port
    before = ask(port, "net")

    code.write_text(code.read_text().replace("__name__,", "'newest',"))
    os.utime(code, (0, 0))
    setting = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}'
    config.write_text(f"{config.read_text()}\n{setting}")
    status, answer = call(port, "/v2/repository/models/net/load", {})
    after = ask(port, "net")

    assert (status, answer) == (200, {})
    assert (before["module"], before["prefix"]) == ("1.model", sys.prefix)
    assert (after["module"], after["prefix"]) == ("newest", str(environment))


def test_a_worker_that_died_starts_again_in_its_environment(serve, model, ask, environment):
    server = serve(model("net", environment))
    first = ask(server.http_port, "net")
    os.kill(first["pid"], signal.SIGKILL)

    def ask_again():
        try:
            return ask(server.http_port, "net")
        except AssertionError:  # the request met the worker's end
            return None

    second = until(ask_again)

    assert second["pid"] != first["pid"]
    assert second["prefix"] == str(environment)


@pytest.mark.parametrize("execution", [False, True])
def test_an_environment_that_cannot_be_had_makes_the_model_unavailable_with_the_reason(
    serve, model, call, tmp_path, execution
):
    given = "/nonexistent/env.tar.gz"
    if execution:
        given = tmp_path / "python"
        given.write_text("#!/bin/sh\necho no Python >&2; exit 1\n")
        given.chmod(0o755)
    server = serve(model("net", given), exit_on_error=False)

    _, index = call(server.http_port, "/v2/repository/index", {})
    [entry] = index

    assert entry["state"] == "UNAVAILABLE"
    expected = "no Python interpreter that works" if execution else "Failed to get the canonical path for"
    assert expected in entry["reason"]
    assert f"parameter EXECUTION_ENV_PATH of model 'net' is '{given}'" in entry["reason"]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("shm-default-byte-size", "7", "shm-default-byte-size can't be smaller than 4 MiBs"),
        ("thread-pool-size", "0", "thread-pool-size can't be less than 1."),
    ],
)
def test_a_setting_that_cannot_be_fails_the_load_in_triton_s_words(serve, model, call, key, value, text):
    server = serve(model("net"), exit_on_error=False, backend_config=(("python", key, value),))

    _, [entry] = call(server.http_port, "/v2/repository/index", {})

    assert entry["reason"] == f"Invalid argument: {text}"


def test_a_model_on_a_thread_of_the_server_is_not_in_its_environment_and_the_log_says_so(
    serve, model, ask, environment, caplog
):
    config = 'backend: "python" parameters { key: "TRITONPY_ISOLATION" value { string_value: "thread" } }'
    repository = model("net", environment, config=config)

    found = ask(serve(repository).http_port, "net")

    assert found["prefix"] == sys.prefix
    assert (
        f"model 'net' runs on a thread of the server, and so on the server's interpreter, although parameter "
        f"EXECUTION_ENV_PATH of model 'net' is '{environment}'"
    ) in [record.getMessage() for record in caplog.records if record.name == "tritonpy.backend.python"]


def test_a_server_that_ends_with_an_error_says_which_model_it_was(serve, model):
    with pytest.raises(TritonError, match="failed to load all models"):
        serve(model("net", "/nonexistent"))
