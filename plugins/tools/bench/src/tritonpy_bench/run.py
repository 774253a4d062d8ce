"""A load from its beginning to its end: asks the server, sends, waits for windows that agree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import NoReturn

from tritonpy_bench.client import Client, Plan, place_of
from tritonpy_bench.contents import read_streams
from tritonpy_bench.errors import BenchError, NothingAnswered
from tritonpy_bench.load import Load, Stability
from tritonpy_bench.measurement import Measurement, Window, after, beside
from tritonpy_bench.paces import request_count
from tritonpy_bench.plans import make_plans, shared_byte_size
from tritonpy_bench.processes import RemoteClient, loop_factory
from tritonpy_bench.requests import check
from tritonpy_bench.server_side import Counts, between, look
from tritonpy_bench.shared_memory import open_regions
from tritonpy_bench.stability import agree
from tritonpy_bench.target import HttpTarget, Target, all_steps, model_facts

_GRACE_S = 2.0  # for answers that are still to come when a load ends

AnyClient = Client | RemoteClient

OnWindow = Callable[[Window], bool | None]
"""Is told of each window when it is over; True ends the load there."""


def measure(
    load: Load,
    stability: Stability = Stability(),  # noqa: B008 - it is frozen
    *,
    processes: int = 1,
    on_window: OnWindow | None = None,
) -> Measurement:
    """Put a load on a model until its numbers are stable.

    It blocks, and may be called on any thread. On the main thread, Ctrl-C ends it with KeyboardInterrupt,
    and all connections are closed.

    Args:
        load: what is sent.
        stability: for how long.
        processes: client processes that send it together; with 1, this one does.
        on_window: sees each window when it is over, before the next one ends; if it returns True, the
            measurement is of the windows so far, and stable only if they agree.

    Raises:
        BenchError: the load cannot be made, or not one request succeeded; the text says why.
    """
    place_of(load)  # is said first if it is none
    with ExitStack() as stack:
        target = stack.enter_context(open_target(load))
        facts = model_facts(target, load.model, load.version)
        streams = read_streams(load.inputs, facts)
        regions = None
        if load.shared_memory != "none":
            check(load, facts, streams)
            size = shared_byte_size(load, facts, streams)
            regions = stack.enter_context(open_regions(target, load, facts, size))
        plans = make_plans(load, facts, streams, regions, stability.request_count, processes)
        if regions is not None:
            regions.write()
        models = [(load.model, load.version), *((step, "") for step in all_steps(target, facts))]
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory()))
        return runner.run(_Run(load, stability, target, models, on_window).run(plans))


@contextmanager
def open_target(load: Load) -> Iterator[Target]:
    """Open a connection to the server of a load, for questions.

    Raises:
        BenchError: nothing answers there.
    """
    target: Target
    if load.protocol == "http":
        target = HttpTarget(load.url, load.timeout_s, load.headers, load.tls)
    else:
        from tritonpy_bench.grpc_target import GrpcTarget

        target = GrpcTarget(load)
    try:
        yield target
    finally:
        target.close()


class _Run:
    """One load while it goes on."""

    def __init__(
        self,
        load: Load,
        stability: Stability,
        target: Target,
        models: Sequence[tuple[str, str]],
        on_window: OnWindow | None,
    ) -> None:
        self._load = load
        self._stability = stability
        self._target = target
        self._models = models
        self._on_window = on_window

    async def run(self, plans: Sequence[Plan]) -> Measurement:
        """Send until the windows agree, or there are too many of them."""
        stability = self._stability
        async with _clients(plans) as clients:
            if stability.request_count or request_count(self._load.pace):
                return await self._count(clients)
            await asyncio.gather(*(client.start() for client in clients))
            await asyncio.sleep(stability.warmup_s)
            windows: list[Window] = []
            looks = [await self._look()]
            await _take(clients)
            is_stable = ends = False
            while not (is_stable or ends) and len(windows) < stability.most_windows:
                await asyncio.sleep(stability.window_s)
                windows.append(await _take(clients))
                looks.append(await self._look())
                ends = bool(self._on_window and self._on_window(windows[-1]))
                is_stable = agree(windows, stability)
        return self._measurement(windows, is_stable, looks)

    async def _count(self, clients: Sequence[AnyClient]) -> Measurement:
        looks = [await self._look()]
        await asyncio.gather(*(client.start() for client in clients))
        await asyncio.gather(*(client.finished() for client in clients))
        window = await _take(clients)
        looks.append(await self._look())
        if self._on_window:
            self._on_window(window)
        return self._measurement([window], True, looks)

    def _measurement(
        self, windows: Sequence[Window], is_stable: bool, looks: Sequence[Sequence[Counts]]
    ) -> Measurement:
        counted = min(len(windows), self._stability.windows)
        total = after(windows[-counted:])
        if not total.request_count:
            self._complain(total)
        server = between(looks[-1 - counted], looks[-1])
        return Measurement(self._load, is_stable, windows, total, server)

    def _complain(self, total: Window) -> NoReturn:
        load = self._load
        if total.errors:
            (text, count), *others = total.errors.most_common(4)
            more = "".join(f"; {other} times: {words}" for words, other in others)
            raise BenchError(
                f"none of the requests to model '{load.model}' succeeded; {count} times: {text}{more}"
            )
        raise NothingAnswered(load.model, total.duration_s)

    async def _look(self) -> list[Counts]:
        return await asyncio.to_thread(look, self._target, self._models)


@asynccontextmanager
async def _clients(plans: Sequence[Plan]) -> AsyncIterator[list[AnyClient]]:
    clients: list[AnyClient]
    clients = [Client(plans[0])] if len(plans) == 1 else [RemoteClient(plan) for plan in plans]
    try:
        await asyncio.gather(*(client.open() for client in clients))
        yield clients
    finally:
        await asyncio.gather(*(client.stop(_GRACE_S) for client in clients))


async def _take(clients: Sequence[AnyClient]) -> Window:
    return beside(await asyncio.gather(*(client.take() for client in clients)))
