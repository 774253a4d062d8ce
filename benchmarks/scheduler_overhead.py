"""Measure what a request costs the event loop between a frontend and a model: queue, batch, dispatch, answer.

    python benchmarks/scheduler_overhead.py --output benchmarks/results/DATE-scheduler-overhead.json

A request is queued, put into a batch and handed to an instance that answers at once, and its response is
handed to whoever asked. Nothing is parsed, checked or written. There are two kinds of instances: one answers
in the loop's next turn, which leaves the scheduler's own cost; the other is a real one on a thread, with the
way there and back.

What is told is the loop's processor time per request, as the least and the median of many short repeats:
other programs on the machine disturb elapsed time, which stands beside it. A profile says where it goes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from machine_facts import machine_facts
from tritonpy.handles import Backend, Model, ModelInstance
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.execution import Execution
from tritonpy.model.placement import ResourceNeed, Slot
from tritonpy.model.threads import ThreadInstance
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.rate_limiter import RateLimiter
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.scheduler.selection import make_scheduler
from tritonpy.server import new_loop
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor

AIMS_US = {"direct, batch of 1": 30.0, "dynamic, batch of 32": 8.0}
"""What the loop may spend on a request, by the title of the load."""

CONFIG: dict[str, Any] = {
    "name": "m",
    "max_batch_size": 32,
    "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [16]}],
    "output": [{"name": "O", "data_type": "TYPE_FP32", "dims": [16]}],
}
LOADS: dict[str, tuple[dict[str, Any], int]] = {
    # what the configuration has besides, and how many requests come together
    "direct, batch of 1": ({}, 1),
    "direct, 32 at once": ({}, 32),
    "dynamic, batch of 1": ({"dynamic_batching": {}}, 1),
    "dynamic, batch of 32": ({"dynamic_batching": {}}, 32),
    "dynamic with levels, batch of 32": (
        {
            "dynamic_batching": {
                "priority_levels": 3,
                "default_priority_level": 2,
                "default_queue_policy": {"default_timeout_microseconds": 1_000_000},
            }
        },
        32,
    ),
    "rate limiter, batch of 1": ({"rate_limiter": True}, 1),
}


class InstantInstance:
    """Answers in the loop's next turn, as if a thread had answered meanwhile."""

    name = "instant"
    capacity = 1
    concurrency = 1
    is_ready = True

    def __init__(self, scheduler: Scheduler) -> None:
        self.depth = 0
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()

    def submit(self, execution: Execution) -> None:
        self.depth += 1
        self._loop.call_soon(self._finish, execution)

    def _finish(self, execution: Execution) -> None:
        self.depth -= 1
        now_ns = time.monotonic_ns()
        execution.finish((now_ns, now_ns, now_ns, now_ns), [InferResponse() for _ in execution.requests])
        self._scheduler.pump()


def thread_instance(scheduler: Scheduler) -> ThreadInstance:
    """An instance as models have it, whose backend answers at once."""
    hooks: Any = SimpleNamespace(  # Any: stands in for a bound backend
        execute=lambda instance, requests: [InferResponse() for _ in requests],
        instance_initialize=None,
        instance_finalize=None,
        instance_ready=None,
    )
    handle = ModelInstance("m_0", 0, "KIND_CPU", 0, Model("m", 1, CONFIG, Path(), Backend("b")))
    return ThreadInstance(hooks, handle, LoopBridge(asyncio.get_running_loop()), scheduler.pump)


class Asker:
    """Sends requests, so many at once, and counts the answers."""

    def __init__(self, scheduler: Scheduler, together: int) -> None:
        self._scheduler = scheduler
        self._together = together
        self._loop = asyncio.get_running_loop()
        self._open = 0
        self._waiting: list[list[InferRequest]] = []  # those that are sent together, the last ones first
        self._done: asyncio.Future[None] | None = None

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self._open -= 1
        if not self._open:
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        if not self._waiting:
            assert self._done is not None
            self._done.set_result(None)
            return
        together = self._waiting.pop()
        self._open = len(together)
        for request in together:
            self._scheduler.enqueue(request)

    async def ask(self, count: int, profiler: cProfile.Profile | None = None) -> tuple[float, float]:
        """Send so many requests; processor and elapsed microseconds for each of them."""
        array = np.zeros((1, 16), np.float32)
        requests = [InferRequest("m", {"I": Tensor.from_numpy("I", array)}) for _ in range(count)]
        for request in requests:
            request.ticket.sink = self
        self._waiting = [requests[at : at + self._together] for at in range(0, count, self._together)]
        self._done = self._loop.create_future()
        await asyncio.sleep(0)
        gc.collect()
        if profiler is not None:
            profiler.enable()
        cpu_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
        self._send()
        await self._done
        cpu_ns, wall_ns = time.thread_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns
        if profiler is not None:
            profiler.disable()
        return cpu_ns / 1000 / count, wall_ns / 1000 / count


async def prepared(title: str, make_instance: Callable[[Scheduler], Any]) -> tuple[Asker, Callable[[], Any]]:
    """A scheduler under a load, and what closes it."""
    config, together = LOADS[title]
    is_limited = config.get("rate_limiter", False)
    scheduler = make_scheduler({**CONFIG, **config}, ModelStats(), None)
    instance = make_instance(scheduler)
    if is_limited:

        async def start(slot: Slot) -> Any:
            return instance

        limiter = RateLimiter([], asyncio.get_running_loop().call_soon)
        slot = Slot("m_0", 0, "KIND_CPU", 0, resources=(ResourceNeed("R", 1, False),))
        await scheduler.contend(limiter).limited(start)(slot)
    if isinstance(instance, ThreadInstance):
        await instance.open()
    scheduler.use([instance])

    async def close() -> None:
        if isinstance(instance, ThreadInstance):
            await instance.close()

    return Asker(scheduler, together), close


async def measure(count: int, repeats: int) -> list[dict[str, Any]]:
    """Measure all loads on both kinds of instances, in turns, so that a disturbance meets all of them."""
    kinds: dict[str, Callable[[Scheduler], Any]] = {"instant": InstantInstance, "thread": thread_instance}
    askers = {(title, kind): await prepared(title, kinds[kind]) for title in LOADS for kind in kinds}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in askers}
    for asker, _ in askers.values():
        await asker.ask(count)
    for _ in range(repeats):
        for key, (asker, _) in askers.items():
            found[key].append(await asker.ask(count))
    for _, close in askers.values():
        await close()
    return [
        {
            "load": title,
            "instance": kind,
            "loop_cpu_us_least": round(min(cpu for cpu, _ in times), 2),
            "loop_cpu_us_median": round(statistics.median(cpu for cpu, _ in times), 2),
            "elapsed_us_least": round(min(wall for _, wall in times), 2),
            "elapsed_us_median": round(statistics.median(wall for _, wall in times), 2),
            "aim_us": AIMS_US.get(title),
        }
        for (title, kind), times in found.items()
    ]


async def profile(title: str, count: int) -> list[dict[str, Any]]:
    """Where the time of one load goes: functions by their own time, the longest first."""
    asker, close = await prepared(title, InstantInstance)
    await asker.ask(count)
    profiler = cProfile.Profile()
    await asker.ask(count, profiler)
    await close()
    rows = []
    stats: Any = pstats.Stats(profiler)  # Any: `stats` is not in its type
    for (file, _, name), (_, calls, own_s, _, _) in stats.stats.items():
        where = file.rpartition("/tritonpy/")[2] if "/tritonpy/" in file else file.rpartition("/")[2]
        rows.append(
            {
                "function": f"{where}:{name}",
                "calls_per_request": round(calls / count, 3),
                "own_us_per_request": round(own_s * 1e6 / count, 3),
            }
        )
    return sorted(rows, key=lambda row: -row["own_us_per_request"])[:15]


def main() -> int:
    """Measure, print a table, and write the result where it is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=3200, help="requests in a repeat")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    facts = machine_facts()
    sys.setswitchinterval(0.0005)  # as `corectl serve` does
    with asyncio.Runner(loop_factory=new_loop) as runner:
        rows = runner.run(measure(options.count, options.repeats))
        profiles = {title: runner.run(profile(title, options.count)) for title in AIMS_US}
    for row in rows:
        aim = f"  aim {row['aim_us']:g}" if row["aim_us"] else ""
        print(
            f"{row['load']:34} {row['instance']:8} loop {row['loop_cpu_us_least']:6.2f} "
            f"(median {row['loop_cpu_us_median']:6.2f}) µs, elapsed {row['elapsed_us_least']:6.2f} "
            f"(median {row['elapsed_us_median']:6.2f}) µs{aim}"
        )
    if options.output is not None:
        result = {
            "benchmark": "scheduler_overhead",
            "machine": facts,
            "requests_per_repeat": options.count,
            "repeats": options.repeats,
            "loads": rows,
            "profiles_with_instant_instances": profiles,
        }
        options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
