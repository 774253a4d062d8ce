"""64 HTTP clients that ask everything at once, pipelined and hanging up, while the codec is killed."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import local_options
from .holdings import shared_memory_names

pytestmark = pytest.mark.stress

CLIENTS = 64
SECONDS = 20.0
MOST_SECONDS = 220.0  # a busy machine takes longer for as much
ENOUGH = 1000  # answers
ECHO = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}
LONGEST = {"json": 50, "slow": 50, "binary": 300_000, "gzip": 20_000, "gzip out": 60_000, "lax": 20_000}
HOW_OFTEN = {
    **{"json": 10, "binary": 10, "gzip": 5, "gzip out": 3, "large": 0.5, "large out": 0.5, "lax": 1},
    **{"wrong": 3, "unknown": 3, "slow": 2, "health": 4, "index": 2, "hang up": 2},
}

Check = Callable[[int, dict[str, str], bytes], bool]


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: t", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass
class Clients:
    """They share the count of their requests, by which each answer is known.

    Attributes:
        answered: how many answers came, and were those to their requests.
        wrong: what else came.
        waiting: the numbers of the requests whose answers are waited for.
    """

    port: int
    answered: int = 0
    wrong: list[object] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    _last: int = 0

    async def run(self, seed: int, is_over: Callable[[], bool]) -> None:
        choose = random.Random(seed)
        streams = None
        while not is_over():
            if streams is None:
                streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
            kinds = choose.choices(list(HOW_OFTEN), list(HOW_OFTEN.values()), k=choose.choice((1, 1, 2, 6)))
            checks = []
            for kind in kinds:
                request, check = self._request(kind, choose)
                if check is None:
                    request = request[: choose.randrange(1, len(request))]
                streams[1].write(request)
                if check is None:
                    break
                checks.append((kind, check, self._last))
            if "hang up" in kinds and choose.random() < 0.5:
                checks = []  # without having read an answer
            self.waiting.update(number for _, _, number in checks)
            for kind, check, number in checks:
                answer = await asyncio.wait_for(read(streams[0]), 60)
                self.waiting.discard(number)
                if check(*answer):
                    self.answered += 1
                else:
                    self.wrong.append((kind, answer[0], answer[2][:200]))
            if "hang up" in kinds:
                streams[1].transport.abort()
                streams = None
        if streams is not None:
            streams[1].close()

    async def all_answered(self) -> None:
        """Wait for the answers to all that has been asked by now."""
        last = self._last
        while any(number <= last for number in self.waiting):  # noqa: ASYNC110 (nobody is told)
            await asyncio.sleep(0.05)

    def _request(self, kind: str, choose: random.Random) -> tuple[bytes, Check | None]:
        self._last += 1
        name, value = f"q{self._last}", float(choose.randrange(1 << 20))
        if kind == "health":
            request = b"GET /v2/health/ready HTTP/1.1\r\nHost: t\r\n\r\n"
            return request, lambda status, headers, body: (status, body) == (200, b"")
        if kind == "index":
            request = post("/v2/repository/index", b"")
            return request, lambda status, headers, body: status == 200 and len(json.loads(body)) == 2
        if kind == "unknown":
            request = post(f"/v2/models/{name}/infer", b"{}")
            return request, lambda status, headers, body: status == 404 and name.encode() in body
        count = choose.randrange(1, LONGEST.get(kind, 0) + 1) if kind in LONGEST else 150_000
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [count]}
        path = f"/v2/models/{'slow' if kind == 'slow' else 'echo'}/infer"
        if kind in ("binary", "gzip out", "large out"):
            tensor["parameters"] = {"binary_data_size": 4 * count}
            binary_output = {"binary_data_output": kind == "binary"}
            head = json.dumps({"id": name, "inputs": [tensor], "parameters": binary_output}).encode()
            lines = [f"Inference-Header-Content-Length: {len(head)}"]
            lines += ["Accept-Encoding: gzip"] if kind == "gzip out" else []
            data = np.full(count, value, np.float32).tobytes()
            return post(path, head + data, *lines), echoed(name, value, count)
        tensor["data"] = [value] * count
        text = json.dumps({"id": name, "x": 1, "inputs": [tensor]}).encode()
        if kind == "wrong":
            text = text.replace(b"FP32", b"INT32").replace(b".0", b"")
            said = f"[request id: {name}]".encode()
            return post(path, text), lambda status, headers, body: status == 400 and said in body
        if kind == "lax":
            text = text.replace(b'"x": 1', b'"x": NaN')
        if kind == "gzip":
            return post(path, gzip.compress(text, 1), "Content-Encoding: gzip"), echoed(name, value, count)
        return post(path, text), echoed(name, value, count) if kind != "hang up" else None


def echoed(name: str, value: float, count: int) -> Check:
    """Whether an answer is that to one request."""

    def check(status: int, headers: dict[str, str], body: bytes) -> bool:
        if status != 200:
            return False
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        length = headers.get("inference-header-content-length")
        document = json.loads(body[: int(length)] if length else body)
        data = document["outputs"][0].get("data")
        elements = np.frombuffer(body[int(length) :], np.float32) if length else np.array(data)
        return bool(document["id"] == name and len(elements) == count and (elements == value).all())

    return check


async def read(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    status = int((await reader.readuntil(b"\r\n")).split()[1])
    headers = {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return status, headers, await reader.readexactly(int(headers["content-length"]))


def codec_pids() -> list[int]:
    """Processes of this one that read large JSON."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has just ended
            if any("http.codec.worker" in word for word in child.cmdline()):
                found.append(child.pid)
    return found


async def kill_codecs(clients: Clients, killed: list[int]) -> None:
    while True:
        await asyncio.sleep(2)
        pids = codec_pids()
        for pid in pids:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        # What the server hands to one that it does not know to be gone is lost, too.
        while any(map(psutil.pid_exists, pids)):  # noqa: ASYNC110 (nobody is told)
            await asyncio.sleep(0.05)
        await clients.all_answered()  # what is lost twice is refused


@pytest.mark.timeout(300)
@pytest.mark.parametrize("limit", [0, 40_000_000], ids=["no limit", "little room"])
def test_every_answer_belongs_to_its_request_and_nothing_stays_behind(tmp_path: Path, limit: int) -> None:
    repository = ModelRepository(tmp_path)
    repository.model("echo", ECHO)
    repository.model("slow", {**ECHO, "parameters": {"execute_delay_ms": {"string_value": "50"}}})
    options = local_options(tmp_path, allow_grpc=False, allow_metrics=False, max_inflight_byte_size=limit)
    shared = shared_memory_names()
    with Server(options) as server:
        server.runtime.admission.patience_s = 60  # who waits for room is let in, however busy the machine is
        clients = Clients(server.http_port)

        killed: list[int] = []
        began = time.monotonic()

        def is_over() -> bool:
            took_s = time.monotonic() - began
            has_enough = clients.answered > ENOUGH and len(killed) > 2
            return took_s > (SECONDS if has_enough else MOST_SECONDS)

        async def play() -> None:
            killing = asyncio.create_task(kill_codecs(clients, killed))
            await asyncio.gather(*[clients.run(seed, is_over) for seed in range(CLIENTS)])
            killing.cancel()

        asyncio.run(play())
        until(lambda: not server.runtime.admission.held)

        assert clients.wrong == []
        assert clients.answered > ENOUGH
        assert len(killed) > 2
        assert server.runtime.admission.held == 0
    assert shared_memory_names() - shared == set()
