"""Clients in processes of their own; this module is also the program that they run."""

from __future__ import annotations

import asyncio
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any

from tritonpy_bench.client import Client, Plan
from tritonpy_bench.errors import BenchError
from tritonpy_bench.measurement import Window

_LENGTH = 8
_END_S = 5.0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loops of clients; None for that of asyncio."""
    if sys.platform == "win32":
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class RemoteClient:
    """A client in a process of its own, with the methods of `Client`.

    Args:
        plan: what it sends.
    """

    def __init__(self, plan: Plan) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tritonpy_bench.processes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._plan = plan

    async def open(self) -> None:
        """See `Client`."""
        await self._ask("open", self._plan)

    async def start(self) -> None:
        """See `Client`."""
        await self._ask("start")

    async def take(self) -> Window:
        """See `Client`."""
        window: Window = await self._ask("take")
        return window

    async def finished(self) -> None:
        """See `Client`."""
        await self._ask("finished")

    async def stop(self, wait_s: float) -> None:
        """See `Client`; the process ends."""
        try:
            await asyncio.wait_for(self._ask("stop", wait_s), wait_s + _END_S)
        except (BenchError, TimeoutError):
            pass  # it is ended below
        finally:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                stream.close()

    async def _ask(self, *message: object) -> Any:  # Any: what the method returns
        return await asyncio.to_thread(self._exchange, message)

    def _exchange(self, message: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _write(self._process.stdin, message)
            error, value = _read(self._process.stdout)
        except (OSError, EOFError):
            raise BenchError(
                f"a client process ended with exit code {self._process.wait()} before the load did"
            ) from None
        if error is not None:
            raise BenchError(error)
        return value


def _write(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def _read(stream: IO[bytes]) -> Any:  # Any: what was written
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError
    return pickle.loads(stream.read(int.from_bytes(head, "little")))


async def _serve(commands: IO[bytes], answers: IO[bytes]) -> None:
    """Do what the parent process asks for, until it stops this client or ends."""
    client: Client | None = None
    name = ""
    while name != "stop":
        try:
            name, *arguments = await asyncio.to_thread(_read, commands)
        except EOFError:
            return
        error, value = None, None
        try:
            if name == "open":
                client = Client(*arguments)
                await client.open()
            else:
                value = await getattr(client, name)(*arguments)
        except BenchError as exc:
            error = str(exc)
        _write(answers, (error, value))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # what anything prints is no answer
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(sys.stdin.buffer, answers))
