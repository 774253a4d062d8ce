"""Programs whose loop is stuck, busy or well when they are told to end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, signal, sys, time
from tritonpy import stop_signals
from tritonpy.loop_thread import new_loop

stop_signals._ANSWER_S = 0.5 if sys.argv[1] == "stuck" else 20
stop_signals._PAUSE_S = 0.1

async def main():
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    signals = stop_signals.StopSignals(0.1)
    print("ready", flush=True)
    if sys.argv[1] == "stuck":
        time.sleep(50)
    await told.wait()
    if sys.argv[1] == "slow":
        await asyncio.sleep(1.5)
    signals.close()
    print("ended", flush=True)

make = new_loop if sys.argv[2] == "own" else asyncio.new_event_loop
with asyncio.Runner(loop_factory=make) as runner:
    runner.run(main())
"""


def end_of(state: str, loop: str, *numbers: int) -> tuple[int, str, str]:
    """Status, output and errors of a program that is sent these signals."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, state, loop],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in numbers:
            process.send_signal(number)
        output, errors = process.communicate(timeout=30)
        return process.returncode, output, errors


@pytest.mark.parametrize("loop", ["own", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_loop_that_is_well_hears_of_its_signals(loop: str, number: int) -> None:
    assert end_of("well", loop, number) == (0, "ended\n", "")


@pytest.mark.parametrize("loop", ["own", "asyncio"])
def test_a_program_whose_loop_is_stuck_ends_with_a_reason(loop: str) -> None:
    status, output, errors = end_of("stuck", loop, signal.SIGTERM)

    assert (status, output) == (1, "")
    assert "The event loop is stuck and has not answered for 0.5 s after the exit timeout" in errors


def test_a_loop_that_takes_long_to_end_and_answers_is_not_stuck() -> None:
    assert end_of("slow", "own", signal.SIGTERM, signal.SIGTERM) == (0, "ended\n", "")
