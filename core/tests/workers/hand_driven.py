"""The other end of workers, played by a test: nothing happens before it says so, and time costs nothing."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from tritonpy.ipc import frame
from tritonpy.ipc.channel import Endpoint
from tritonpy.ipc.frame import FrameReader, Message, encode_frame
from tritonpy.model.execution import Execution
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor
from tritonpy.workers import worker_process
from tritonpy.workers.calls import ServerAccess
from tritonpy.workers.worker_process import WorkerProcess
from tritonpy.workers.worker_services import Caller, Services
from tritonpy.workers.worker_settings import SharedMemorySettings

from ..simulator.virtual_loop import in_virtual_time, turns

TIMES = (0, 0, 0, 0)


class FakeProgram:
    """A worker's program without a process: what it is sent can be read, and what it says is said by hand.

    Attributes:
        worker: the server's object for it.
        was_killed: by the server.
        ends_when_killed: else it lives on until `end`.
    """

    def __init__(
        self, worker: WorkerProcess, channel: socket.socket, segments: socket.socket, number: int
    ) -> None:
        channel.setblocking(False)
        self.worker = worker
        self.pid = 1000 + number
        self.ended: Future[int] = Future()
        self.outputs: list[int] = []
        self.was_killed = False
        self.ends_when_killed = True
        self._socket = channel
        self._reader = FrameReader()
        self.endpoint = Endpoint(segments)
        self._printing = []
        for _ in range(2):
            read, write = os.pipe()
            self.outputs.append(read)
            self._printing.append(write)

    def received(self) -> list[Message]:
        """The messages that have come since the last time, without the blocks that came back with them."""
        data = b""
        while True:
            try:
                part = self._socket.recv(1 << 20)
            except BlockingIOError:
                break
            if not part:
                break
            data += part
        return [(message[0], *message[2:]) for message in self._reader.feed(data)]

    def kinds(self) -> list[int]:
        """The kinds of what has come since the last time."""
        return [message[0] for message in self.received()]

    def say(self, kind: int, *payload: Any) -> None:  # Any: see frame
        """Have a message arrive at the server."""
        self.worker._channel.data_received(encode_frame((kind, (), *payload)))

    def write(self, stream: int, text: bytes) -> None:
        """Print to the standard output (0) or error (1)."""
        os.write(self._printing[stream], text)

    async def end(self, status: int) -> None:
        """End, and have the server notice."""
        self._end(status)
        await turns()
        await turns()

    def kill(self) -> None:
        self.was_killed = True
        if self.ends_when_killed:
            self._end(-9)

    def _end(self, status: int) -> None:
        if not self.ended.done():
            self._socket.close()
            self.endpoint.close()
            for descriptor in self._printing:
                os.close(descriptor)
            self.ended.set_result(status)
            self.worker._channel.close()  # as the end of the stream would do


class Workers:
    """Starts workers without processes, all of which the test plays.

    Attributes:
        programs: those that were started, in order.
        error: what the next start fails with.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[FakeProgram] = []
        self.access = ServerAccess(NoModels(), Services())
        self.error: Exception | None = None
        self._starting: WorkerProcess | None = None
        monkeypatch.setattr(worker_process, "launch_process", self._launch)

    async def _launch(
        self, channel: socket.socket, segments: socket.socket, *_: object, **__: object
    ) -> FakeProgram:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        assert self._starting is not None
        self.programs.append(FakeProgram(self._starting, channel, segments, len(self.programs)))
        return self.programs[-1]

    async def start(self, name: str = "m_0") -> WorkerProcess:
        """A worker whose program has been launched and has said nothing."""
        self._starting = worker = WorkerProcess(Caller("m", 1, name), self.access, finalize_timeout_s=30)
        await worker.start([], {}, SharedMemorySettings())
        return worker

    async def close(self) -> None:
        """End all that are left."""
        for program in self.programs:
            await program.end(0)


def played(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in virtual time, and end the workers of its `workers` or `bench` with it."""

    @in_virtual_time
    @functools.wraps(test)
    async def ended(**given: Any) -> None:
        try:
            await test(**given)
        finally:
            await (given["workers"] if "workers" in given else given["bench"]).close()

    return ended


class NoModels:
    """Finds nothing; satisfies `ModelFinder`."""

    def find(self, name: str, version: str = "") -> Any:
        raise AssertionError(f"nobody asks for {name}")


class Asked:
    """A request, and what has come of it; satisfies `ResponseSink`."""

    def __init__(self, value: int = 0, request_id: str = "") -> None:
        x = Tensor.from_numpy("IN", np.array([value], np.int32))
        self.request = InferRequest("m", {"IN": x}, id=request_id)
        self.request.ticket.sink = self
        self.responses: list[InferResponse | None] = []
        self.is_over = False

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert not self.is_over, "a second final response"
        self.responses.append(response)
        self.is_over = final

    @property
    def error(self) -> str:
        """The text of its only response's error; "" without one."""
        [response] = self.responses
        assert response is not None
        return response.error.message if response.error is not None else ""

    @property
    def value(self) -> int:
        """What its only response has as output."""
        [response] = self.responses
        assert response is not None, "no response"
        assert response.error is None, response.error
        return int(response.outputs[0].numpy()[0])


def batch_of(*asked: Asked, **more: Any) -> Execution:
    return Execution([each.request for each in asked], len(asked), ModelStats(), **more)


def answer(value: int) -> Message:
    """A response as it travels."""
    return [("OUT", "INT32", (1,), np.array([value], np.int32).tobytes())], None, None


def executed(batch: int, *responses: Message, error: tuple[int, str] | None = None) -> Message:
    """The payload of EXECUTED."""
    given: Sequence[Message] | None = responses or None
    return frame.EXECUTED, batch, TIMES, list(given) if given else None, error


Check = Callable[[], bool]
