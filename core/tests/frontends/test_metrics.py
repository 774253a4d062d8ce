from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Metric
from tritonpy.errors import Unavailable
from tritonpy.frontends.metrics import MetricsPort
from tritonpy.metrics.exposition import MetricsPage
from tritonpy.metrics.models import ModelMetrics, ModelSnapshot
from tritonpy.stats import ModelStats


class Port:
    def __init__(self, frontend: MetricsPort, port: int) -> None:
        self.frontend = frontend
        self.port = port
        self.base = f"http://127.0.0.1:{port}"


@pytest.fixture
async def stats() -> ModelStats:
    return ModelStats()


@pytest.fixture
async def port(stats: ModelStats) -> AsyncIterator[Port]:
    registry = CollectorRegistry()
    metrics = ModelMetrics(registry, lambda: [ModelSnapshot("m", "1", stats.snapshot())])
    frontend = MetricsPort(MetricsPage(registry, [metrics.take]))
    bound = await frontend.start("127.0.0.1", 0)
    yield Port(frontend, bound)
    await frontend.stop()


async def test_metrics_are_plain_text_of_the_counters_now(port: Port, stats: ModelStats) -> None:
    stats.inference_count = 4

    async with aiohttp.ClientSession() as session, session.get(f"{port.base}/metrics") as answer:
        text = await answer.text()

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert 'nv_inference_count{model="m",version="1"} 4\n' in text


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metric", "/v2/health/live"])
async def test_any_other_path_is_an_empty_success(port: Port, path: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(port.base + path) as answer:
        body = await answer.read()

    assert (answer.status, body) == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_any_other_method_is_not_allowed(port: Port, method: str) -> None:
    async with aiohttp.ClientSession() as session, session.request(method, f"{port.base}/metrics") as answer:
        assert answer.status == 405


async def test_a_taken_port_is_named(port: Port) -> None:
    second = MetricsPort(MetricsPage(CollectorRegistry()))

    with pytest.raises(Unavailable, match=rf"Socket '127\.0\.0\.1:{port.port}' already in use"):
        await second.start("127.0.0.1", port.port)


async def test_counters_are_copied_on_the_loop_and_rendered_elsewhere() -> None:
    threads: dict[str, int] = {}

    class Collector:
        def collect(self) -> list[Metric]:
            threads["render"] = threading.get_ident()
            return []

    registry = CollectorRegistry()
    registry.register(Collector())
    frontend = MetricsPort(MetricsPage(registry, [lambda: threads.update(copy=threading.get_ident())]))
    bound = await frontend.start("127.0.0.1", 0)
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{bound}/metrics") as got,
        ):
            assert got.status == 200
    finally:
        await frontend.stop()

    assert threads["copy"] == threading.get_ident()
    assert threads["render"] != threading.get_ident()
