"""What a response cache costs that is a shared object: lookups and insertions, beside the cache `local`.

    python benchmarks/shared_cache_cost.py [--out FILE]

The same hooks are called as a server calls them: those of `local`, a dictionary on the loop, and those of a
hash table in C behind threads (`plugins/abi/tests/csrc/caches/table.c`, compiled for this). Rounds of both
are interleaved. Printed are medians in microseconds for each operation: `loop`, the CPU time of the loop's
thread while 16 are under way at once; `all`, that of the whole process; `alone`, from the call to the answer
while nothing else is under way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any

import uvloop
from machine_facts import machine_facts
from tritonpy.builtin import local_cache
from tritonpy.plugin import Cache
from tritonpy.plugin_manager import bind_object
from tritonpy_abi.caches import open_cache
from tritonpy_sdk.testing.shared_objects import compile_shared_object

SOURCE = Path(__file__).parent.parent / "plugins/abi/tests/csrc/caches/table.c"
ROUNDS = 9
AT_ONCE = 16
BYTE_SIZES = (64, 1_048_576)

Hooks = Callable[[str], Any]  # Any: each hook has its own arguments
Operation = Callable[[int], object]


def main() -> int:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    out = parser.parse_args().out
    loops = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with tempfile.TemporaryDirectory() as directory, loops as runner:
        library = compile_shared_object(SOURCE, Path(directory) / "table.so", "-O2")
        caches = {
            "local": bind_object("caches", local_cache, "local"),
            "shared object": bind_object("caches", open_cache(str(library)), "table"),
        }
        results = {
            "machine": machine_facts(),
            "us_per_operation": {size: runner.run(measure(caches, size)) for size in BYTE_SIZES},
        }
    text = json.dumps(results, indent=2) + "\n"
    print(text, end="")
    if out is not None:
        out.write_text(text)
    return 0


async def measure(caches: Mapping[str, Hooks], byte_size: int) -> dict[str, dict[str, dict[str, float]]]:
    """By operation and cache, with entries of so many bytes."""
    count = 64 if byte_size > 65_536 else 2048
    handles = {name: Cache({"size": str(2**28)}, name=name) for name in caches}
    for name, hooks in caches.items():
        await ended(hooks("cache_initialize")(handles[name]))
    taken: dict[str, dict[str, dict[str, list[float]]]] = {}
    for number in range(ROUNDS):
        for name, hooks in caches.items():
            for operation, call in operations(hooks, handles[name], number, byte_size).items():
                figures = taken.setdefault(operation, {}).setdefault(name, {})
                for figure, us in (await timed(call, count)).items():
                    figures.setdefault(figure, []).append(us)
    for name, hooks in caches.items():
        finalize = hooks("cache_finalize")
        if finalize is not None:
            await ended(finalize(handles[name]))
    return {
        operation: {
            name: {figure: round(statistics.median(rounds), 1) for figure, rounds in figures.items()}
            for name, figures in by_cache.items()
        }
        for operation, by_cache in taken.items()
    }


def operations(hooks: Hooks, handle: Cache, number: int, byte_size: int) -> dict[str, Operation]:
    """What is measured; entries of a round are looked up in the same round."""
    lookup, insert = hooks("cache_lookup"), hooks("cache_insert")
    entry = bytes(byte_size)
    return {
        "insert": lambda n: insert(handle, f"m:1:{number:016x}{n:016x}", entry),
        "hit": lambda n: lookup(handle, f"m:1:{number:016x}{n:016x}"),
        "miss": lambda n: lookup(handle, f"m:2:{number:016x}{n:016x}"),
    }


async def timed(call: Operation, count: int) -> dict[str, float]:
    """The first half at once, the second one after the other."""
    half = count // 2
    loop, everything = time.thread_time(), time.process_time()
    for first in range(0, half, AT_ONCE):
        outcomes = [call(n) for n in range(first, first + AT_ONCE)]
        for begun in [asyncio.ensure_future(outcome) for outcome in outcomes if isawaitable(outcome)]:
            await begun
    loop, everything = time.thread_time() - loop, time.process_time() - everything
    alone = time.perf_counter()
    for n in range(half, count):
        await ended(call(n))
    alone = time.perf_counter() - alone
    return {
        "loop": loop / half * 1e6,
        "all": everything / half * 1e6,
        "alone": alone / (count - half) * 1e6,
    }


async def ended(outcome: object) -> None:
    """Wait for a hook, if it is to be waited for."""
    if isawaitable(outcome):
        await outcome


if __name__ == "__main__":
    raise SystemExit(main())
