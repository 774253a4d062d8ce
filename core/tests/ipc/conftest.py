"""The server's end of a channel, with blocking sockets, and a real process at the other end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tritonpy.ipc.channel import CHANNEL_VARIABLE, SEGMENT_VARIABLE, Endpoint
from tritonpy.ipc.frame import FrameReader, Message

PROGRAM = Path(__file__).with_name("inverting_worker.py")


def open_descriptors() -> set[tuple[str, str]]:
    """Numbers of this process' open descriptors, and what each is open for.

    What others leave behind may be closed at any time, so a test asks which ones are new.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # it was open for the listing
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def mapped_segments(process: int | str = "self") -> list[str]:
    """Our segments in the memory of a process: one inode for each mapping.

    Like descriptors, what others leave behind may go at any time.
    """
    lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    return sorted(line.split()[4] for line in lines if "memfd:tritonpy" in line)


class Worker:
    """A running `inverting_worker.py` and the server's end of its channel."""

    def __init__(self, *arguments: str) -> None:
        self.channel, theirs = socket.socketpair()
        segments, their_segments = socket.socketpair()
        self.channel.settimeout(30)
        segments.settimeout(30)
        self.endpoint = Endpoint(segments)
        with theirs, their_segments:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments],
                env={
                    **os.environ,
                    CHANNEL_VARIABLE: str(theirs.fileno()),
                    SEGMENT_VARIABLE: str(their_segments.fileno()),
                },
                pass_fds=(theirs.fileno(), their_segments.fileno()),
            )
        self._reader = FrameReader()
        self._messages: deque[Message] = deque()

    def send(self, kind: int, *payload: Any) -> None:  # Any: see frame
        self.channel.sendall(self.endpoint.pack(kind, *payload))

    def ask(self, kind: int, *payload: Any) -> Message:  # Any: see frame
        """Send a message; the payload of the answer."""
        self.send(kind, *payload)
        while not self._messages:
            data = self.channel.recv(1 << 16)
            assert data, "the worker closed its channel"
            self._messages.extend(self._reader.feed(data))
        message = self._messages.popleft()
        self.endpoint.accept(message)
        assert message[0] == kind
        return message[2:]

    def close(self) -> None:
        """Kill the process and forget everything that was shared with it."""
        self.process.kill()
        self.process.wait()
        self.channel.close()
        self.endpoint.close()
        del self.endpoint


@pytest.fixture
def start_worker() -> Iterator[Callable[..., Worker]]:
    """Starts workers with the given arguments; they are gone when the test is over."""
    workers = []

    def start(*arguments: str) -> Worker:
        workers.append(Worker(*arguments))
        return workers[-1]

    yield start
    for worker in workers:
        if hasattr(worker, "endpoint"):
            worker.close()
