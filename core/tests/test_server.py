"""The thread of a server inside another program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy.server import LoopThread, Server
from tritonpy_sdk.testing import DEADLINE_S


class Thing:
    """Notes which thread and loop do what to it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.done: list[str] = []
        self.thread = threading.current_thread()
        self.loop = asyncio.get_running_loop()

    async def start(self) -> None:
        await asyncio.sleep(0)
        self._note("started")
        if self.error is not None:
            raise self.error

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self._note("stopped")

    def _note(self, what: str) -> None:
        assert (threading.current_thread(), asyncio.get_running_loop()) == (self.thread, self.loop)
        self.done.append(what)


def test_a_thing_lives_on_a_thread_and_loop_of_its_own() -> None:
    thread = LoopThread("some-name", Thing)

    thread.start()
    thing = thread.running
    assert (thing.done, thing.thread.name, thread.loop) == (["started"], "some-name", thing.loop)
    assert thing.thread is not threading.current_thread()
    thread.stop()

    assert thing.done == ["started", "stopped"]
    assert not thing.thread.is_alive()
    assert thing.loop.is_closed()


def test_what_cannot_be_started_is_stopped_and_says_why() -> None:
    thread = LoopThread("thing", lambda: Thing(ValueError("no")))

    with pytest.raises(ValueError, match="no"):
        thread.start()

    assert thread.running.done == ["started", "stopped"]
    assert not thread.running.thread.is_alive()


def test_what_cannot_be_made_says_why() -> None:
    def fail() -> Thing:
        raise ValueError("not even made")

    thread = LoopThread("thing", fail)

    with pytest.raises(ValueError, match="not even made"):
        thread.start()
    thread.stop()


def test_it_may_be_stopped_twice_and_without_a_start() -> None:
    LoopThread("never", Thing).stop()
    thread = LoopThread("thing", Thing)
    thread.start()

    thread.stop()
    thread.stop()

    assert thread.running.done == ["started", "stopped"]


def test_plugins_of_a_kind_that_is_not_known_are_refused_by_its_name() -> None:
    server = Server(ServerOptions(()), plugins={"frontend": {"mine": object()}}, discover=False)

    with pytest.raises(InvalidArg, match=r"plugins of kind 'frontend' are not known; expected .*frontends"):
        server.start()


def test_a_program_that_has_started_collects_garbage_as_it_was_told_and_not_among_what_stays(
    tmp_path: Path,
) -> None:
    program = f"""
import gc, logging, os, signal, threading
from tritonpy.options import ServerOptions
from tritonpy.server import run

gc.set_threshold(100_000)

def look():
    while gc.get_threshold()[0] != 701:
        waiting.wait(0.01)
    print(gc.get_freeze_count() > 10_000)
    os.kill(os.getpid(), signal.SIGTERM)

waiting = threading.Event()
threading.Thread(target=look, daemon=True).start()
options = ServerOptions(({str(tmp_path)!r},), allow_http=False, allow_grpc=False, allow_metrics=False)
print(run(options, gc_threshold=(701, 10, 10)))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )

    assert (ran.returncode, ran.stdout) == (0, "True\n0\n"), ran.stderr
