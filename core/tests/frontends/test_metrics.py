from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry, Metric
from tritonpy.errors import Unavailable
from tritonpy.frontends.metrics import MetricsPort
from tritonpy.metrics.exposition import MetricsPage
from tritonpy.metrics.models import ModelMetrics, ModelSnapshot
from tritonpy.stats import ModelStats
from tritonpy_sdk.testing import DEADLINE_S

LAST = "Host: t\r\nConnection: close\r\n\r\n"


class Client:
    """A connection to a port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, text: str) -> None:
        self._writer.write(text.encode())

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and body of the next answer."""
        async with asyncio.timeout(DEADLINE_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.rstrip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = await self._reader.readexactly(int(headers["Content-Length"]))
        return int(status.split()[1]), headers, body

    async def rest(self) -> bytes:
        """Everything until the port closes the connection."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._reader.read()

    def close(self) -> None:
        self._writer.close()


Connect = Callable[[int], Awaitable[Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[Client] = []

    async def open_one(port: int) -> Client:
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", port)))
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()


@pytest.fixture
def stats() -> ModelStats:
    return ModelStats()


@pytest.fixture
async def port(stats: ModelStats) -> AsyncIterator[int]:
    registry = CollectorRegistry()
    metrics = ModelMetrics(registry, lambda: [ModelSnapshot("m", "1", stats.snapshot())])
    metrics_port = MetricsPort(MetricsPage(registry, [metrics.take]))
    yield await metrics_port.start("127.0.0.1", 0)
    await metrics_port.stop()


async def test_metrics_are_plain_text_of_the_counters_now(
    port: int, connect: Connect, stats: ModelStats
) -> None:
    client = await connect(port)
    for count in (4, 7):  # on one connection, as Prometheus asks
        stats.inference_count = count
        client.send("GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n")

        status, headers, body = await client.answer()

        assert status == 200
        assert headers["Content-Type"] == "text/plain; charset=utf-8"
        assert f'nv_inference_count{{model="m",version="1"}} {count}\n'.encode() in body


@pytest.mark.parametrize("target", ["/metrics?name[]=nv_inference_count", "http://here:8002/metrics"])
async def test_the_path_alone_decides(port: int, connect: Connect, target: str) -> None:
    client = await connect(port)
    client.send(f"GET {target} HTTP/1.1\r\n{LAST}")

    assert b"# TYPE nv_inference_count counter" in await client.rest()


async def test_a_client_of_http_1_0_gets_the_page_and_the_end(port: int, connect: Connect) -> None:
    client = await connect(port)
    client.send("GET /metrics HTTP/1.0\r\n\r\n")

    assert (await client.rest()).startswith(b"HTTP/1.0 200 OK\r\n")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metric", "/v2/health/live"])
async def test_any_other_path_is_an_empty_success(port: int, connect: Connect, path: str) -> None:
    client = await connect(port)
    client.send(f"GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")

    status, _, body = await client.answer()

    assert (status, body) == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
async def test_any_other_method_is_not_allowed(port: int, connect: Connect, method: str) -> None:
    client = await connect(port)
    client.send(f"{method} /metrics HTTP/1.1\r\nHost: t\r\n\r\n")
    client.send(f"GET /other HTTP/1.1\r\n{LAST}")

    status, headers, body = await client.answer()

    assert (status, headers["Allow"], body) == (405, "GET", b"")
    assert (await client.answer())[0] == 200


@pytest.mark.parametrize(
    "framing",
    ["Content-Length: 99999999", "Transfer-Encoding: chunked", "Content-Length: 3\r\nExpect: 100-continue"],
)
@pytest.mark.parametrize(("method", "expected"), [("POST", 405), ("GET", 413)])
async def test_a_body_is_refused_before_it_is_read(
    port: int, connect: Connect, method: str, expected: int, framing: str
) -> None:
    client = await connect(port)
    # Binary tensors, which the inference port takes at any size, are none here.
    client.send(
        f"{method} /metrics HTTP/1.1\r\nHost: t\r\nInference-Header-Content-Length: 1\r\n{framing}\r\n\r\n"
        "1\r\nx\r\n"
    )

    status, headers, _ = await client.answer()

    assert (status, headers["Connection"]) == (expected, "close")
    assert await client.rest() == b""


async def test_of_too_many_connections_the_quietest_is_closed(port: int, connect: Connect) -> None:
    clients = [await connect(port) for _ in range(16)]
    for client in [*clients[:3], *clients[4:]]:
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        assert (await client.answer())[0] == 200

    newcomer = await connect(port)

    newcomer.send(f"GET /metrics HTTP/1.1\r\n{LAST}")
    assert (await newcomer.answer())[0] == 200
    assert await clients[3].rest() == b""
    clients[0].send("GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    assert (await clients[0].answer())[0] == 200


async def test_where_all_wait_for_the_page_the_oldest_connection_is_closed(connect: Connect) -> None:
    page = HeldPage()
    metrics_port = MetricsPort(page)
    number = await metrics_port.start("127.0.0.1", 0)
    clients = [await connect(number) for _ in range(16)]
    for client in clients:
        client.send(f"GET /metrics HTTP/1.1\r\n{LAST}")
    for _ in range(16):
        await asyncio.wait_for(page.asked.acquire(), DEADLINE_S)

    clients.append(await connect(number))
    clients[16].send(f"GET /metrics HTTP/1.1\r\n{LAST}")

    assert await clients[0].rest() == b""
    page.leave.set()
    assert [(await client.answer())[0] for client in clients[1:]] == [200] * 16
    await metrics_port.stop()


async def test_a_page_under_way_is_answered_by_a_port_that_stops(connect: Connect) -> None:
    page = HeldPage()
    metrics_port = MetricsPort(page)
    number = await metrics_port.start("127.0.0.1", 0)
    asking, idle = await connect(number), await connect(number)
    asking.send("GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n")
    await asyncio.wait_for(page.asked.acquire(), DEADLINE_S)

    stop = asyncio.create_task(metrics_port.stop())

    assert await idle.rest() == b""
    page.leave.set()
    status, headers, body = await asking.answer()
    assert (status, headers["Connection"], body) == (200, "close", b"held")
    await stop


class HeldPage(MetricsPage):
    """A page that is not written before it is told."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.asked = asyncio.Semaphore(0)
        self.leave = asyncio.Event()

    async def text(self) -> bytes:
        self.asked.release()
        await self.leave.wait()
        return b"held"


async def test_a_page_that_cannot_be_written_is_an_error_with_its_reason_and_no_traceback(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("no numbers today")

    metrics_port = MetricsPort(MetricsPage(CollectorRegistry(), [fail]))
    client = await connect(await metrics_port.start("127.0.0.1", 0))
    client.send(f"GET /metrics HTTP/1.1\r\n{LAST}")

    status, _, body = await client.answer()

    assert (status, json.loads(body)) == (500, {"error": "ValueError: no numbers today"})
    assert "GET /metrics failed" in caplog.text
    await metrics_port.stop()


async def test_a_taken_port_is_named(port: int) -> None:
    second = MetricsPort(MetricsPage(CollectorRegistry()))

    with pytest.raises(Unavailable, match=rf"Socket '127\.0\.0\.1:{port}' already in use"):
        await second.start("127.0.0.1", port)


async def test_counters_are_copied_on_the_loop_and_rendered_elsewhere(connect: Connect) -> None:
    threads: dict[str, int] = {}

    class Collector:
        def collect(self) -> list[Metric]:
            threads["render"] = threading.get_ident()
            return []

    registry = CollectorRegistry()
    registry.register(Collector())
    metrics_port = MetricsPort(MetricsPage(registry, [lambda: threads.update(copy=threading.get_ident())]))
    client = await connect(await metrics_port.start("127.0.0.1", 0))
    client.send(f"GET /metrics HTTP/1.1\r\n{LAST}")
    assert (await client.answer())[0] == 200
    await metrics_port.stop()

    assert threads["copy"] == threading.get_ident()
    assert threads["render"] != threading.get_ident()
