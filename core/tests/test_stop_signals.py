"""Programs whose loop is stuck, busy or well when they are told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tritonpy_sdk.testing import DEADLINE_S, until

PROGRAM = """
import asyncio, ctypes, signal, subprocess, sys, threading, time
from tritonpy import stop_signals
from tritonpy.server import new_loop

stop_signals._ANSWER_S = 20 if sys.argv[1] in ("slow", "well") else 0.5
stop_signals._PAUSE_S = 0.1
stop_signals._LATE_S = 0.05
stop_signals._SAME_S = 0 if sys.argv[1].startswith("twice") else 60

if sys.argv[1].startswith("twice"):
    stop_signals.StopSignals._end_when_late = lambda self: print("told", flush=True)

class Strategy:
    @property
    def blame(self):
        return "batching strategy 's' of model 'm'"

    def ask(self):
        include()

def include():
    if sys.argv[1] == "held":  # from before it is ready on, by a lock that is taken twice
        lock, libc = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
        sys.setswitchinterval(500)
        libc.write(1, b"ready\\n", 6)
        for _ in range(2):
            libc.pthread_mutex_lock(lock)
    if sys.argv[1] == "held for now":
        libc = ctypes.PyDLL(None)
        libc.write(1, b"ready\\n", 6)
        libc.read(0, ctypes.create_string_buffer(1), 1)
        return
    if sys.argv[1] == "held later":
        sys.setswitchinterval(500)
        signal.alarm(0)
        libc = ctypes.PyDLL(None)
        libc.write(1, b"held\\n", 5)
        libc.read(0, ctypes.create_string_buffer(1), 1)
        libc.alarm.restype = ctypes.c_uint
        print("seconds left:", libc.alarm(0), flush=True)
        sys.setswitchinterval(0.005)
        return
    time.sleep(500)

async def main():
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    other = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    loop.add_signal_handler(signal.SIGUSR1, other.set)
    signals = stop_signals.StopSignals(0.1)
    if sys.argv[1] in ("held later", "late", "children"):
        print("ready", flush=True)
        await other.wait()
    elif not sys.argv[1].startswith("held"):
        print("ready", flush=True)
    if sys.argv[1] in ("stuck", "twice stuck", "held", "held for now", "held later"):
        Strategy().ask()
    if sys.argv[1] == "late":
        signal.alarm(60)
        while signal.getitimer(signal.ITIMER_REAL)[0]:
            await asyncio.sleep(0.01)
        signals.close()
        print("put off", flush=True)
        return
    if sys.argv[1] == "children":
        child = "import pathlib; print(pathlib.Path('/proc/self/status').read_text())"
        subprocess.run([sys.executable, "-c", child], check=True)
        signals.close()
        subprocess.run([sys.executable, "-c", child], check=True)
        return
    if sys.argv[1] == "untold":
        sys.stdin.read()
        signals.close()
        print("seconds left:", signal.alarm(0), flush=True)
        return
    await told.wait()
    if sys.argv[1] == "slow":
        await asyncio.sleep(1.5)
    if sys.argv[1] == "twice well":
        await asyncio.sleep(500)
    signals.close()
    print("ended", flush=True)

make = new_loop if sys.argv[2] == "own" else asyncio.new_event_loop
with asyncio.Runner(loop_factory=make) as runner:
    runner.run(main())
"""


@contextmanager
def begin(state: str, loop: str) -> Iterator[subprocess.Popen[str]]:
    """A program that is about to be in this state."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, state, loop],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def end_of(state: str, loop: str, *numbers: int) -> tuple[int, str, str]:
    """Status, output and errors of a program that is sent these signals."""
    with begin(state, loop) as process:
        for number in numbers:
            process.send_signal(number)
        output, errors = process.communicate(timeout=DEADLINE_S)
        return process.returncode, output, errors


def has_signals_to_come(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = [line.split()[1] for line in status if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(mask, 16) for mask in pending)


@pytest.mark.parametrize("loop", ["own", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_loop_that_is_well_hears_of_its_signals(loop: str, number: int) -> None:
    assert end_of("well", loop, number) == (0, "ended\n", "")


@pytest.mark.parametrize("loop", ["own", "asyncio"])
def test_a_program_whose_loop_is_stuck_ends_with_a_reason(loop: str) -> None:
    status, output, errors = end_of("stuck", loop, signal.SIGTERM)

    assert (status, output) == (1, "")
    assert "The event loop is stuck and has not answered for 0.5 s after the exit timeout" in errors
    assert "; it is in batching strategy 's' of model 'm', in include, <string>:" in errors


def test_a_loop_that_takes_long_to_end_and_answers_is_not_stuck() -> None:
    assert end_of("slow", "own", signal.SIGTERM, signal.SIGTERM) == (0, "ended\n", "")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("twice well", "The program was told to end once more: the program ends"),
        ("twice stuck", "told to end once more, and its event loop is stuck: "),
    ],
)
def test_a_second_signal_ends_a_program_at_once(state: str, said: str) -> None:
    with begin(state, "own") as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "told\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, output) == (1, "")
    assert said in errors
    assert ("of model 'm'" in errors) == (state == "twice stuck")


@pytest.mark.skipif(sys.platform != "linux", reason="signals of descriptors are Linux's")
def test_signals_that_come_together_end_no_program_in_which_python_can_soon_run() -> None:
    with begin("held for now", "own") as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
            until(lambda: not has_signals_to_come(process.pid))
        output, errors = process.communicate("\n", timeout=DEADLINE_S)

    assert (process.returncode, output, errors) == (0, "ended\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="signals of descriptors are Linux's")
def test_nothing_ends_a_program_that_was_not_told_to_end() -> None:
    status, output, errors = end_of("untold", "own")

    assert (status, output, errors) == (0, "seconds left: 0\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="signals of descriptors are Linux's")
def test_a_lock_that_is_kept_after_another_signal_was_answered_is_guarded_against() -> None:
    with begin("held later", "own") as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGTERM)
        until(lambda: not has_signals_to_come(process.pid))
        output, errors = process.communicate("\n", timeout=DEADLINE_S)

    left, end = output.splitlines()
    assert int(left.removeprefix("seconds left: ")) > 20
    assert (process.returncode, end, errors) == (0, "ended", "")


@pytest.mark.skipif(sys.platform != "linux", reason="signals of descriptors are Linux's")
def test_an_end_that_is_set_off_late_is_put_off_as_well() -> None:
    assert end_of("late", "own", signal.SIGUSR1) == (0, "put off\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="signals of descriptors are Linux's")
def test_children_ignore_no_signal_that_the_guard_uses() -> None:
    status, output, errors = end_of("children", "own", signal.SIGUSR1)

    ignored = [int(line.split()[1], 16) for line in output.splitlines() if line.startswith("SigIgn:")]
    assert (status, errors) == (0, "")
    assert len(ignored) == 2
    for mask in ignored:
        numbers = {number + 1 for number in range(64) if mask >> number & 1}
        assert not numbers & {signal.SIGALRM, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)}


@pytest.mark.stress  # it takes 34 seconds, which nothing but a number of a signal says
@pytest.mark.skipif(sys.platform != "linux", reason="signals of descriptors are Linux's")
def test_one_signal_ends_a_program_in_which_no_python_can_run_after_a_while() -> None:
    status, output, errors = end_of("held", "own", signal.SIGTERM)

    assert (status, output) == (-signal.SIGALRM, "")
    assert "in include\n" in errors
