"""Servers that trace, of ours and real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tritonpy.server import Server
from tritonpy_sdk.testing import until
from tritonpy_sdk.testing.span_collector import SpanCollector

from ..servers import command_options, local_options
from .asking import MODELS, Endpoint

Start = Callable[..., Endpoint]


def read_words(words: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    return command_options("--model-repository=m", *(f"--trace-config={word}" for word in words)).trace_config


@pytest.fixture(scope="module")
def ours() -> Iterator[Start]:
    """Start one of our servers with words of `--trace-config`; all end with the module."""
    servers: list[Server] = []

    def start(*words: str) -> Endpoint:
        options = local_options(MODELS, allow_metrics=False, trace_config=read_words(words))
        server = Server(options)
        server.start()
        servers.append(server)
        return Endpoint(server.http_port, server.grpc_port)

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def real(real_triton: Callable[..., dict[str, int]]) -> Start:
    """Start a real server with words of `--trace-config`."""

    def start(*words: str) -> Endpoint:
        ports = real_triton(MODELS, *(f"--trace-config={word}" for word in words))
        return Endpoint(ports["http"], ports["grpc"])

    return start


@pytest.fixture(scope="module")
def collector() -> Iterator[SpanCollector]:
    pytest.importorskip("opentelemetry.proto")
    collector = SpanCollector()
    yield collector
    collector.close()


def wait_for_files(pattern: Path, count: int) -> list[Path]:
    """The files whose names begin so and end in a number, by it, once there are as many."""

    def found() -> list[Path]:
        return [path for path in pattern.parent.glob(f"{pattern.name}.*") if path.suffix[1:].isdigit()]

    until(lambda: len(found()) >= count, found)
    return sorted(found(), key=lambda path: int(path.suffix[1:]))
