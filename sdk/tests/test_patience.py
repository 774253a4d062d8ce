"""Waiting until something is so, and a server in a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import count
from pathlib import Path

import psutil
import pytest
from tritonpy_sdk.testing import ServerProcess, patience, until, until_async


def test_what_is_waited_for_is_returned() -> None:
    values = iter([0, "", [], "it"])

    assert until(lambda: next(values)) == "it"


def test_what_never_comes_is_named_with_the_last_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "DEADLINE_S", 0.0)
    asked = count()

    with pytest.raises(AssertionError, match=r"^not so within 0 s: the end; the last value was \[\]$"):
        until(lambda: [], "the end")
    with pytest.raises(AssertionError, match=r": 7 of 8; the last value was 0$"):
        until(lambda: 0 * next(asked), lambda: "7 of 8")
    with pytest.raises(AssertionError, match=r"test_patience\.py:\d+; the last value was None$"):
        until(lambda: None)


def test_errors_of_a_condition_end_the_waiting() -> None:
    with pytest.raises(ZeroDivisionError):
        until(lambda: 1 // 0)


async def test_a_loop_goes_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)

    async def later() -> str:
        await asyncio.sleep(0)
        return "so" if event.is_set() else ""

    assert await until_async(event.is_set)
    assert await until_async(later) == "so"
    monkeypatch.setattr(patience, "DEADLINE_S", 0.0)
    with pytest.raises(AssertionError, match=r"^not so within 0 s: the end; the last value was 0$"):
        await until_async(lambda: 0, "the end")


def test_a_server_has_its_ports_and_its_log_and_ends_with_its_block(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with ServerProcess("--model-repository", tmp_path / "models", directory=tmp_path) as server:
        assert len({server.http_port, server.grpc_port, server.metrics_port, 0}) == 4
        assert server.wait_for_log("Started (.*) at")[1] in server.ports

    assert server.process.returncode == 0
    assert "Server stopped" in server.lines[-1]


def has_ended(pid: int) -> bool:
    """Whether it has, also where nothing collects the children of dead processes."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = """
import os, sys
from tritonpy_sdk.testing import ServerProcess
server = ServerProcess("--model-repository", sys.argv[1])
print(server.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)

    until(lambda: has_ended(int(done.stdout)))


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"it ended with 1:[^$]*--log-verbos"):
        ServerProcess("--log-verbos=1")

    with ServerProcess("--log-verbos=1", awaited=0) as server:
        assert server.wait() == 1
