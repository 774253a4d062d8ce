"""Thousands of sequences at a time over two instances: every sum is right, and the idle ones end."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tritonpy.scheduler import selection
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S

from ..on_loop import on_loop
from .stage import MODEL, add

CONNECTIONS = 64
IDLE_S = 1000
"""After so long a sequence is given up: longer than this test takes, but for what it adds to the clock."""
ABANDONED = 5
"""Sequences of a model that are left without an end: they keep their slots until the clock is put forward."""
QUIET = MODEL.replace('with open(os.path.join(self.folder, "journal"), "a") as journal:', "if False:")


class Connection:
    """One HTTP connection, on which a client sends one sequence after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def ask(
        self, model: str, value: int, sequence: int, *, start: bool, end: bool
    ) -> tuple[int, object]:
        tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [value]}
        parameters = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
        body = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        answered = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answered.partition("content-length: ")[2].partition("\r\n")[0])
        document = json.loads(await self._reader.readexactly(length))
        status = int(answered.split(" ", 2)[1])
        return status, document["outputs"][0]["data"][0] if status == 200 else document["error"]


class Clients:
    """Those of one model, who send its sequences over some connections.

    Attributes:
        model: its name.
        abandoned: the sequences that were left without an end.
        asked: how many requests were sent.
        wrong: answers that are not what they should be.
    """

    def __init__(self, model: str, count: int) -> None:
        self.model = model
        self.abandoned: list[int] = []
        self.asked = 0
        self.wrong: list[object] = []
        dice = random.Random(count)
        self._every = count // ABANDONED
        self._sequences = iter([(number, dice.randint(1, 9)) for number in range(1, count + 1)])

    async def run(self, connection: Connection) -> None:
        for number, length in self._sequences:
            total = 0
            is_abandoned = number % self._every == 0
            for step in range(length):
                value = number * 7 + step
                total += value
                is_end = step == length - 1 and not is_abandoned
                answer = await connection.ask(self.model, value, number, start=step == 0, end=is_end)
                self.asked += 1
                if answer != (200, total):
                    self.wrong.append((number, step, answer, total))
            if is_abandoned:
                self.abandoned.append(number)


class Clock:
    """The time of the schedulers, which a test puts forward."""

    ahead_ns = 0

    def __call__(self) -> int:
        return time.monotonic_ns() + self.ahead_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(selection, "Scheduler", partial(selection.Scheduler, clock=clock))
    return clock


@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.stress)])
async def test_interleaved_sequences_of_any_length_keep_their_sums(
    serve: Callable[..., Server], tmp_path: Path, clock: Clock, count: int
) -> None:
    models = ModelRepository(tmp_path / "models")
    clients = [Clients(strategy, count) for strategy in ("direct", "oldest")]
    for each in clients:
        settings = {each.model: {}, "max_sequence_idle_microseconds": IDLE_S * 1_000_000}
        add(models, tmp_path, each.model, QUIET, max_batch_size=16, instances=2, **settings)
    server = serve(models.path)
    streams = [await asyncio.open_connection("127.0.0.1", server.http_port) for _ in range(CONNECTIONS)]
    connections = [Connection(*stream) for stream in streams]
    try:
        for each in clients:
            await asyncio.gather(*map(each.run, connections))
            assert each.wrong == []
            assert len(each.abandoned) == ABANDONED
        look_at_the_clock(server, clients)
        clock.ahead_ns = (IDLE_S + 1) * 10**9
        look_at_the_clock(server, clients)
        for each in clients:
            for number in each.abandoned:
                status, text = await connections[0].ask(each.model, 1, number, start=False, end=False)
                assert status == 400
                assert "must specify the START flag" in str(text)
    finally:
        for connection in connections:
            connection.writer.close()
            await connection.writer.wait_closed()
    for each in clients:
        stats = server_stats(server, each.model)
        assert (stats["success"], stats["fail"]) == (each.asked, 0)


def look_at_the_clock(server: Server, clients: list[Clients]) -> None:
    """Have the schedulers do what is due, as their timers would."""
    for each in clients:
        on_loop(server, server.runtime.registry.find(each.model).scheduler.pump)


def server_stats(server: Server, model: str) -> dict[str, int]:
    from urllib.request import urlopen

    with urlopen(
        f"http://127.0.0.1:{server.http_port}/v2/models/{model}/stats", timeout=DEADLINE_S
    ) as answer:
        phases = json.load(answer)["model_stats"][0]["inference_stats"]
    return {name: phases[name]["count"] for name in ("success", "fail")}
