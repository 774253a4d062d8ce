"""The channel to a child: its end, its start that is awaited, and what is left when it is given up.

Real processes where the system is asked for one; a program without any where only the channel matters.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import Future

import pytest
from tritonpy.ipc import frame
from tritonpy.ipc.channel import Endpoint
from tritonpy.ipc.child import ChildGone
from tritonpy.ipc.child_channel import ChildChannel, Launch, Program, launch_process
from tritonpy.ipc.frame import FrameReader, Message, encode_frame

from .conftest import PROGRAM, open_descriptors


class Owner:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def take(self, messages: Sequence[Message]) -> None:
        self.heard.extend(message[0] for message in messages)

    def channel_lost(self) -> None:
        self.heard.append("lost")

    async def child_ended(self, how: str) -> None:
        self.heard.append(how)


class FakeProgram:
    """Ends when it is told to, and when it is killed."""

    pid = 4711

    def __init__(self, channel: socket.socket, segments: socket.socket) -> None:
        self.channel, self.segments = channel, segments
        self.ended: Future[int] = Future()
        self.was_killed = False

    def kill(self) -> None:
        self.was_killed = True
        self.end(-9)

    def end(self, status: int) -> None:
        self.channel.close()
        self.segments.close()
        if not self.ended.done():
            self.ended.set_result(status)


def nothing_to_prepare(endpoint: Endpoint) -> None:
    return None


async def opened(owner: Owner) -> tuple[ChildChannel, FakeProgram]:
    programs = []

    async def launch(channel: socket.socket, segments: socket.socket) -> Program:
        programs.append(FakeProgram(channel, segments))
        return programs[0]

    channel = ChildChannel(owner)
    await channel.open(launch, nothing_to_prepare)
    return channel, programs[0]


def running(*arguments: str) -> Launch:
    async def launch(channel: socket.socket, segments: socket.socket) -> Program:
        return await launch_process(channel, segments, [sys.executable, str(PROGRAM), *arguments], {})

    return launch


async def test_messages_travel_both_ways_and_the_start_is_awaited() -> None:
    owner = Owner()
    channel, program = await opened(owner)

    program.channel.sendall(encode_frame((frame.LOG, ())) + encode_frame((frame.STARTED, ())))
    await channel.started(60)
    channel.send(frame.PROBE)
    while not (data := await asyncio.to_thread(program.channel.recv, 1000)):
        pass

    assert FrameReader().feed(data) == [(frame.PROBE, ())]
    assert owner.heard[:2] == [frame.LOG, frame.STARTED]
    program.end(0)
    await channel.gone


async def test_end_is_told_once_the_child_has_been_reaped() -> None:
    owner = Owner()
    channel, program = await opened(owner)

    program.end(3)
    with pytest.raises(ChildGone, match="exited with code 3"):
        await channel.started(60)
    await channel.gone

    assert owner.heard == ["lost", "exited with code 3"]
    assert not channel.is_connected
    channel.send(frame.PROBE)  # and nothing happens


@pytest.mark.parametrize("step", ["channel_lost", "child_ended"])
async def test_end_is_over_though_the_owner_fails_to_take_it(step: str) -> None:
    failures: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: failures.append(about["exception"]))
    owner = Owner()
    channel, program = await opened(owner)

    def fail(*_: object) -> None:
        raise ValueError("owner")

    setattr(owner, step, fail)
    program.end(0)
    await asyncio.wait_for(asyncio.shield(channel.gone), 20)
    del channel
    gc.collect()

    assert [str(failure) for failure in failures] == ["owner"]


async def test_child_that_lives_on_without_its_channel_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonpy.ipc.child_channel._EXIT_TIMEOUT_S", 0.01)
    owner = Owner()
    channel, program = await opened(owner)

    program.channel.close()
    await channel.gone

    assert program.was_killed
    assert owner.heard == ["lost", "was killed by signal 9 (SIGKILL)"]


async def test_start_that_takes_too_long_ends_nobody() -> None:
    channel, program = await opened(Owner())

    with pytest.raises(asyncio.TimeoutError):
        await channel.started(0.01)

    assert channel.is_connected
    program.end(0)
    await channel.gone


async def test_start_given_up_leaves_neither_process_nor_descriptor() -> None:
    before = open_descriptors()
    owner = Owner()
    channel = ChildChannel(owner)
    launching = asyncio.Event()

    async def launch(channel: socket.socket, segments: socket.socket) -> Program:
        launching.set()
        return await running()(channel, segments)

    opening = asyncio.create_task(channel.open(launch, nothing_to_prepare))
    await launching.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert open_descriptors() - before == set()


async def test_program_that_cannot_be_started_leaves_no_descriptor() -> None:
    before = open_descriptors()

    async def launch(channel: socket.socket, segments: socket.socket) -> Program:
        return await launch_process(channel, segments, ["/no/such/program"], {}, has_pipes=True)

    with pytest.raises(FileNotFoundError):
        await ChildChannel(Owner()).open(launch, nothing_to_prepare)

    assert open_descriptors() - before == set()


async def test_process_ends_when_its_channel_is_closed() -> None:
    owner = Owner()
    channel = ChildChannel(owner)
    await channel.open(running(), nothing_to_prepare)

    channel.close()
    await channel.gone

    assert owner.heard[0] == "lost"
    assert str(owner.heard[1]).startswith("exited with code ")
