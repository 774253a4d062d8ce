"""A program that was written for PyTriton runs as it is, and gives the same answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.pytriton.exceptions import PyTritonValidationError
from tritonpy_sdk.pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

PROGRAM = Path(__file__).with_name("program.py")
FAILED = {"kind": "InferenceServerError", "text": True}
BAD = {"kind": "InferenceServerError", "text": False}
SUMS, FIRST = {"sum": [[11, 22], [33, 44]]}, {"sum": [11, 22]}
EXPECTED: dict[str, Any] = {
    "add": SUMS,
    "add sample": FIRST,
    "in_order": SUMS,
    "in_order sample": FIRST,
    "of_requests": SUMS,
    "of_requests sample": FIRST,
    "two": SUMS,
    "two sample": FIRST,
    "optional": SUMS,
    "optional sample": FIRST,
    "failing": FAILED,
    "failing sample": FAILED,
    "wrong": BAD,
    "wrong sample": BAD,
    "strict": BAD,
    "strict sample": BAD,
    "parameters": {"sum": [[15, 30], [45, 60]]},
    "left out": {"sum": [[101, 102], [103, 104]]},
    "alone": {"sum": [-9, -18]},
    "by kind": {"y": [[2, 4], [9, 12]]},
    "mixed": {"kind": "ValueError", "text": False},
    "config": [True, 4],
}
OTHERS = {
    "futures": [[10, 20], [11, 22], [12, 24], [13, 26]],
    "lost": True,
    "upper": ["A", "B"],
    "count": [[0, 0], [1, 2], [2, 4]],
    "token": True,
}


def run(command: list[str], **environment: str) -> Any:
    """What the program prints."""
    ended = subprocess.run(
        [*command, str(PROGRAM), *free_ports()],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "no_proxy": "*", **environment},
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def free_ports() -> list[str]:
    """Two ports of this machine that nobody uses; PyTriton's programs cannot ask the system for some."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def test_the_program_answers_as_it_would_with_pytriton() -> None:
    answers = run([sys.executable, "-m", "tritonpy_sdk.pytriton"])

    both = {f"{protocol} {name}": value for protocol in ("http", "grpc") for name, value in EXPECTED.items()}
    assert answers == both | OTHERS


def test_settings_come_from_fields_then_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_HTTP_PORT", "9000")
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_ALLOW_METRICS", "false")
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_TRACE_CONFIG_1", "rate=2")
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_TRACE_CONFIG_0", "level=TIMESTAMPS")
    monkeypatch.setenv("PYTRITON_TRITON_CONFIG_UNKNOWN", "1")

    config = TritonConfig.from_env()
    options = Triton(config=TritonConfig(http_port=9001, http_thread_count=4))._options()

    assert (config.http_port, config.allow_metrics) == (9000, False)
    assert config.trace_config == ["level=TIMESTAMPS", "rate=2"]
    assert (options.http_port, options.allow_metrics) == (9001, False)
    assert options.model_repositories == ()
    assert ("", "rate", "2") in options.trace_config


def test_a_token_protects_what_changes_or_discloses_something() -> None:
    options = Triton(security_config=TritonSecurityConfig("secret"))._options()
    free = Triton(security_config=TritonSecurityConfig(restricted_endpoints=[]))

    protected = ("shared-memory", "model-repository", "statistics", "trace", "logging")
    assert options.http_restricted_apis == ((protected, "triton-access-token", "secret"),)
    assert [(kinds, value) for kinds, _, value in options.grpc_restricted_protocols] == [
        (protected, "secret")
    ]
    assert (free.get_access_token(), free._options().http_restricted_apis) == (None, ())


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(PyTritonValidationError, match="Invalid endpoint names: everything"):
        TritonSecurityConfig(restricted_endpoints=["everything"])
    with pytest.raises(PyTritonValidationError, match="allow_http and allow_grpc are both False"):
        TritonConfig(allow_http=False, allow_grpc=False)
    with pytest.raises(PyTritonValidationError, match="got 'maybe', expected true or false"):
        TritonConfig.from_dict({"allow_http": "maybe"})


def test_names_of_pytriton_are_taken_only_where_it_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "pytriton").mkdir()
    (tmp_path / "pytriton/__init__.py").touch()
    ended = subprocess.run(
        [sys.executable, "-m", "tritonpy_sdk.pytriton", str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )

    assert ended.returncode == 1
    assert "ImportError: nvidia-pytriton is installed" in ended.stderr
