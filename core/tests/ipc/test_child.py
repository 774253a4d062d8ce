"""A child process from its start to its end, with real processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tritonpy.ipc.child import ChildProcess, describe_end

from .conftest import open_descriptors

PATIENCE_S = 60


def python(program: str, **more: Any) -> ChildProcess:
    process = ChildProcess([sys.executable, "-S", "-E", "-c", program], **more)
    process.started.result(PATIENCE_S)
    return process


def read_to_end(descriptor: int) -> bytes:
    with open(descriptor, "rb") as stream:
        return stream.read()


def test_exit_code_and_both_outputs_arrive() -> None:
    process = python("import os; os.write(1, b'out'); os.write(2, b'err'); os._exit(3)", has_pipes=True)

    assert [read_to_end(each) for each in process.outputs] == [b"out", b"err"]
    assert process.ended.result(PATIENCE_S) == 3
    assert process.is_gone


def test_child_inherits_the_descriptors_it_is_given_and_no_others() -> None:
    given, kept = os.pipe(), os.pipe()
    for descriptor in (*given, *kept):
        os.set_inheritable(descriptor, True)

    program = (
        "import os; fds = os.listdir('/proc/self/fd'); "
        "print(*(fd for fd in fds if int(fd) > 2 and os.path.exists(f'/proc/self/fd/{fd}')))"
    )
    process = python(program, descriptors=(given[1],), has_pipes=True)
    said = read_to_end(process.outputs[0])
    os.close(process.outputs[1])
    process.ended.result(PATIENCE_S)
    for descriptor in (*given, *kept):
        os.close(descriptor)

    assert said.split() == [str(given[1]).encode()]


def test_child_has_the_chosen_environment() -> None:
    process = python(
        "import os; print(sorted(os.environ))", environment={"LC_ALL": "C", "CHOSEN": "1"}, has_pipes=True
    )
    said = read_to_end(process.outputs[0])
    os.close(process.outputs[1])
    process.ended.result(PATIENCE_S)

    assert said == b"['CHOSEN', 'LC_ALL']\n"


def test_kill_ends_a_session_with_all_that_was_started_in_it() -> None:
    program = "import os; os.fork(); os.write(1, b'%d\\n' % os.getpid()); import time; time.sleep(1000)"
    process = python(program, has_pipes=True, has_session=True)
    os.close(process.outputs[1])
    with open(process.outputs[0], "rb") as stream:
        both = {int(stream.readline()) for _ in range(2)}
        process.kill()
        rest = stream.read()  # to the end: nobody is left who could write

    assert process.pid in both
    assert len(both) == 2
    assert rest == b""
    assert process.ended.result(PATIENCE_S) == -signal.SIGKILL


def test_what_a_session_leaves_behind_is_killed_at_the_end_of_its_first_process() -> None:
    process = python("import os, time; os.fork() or time.sleep(1000)", has_pipes=True, has_session=True)

    assert [read_to_end(each) for each in process.outputs] == [b"", b""]
    assert process.ended.result(PATIENCE_S) == 0


def test_killing_one_that_has_ended_kills_nobody() -> None:
    process = python("")
    process.ended.result(PATIENCE_S)

    process.kill()

    assert process.ended.result() == 0


@pytest.mark.parametrize(
    ("command", "prepare", "error"),
    [
        (["/no/such/program"], lambda: None, FileNotFoundError),
        (["/bin/true"], lambda: 1 / 0, ZeroDivisionError),
    ],
)
def test_process_that_cannot_be_started_leaves_no_descriptor(
    command: list[str], prepare: Callable[[], None], error: type[Exception]
) -> None:
    before = open_descriptors()

    process = ChildProcess(command, has_pipes=True, prepare=prepare)

    with pytest.raises(error):
        process.started.result(PATIENCE_S)
    assert open_descriptors() - before == set()


def test_ends_are_described_with_exit_code_or_signal() -> None:
    assert describe_end(0) == "exited with code 0"
    assert describe_end(-9) == "was killed by signal 9 (SIGKILL)"
    assert describe_end(-40) == "was killed by signal 40 (an unknown signal)"
