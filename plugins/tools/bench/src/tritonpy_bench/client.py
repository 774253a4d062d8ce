"""One client: connections, and what sends requests over them, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import urlsplit

from tritonpy_bench.answers import Expected, Reader
from tritonpy_bench.calls import Loop, Place, Transport
from tritonpy_bench.closed_loop import ClosedLoop
from tritonpy_bench.errors import BenchError
from tritonpy_bench.load import Endpoint, Load, Protocol
from tritonpy_bench.measurement import Window
from tritonpy_bench.open_loop import MOST_FLYING, OpenLoop
from tritonpy_bench.paces import Concurrency, Pace, PeriodicConcurrency
from tritonpy_bench.sources import Checked, Repeated, SequencePlan, Sequences, SequenceSource, Source
from tritonpy_bench.tally import Tally

_OPEN_LOOP_CONNECTIONS = 8
_PORTS = {"http": 8000, "grpc": 8001}
_SCHEMES = {"http": ("", "http", "https"), "grpc": ("", "grpc", "grpcs", "http", "https")}


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a client needs to know; it can be sent to another process.

    Attributes:
        protocol: by which requests are sent.
        place: of the server.
        endpoint: to what.
        requests: as bytes, sent one after the other, again and again.
        offset: the request that is sent first.
        sequences: sent instead of `requests`; None for models without.
        sequence_count: sequences at a time in an open loop.
        pace: when requests are sent, by this client.
        request_limit: how many this client sends in all; 0 for no limit.
        timeout_s: after which a request has failed.
        metadata: of each call of gRPC.
        expected: what the answer to each of the requests has to be; empty if nobody says it.
        tokens: the output whose elements are counted; empty to count none.
        reader: of responses; None if nobody looks at them.
    """

    protocol: Protocol
    endpoint: Endpoint
    place: Place
    requests: Sequence[bytes]
    offset: int
    sequences: SequencePlan | None
    sequence_count: int
    pace: Pace
    request_limit: int
    timeout_s: float
    metadata: Sequence[tuple[str, str]]
    expected: Sequence[Sequence[Expected]] = ()
    tokens: str = ""
    reader: Reader | None = None


class Client:
    """Sends what a plan says.

    Args:
        plan: what is sent.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._transport = _transport(plan)
        self._tally = Tally(tokens=plan.tokens, has_responses=plan.endpoint in ("stream", "generate_stream"))
        sources: Callable[[], Source]
        most_flying = MOST_FLYING
        if plan.sequences is None:
            repeated: Source = (
                Checked(plan.requests, plan.expected, plan.offset)
                if plan.expected
                else Repeated(plan.requests, plan.offset)
            )
            sources = lambda: repeated  # noqa: E731 - all calls share it
        else:
            sequences = Sequences(plan.sequences)
            sources = lambda: SequenceSource(sequences)  # noqa: E731
            most_flying = plan.sequence_count
        self._loop: Loop
        pace, limit = plan.pace, plan.request_limit
        if isinstance(pace, Concurrency | PeriodicConcurrency):
            self._loop = ClosedLoop(self._transport, sources, self._tally, pace, limit)
        else:
            takes_turns = plan.sequences is not None
            self._loop = OpenLoop(
                *(self._transport, sources, self._tally, pace.times_s(), limit, most_flying),
                takes_turns=takes_turns,
            )

    async def open(self) -> None:
        """Open the connections.

        Raises:
            BenchError: nothing listens there.
        """
        await self._transport.open(_connections(self._plan.pace))

    async def start(self) -> None:
        """Begin to send."""
        self._tally.take()
        self._loop.start()

    async def take(self) -> Window:
        """What came since the last call, or the start."""
        return self._tally.take()

    async def finished(self) -> None:
        """Wait until as many requests as the plan says are over."""
        await self._loop.idle.wait()

    async def stop(self, wait_s: float) -> None:
        """Send nothing more, give answers some time to come, and close the connections."""
        self._loop.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._loop.idle.wait(), wait_s)
        await self._transport.close()


def _transport(plan: Plan) -> Transport:
    if plan.protocol == "http":
        from tritonpy_bench.http_transport import HttpTransport

        return HttpTransport(plan.place, plan.timeout_s, plan.endpoint == "generate_stream", plan.reader)
    if find_spec("ngh2") is None:
        raise BenchError("gRPC needs the distribution ngh2, which is not installed: pip install ngh2")
    if plan.endpoint == "stream":
        from tritonpy_bench.stream_transport import StreamTransport

        return StreamTransport(plan.place, plan.timeout_s, plan.metadata, plan.reader is not None)
    from tritonpy_bench.grpc_transport import GrpcTransport

    return GrpcTransport(plan.place, plan.timeout_s, plan.metadata, plan.reader is not None)


def _connections(pace: Pace) -> int:
    """How many are opened before the start; an open loop opens more when it needs them."""
    match pace:
        case Concurrency():
            return pace.requests
        case PeriodicConcurrency():
            return pace.end
        case _:
            return _OPEN_LOOP_CONNECTIONS


def place_of(load: Load) -> Place:
    """Where the server of a load listens; files for TLS ask for it where the URL does not say.

    Raises:
        BenchError: its URL is none.
    """
    url = load.url if "://" in load.url else f"//{load.url}"
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise BenchError(f"url '{load.url}': {error}") from None
    if not parts.hostname or parts.scheme not in _SCHEMES[load.protocol]:
        raise BenchError(f"url '{load.url}': expected something like localhost:{_PORTS[load.protocol]}")
    if load.tls and parts.scheme in ("http", "grpc"):
        raise BenchError(f"url '{load.url}': files for TLS go with https:// or grpcs://")
    is_tls = parts.scheme in ("https", "grpcs")
    default = 443 if is_tls else _PORTS[load.protocol]
    return Place(parts.hostname, port or default, is_tls or bool(load.tls), load.tls)
