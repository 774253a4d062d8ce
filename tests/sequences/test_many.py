"""Thousands of sequences at a time over two instances: every sum is right, and the idle ones end."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from .stage import MODEL, add

CONNECTIONS = 64
IDLE_S = 5
"""After so long a sequence is given up: longer than a busy machine takes for 64 requests."""
ABANDONED = 40
"""One sequence of so many is left without an end."""
QUIET = MODEL.replace('with open(os.path.join(self.folder, "journal"), "a") as journal:', "if False:")


class Connection:
    """One HTTP connection, on which a client sends one sequence after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def ask(self, value: int, sequence: int, *, start: bool, end: bool) -> tuple[int, object]:
        tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [value]}
        parameters = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
        body = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
        head = f"POST /v2/models/sums/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        answered = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answered.partition("content-length: ")[2].partition("\r\n")[0])
        document = json.loads(await self._reader.readexactly(length))
        status = int(answered.split(" ", 2)[1])
        return status, document["outputs"][0]["data"][0] if status == 200 else document["error"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("strategy", ["direct", "oldest"])
@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.stress)])
async def test_interleaved_sequences_of_any_length_keep_their_sums(
    serve: Callable[..., Server], tmp_path: Path, strategy: str, count: int
) -> None:
    models = ModelRepository(tmp_path / "models")
    settings = {strategy: {}, "max_sequence_idle_microseconds": IDLE_S * 1_000_000}
    add(models, tmp_path, "sums", QUIET, max_batch_size=16, instances=2, **settings)
    server = serve(models.path)
    dice = random.Random(count)
    sequences = iter([(number, dice.randint(1, 9), dice.random()) for number in range(1, count + 1)])
    wrong: list[object] = []
    abandoned: list[int] = []
    asked = 0

    async def run(connection: Connection) -> None:
        nonlocal asked
        for number, length, _ in sequences:
            total = 0
            is_abandoned = number % ABANDONED == 0
            for step in range(length):
                value = number * 7 + step
                total += value
                is_end = step == length - 1 and not is_abandoned
                answer = await connection.ask(value, number, start=step == 0, end=is_end)
                asked += 1
                if answer != (200, total):
                    wrong.append((number, step, answer, total))
            if is_abandoned:
                abandoned.append(number)

    streams = [await asyncio.open_connection("127.0.0.1", server.http_port) for _ in range(CONNECTIONS)]
    connections = [Connection(*stream) for stream in streams]
    try:
        await asyncio.gather(*map(run, connections))
        assert wrong == []
        assert len(abandoned) == count // ABANDONED
        await asyncio.sleep(IDLE_S + 0.5)
        for number in abandoned:
            status, text = await connections[0].ask(1, number, start=False, end=False)
            assert status == 400
            assert "must specify the START flag" in str(text)
    finally:
        for connection in connections:
            connection.writer.close()
            await connection.writer.wait_closed()
    stats = server_stats(server)
    assert (stats["success"], stats["fail"]) == (asked, 0)


def server_stats(server: Server) -> dict[str, int]:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{server.http_port}/v2/models/sums/stats", timeout=20) as answer:
        phases = json.load(answer)["model_stats"][0]["inference_stats"]
    return {name: phases[name]["count"] for name in ("success", "fail")}
