"""Calls in flight, and the interface of what carries them to the server and back."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tritonpy_bench.answers import Outputs
from tritonpy_bench.tls import TlsFiles


class Call(Protocol):
    """Waits for the answer to a request."""

    @property
    def sent_ns(self) -> int:
        """When it was sent, by `time.perf_counter_ns`."""

    def read(self, outputs: Outputs) -> str | None:
        """Look at a response, before the call is told of it; only where responses are read.

        Returns:
            What is wrong with it; None if nothing is.
        """

    def responded(self, came_ns: int = 0) -> None:
        """A response has come; told only where a request may have several.

        Args:
            came_ns: when its last bytes came, by `time.perf_counter_ns`, before they were read; 0 for now.
        """

    def answered(self, error: str | None, came_ns: int = 0) -> None:
        """The request is over: all is received, or it failed.

        Args:
            error: it failed with; None if it did not.
            came_ns: as of `responded`.
        """


def looked_at(call: Call, outputs: Outputs) -> str | None:
    """Let a call look at a response; what is wrong with it, whatever it holds."""
    try:
        return call.read(outputs)
    except Exception as error:  # a request that is lost would never end
        return f"what the server answered cannot be read: {error!r}"


class Loop(Protocol):
    """Sends requests at its pace.

    Attributes:
        idle: set when nothing is in flight any more, and nothing will be sent.
    """

    idle: asyncio.Event

    def start(self) -> None:
        """Begin to send."""

    def stop(self) -> None:
        """Send nothing more."""


class Transport(Protocol):
    """Carries requests over connections that it keeps."""

    async def open(self, count: int) -> None:
        """Open connections for so many calls at once, so that no request waits for one.

        Raises:
            BenchError: nothing listens there.
        """

    def send(self, request: bytes, call: Call) -> None:
        """Send a request; its call is told once, and never before this returns."""

    async def close(self) -> None:
        """Close all connections; calls still in flight are told nothing any more."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server listens.

    Attributes:
        host: name or address.
        port: its number.
        is_tls: the connection is encrypted.
        tls: files for that.
    """

    host: str
    port: int
    is_tls: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)

    def context(self, protocols: Sequence[str] = ()) -> ssl.SSLContext | None:
        """What encrypts a connection, with the protocols that are offered inside it; None for nothing.

        Raises:
            BenchError: a file cannot be used.
        """
        return self.tls.context(protocols) if self.is_tls else None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
