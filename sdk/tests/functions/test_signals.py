"""Signals that come while a server inside a program starts: it ends, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from tritonpy_sdk import LOCAL, ModelRepository, RemoteServer, Server, Tensor, batch
from tritonpy_sdk.serving import serve_until_told
from tritonpy_sdk.testing import DEADLINE_S, until

HEAD = """
import asyncio, socket, sys, threading, time
from dataclasses import replace
from pathlib import Path
import numpy as np
from tritonpy.options import ServerOptions
from tritonpy.plugin import hookimpl
from tritonpy_sdk import LOCAL, RemoteServer, Server, Tensor, batch

def number(name):
    return Tensor((1,), np.float32, name)

@batch
def double(x):
    return {"y": x * 2}
"""
TAIL = """
server.bind("double", double, [number("x")], [number("y")])
server.serve()
print("ended", flush=True)
"""
PROGRAMS = {
    "a function is being initialized": """
class Slow:
    def initialize(self):
        Path("{folder}/starting").touch()
        time.sleep(1)

    def __call__(self, requests):
        return [{"y": request["x"]} for request in requests]

server = Server(LOCAL)
server.bind("slow", Slow, [number("x")], [number("y")])
""",
    "a model is being loaded in a worker": """
server = Server(replace(LOCAL, model_repositories=("models",)))
""",
    "ports are being opened": """
class Slow:
    @hookimpl
    async def frontend_start(self, frontend):
        Path("{folder}/starting").touch()
        await asyncio.sleep(3600)

options = replace(LOCAL, frontend_config=(("slow", "key", "value"),))
server = Server(options, plugins={"frontends": {"slow": Slow()}})
""",
    "a function is being initialized that never is, for a server elsewhere": """
class Stuck:
    def initialize(self):
        Path("{folder}/starting").touch()
        time.sleep(3600)

    def __call__(self, requests):
        return [{"y": request["x"]} for request in requests]

options = replace(LOCAL, frontend_config=(("bind", "unix", "{folder}/socket"),))
elsewhere = Server(options).start()
server = RemoteServer("unix:{folder}/socket")
server.bind("stuck", Stuck, [number("x")], [number("y")])
""",
    "a server elsewhere says nothing": """
listening = socket.create_server(("127.0.0.1", 0))

def accept():
    held = listening.accept()
    Path("{folder}/starting").touch()
    time.sleep(3600)

threading.Thread(target=accept, daemon=True).start()
server = RemoteServer(f"127.0.0.1:{listening.getsockname()[1]}", connect_timeout_s=3600)
""",
}
SLOW_MODEL = """
    import time
    from pathlib import Path

    class TritonPythonModel:
        def initialize(self, args):
            Path("{folder}/starting").touch()
            time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("moment", "number"),
    [*((moment, signal.SIGINT) for moment in PROGRAMS), ("ports are being opened", signal.SIGTERM)],
)
def test_a_signal_ends_a_program_while(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    config = {"backend": "python", "input": [], "output": []}
    ModelRepository(tmp_path / "models").python("slow", SLOW_MODEL.format(folder=tmp_path), config)
    (tmp_path / "temporary").mkdir()
    program = HEAD + PROGRAMS[moment].replace("{folder}", str(tmp_path)) + TAIL
    (tmp_path / "program.py").write_text(program)
    process = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until((tmp_path / "starting").exists)
        children = psutil.Process(process.pid).children(recursive=True)

        process.send_signal(number)

        rest, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, rest) == (0, "ended\n"), errors
    assert "Traceback" not in errors
    until(lambda: not any(child.is_running() for child in children))
    assert not list((tmp_path / "temporary").glob("tritonpy-functions-*"))


@batch
def double(x: Any) -> Any:
    return {"y": x * 2}


@pytest.mark.parametrize("step", range(12))
def test_a_signal_may_come_at_any_moment(step: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(threading.enumerate())
    server = Server(LOCAL)
    server.bind("double", double, [Tensor((1,), "f4", "x")], [Tensor((1,), "f4", "y")])
    start = server.start

    def start_and_be_told() -> Server:  # while it is on
        timer = threading.Timer(step * 0.008, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        return start()

    monkeypatch.setattr(server, "start", start_and_be_told)
    handler = signal.getsignal(signal.SIGINT)

    server.serve()

    assert not server.is_running
    assert signal.getsignal(signal.SIGINT) is handler
    assert not list(tmp_path.glob("tritonpy-functions-*"))
    until(lambda: not [t.name for t in set(threading.enumerate()) - before if t.name == "tritonpy-server"])
    start()  # once more
    assert server.is_running
    server.stop()


def test_a_program_in_c_may_have_installed_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    stopped: list[bool] = []
    try:
        with monkeypatch.context() as patch:
            patch.setattr(signal, "getsignal", lambda number: None)  # as it says of those
            serve_until_told(lambda: lambda: False, lambda: None, lambda: stopped.append(True))
        after = [signal.getsignal(number) for number in numbers]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

    assert stopped == [True]
    assert after == [signal.default_int_handler, signal.SIG_DFL]


def test_it_is_stopped_whatever_becomes_of_the_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []

    def refuse(number: int, handler: Any) -> None:
        raise ValueError("handlers stay as they are")

    def question() -> bool:
        monkeypatch.setattr(signal, "signal", refuse)
        return False

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with pytest.raises(ValueError, match="stay as they are"):
            serve_until_told(lambda: question, lambda: None, lambda: stopped.append(True))
    finally:
        monkeypatch.undo()
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)

    assert stopped == [True]


@pytest.mark.parametrize("make", [lambda: Server(LOCAL), lambda: RemoteServer("127.0.0.1:1")])
def test_what_interrupts_a_start_is_passed_on(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make()

    class Interrupting:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("tritonpy_sdk.server.CoreServer", Interrupting)
    monkeypatch.setattr("tritonpy_sdk.remote.remote_server.Program", Interrupting)

    with pytest.raises(KeyboardInterrupt):
        server.start()
    assert not server.is_running
