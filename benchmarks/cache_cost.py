"""What the response cache costs the event loop: hits, and what a miss adds to an execution.

    python benchmarks/cache_cost.py [--out FILE]

A scheduler behind the local cache stands in front of one that answers at once. Hits, misses and requests
without a cache are interleaved; printed are microseconds of CPU for a request, the median of the rounds.
Below it the parts: making a key, writing and reading an entry.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from machine_facts import machine_facts
from tritonpy.builtin import local_cache
from tritonpy.cache.entry import decode_entry, encode_entry
from tritonpy.cache.key import KeyMaker
from tritonpy.cache.response_cache import ResponseCache
from tritonpy.model.execution import Instance
from tritonpy.plugin_manager import bind_object
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.cached import CachedScheduler
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor

ROUNDS = 9
BYTE_SIZES = (64, 65_536, 1_048_576)


class Answering:
    """A scheduler that answers at once."""

    def __init__(self, output: Tensor) -> None:
        self._output = output

    def enqueue(self, request: InferRequest) -> None:
        request.deliver(InferResponse([self._output]))

    def use(self, instances: Sequence[Instance]) -> None: ...

    def refuse(self, error: object) -> None: ...

    def close(self, error: object) -> None: ...


class Sink:
    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None: ...


def main() -> int:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    out = parser.parse_args().out
    results = {
        "machine": machine_facts(),
        "us_per_request": {size: asyncio.run(requests(size)) for size in BYTE_SIZES},
        "us_per_part": {size: parts(size) for size in BYTE_SIZES},
    }
    text = json.dumps(results, indent=2) + "\n"
    print(text, end="")
    if out is not None:
        out.write_text(text)
    return 0


async def requests(byte_size: int) -> dict[str, float]:
    """Requests whose inputs and outputs have so many bytes."""
    count = max(50, min(2000, 50_000_000 // byte_size))
    data = bytes(byte_size)
    plain = Answering(Tensor("O", "UINT8", (byte_size,), data))
    cache = ResponseCache(
        "local", {"size": str(2**31)}, lambda name: bind_object("caches", local_cache, name), 1
    )
    await cache.open()
    cached = CachedScheduler(plain, cache, KeyMaker("m", "1", b""), ModelStats())
    sink, number = Sink(), 0

    def make() -> InferRequest:
        tensor = Tensor("I", "UINT8", (byte_size,), data)
        request = InferRequest("m", {"I": tensor}, parameters={"n": number})
        request.ticket.sink = sink
        return request

    rounds: dict[str, list[float]] = {"without": [], "miss": [], "hit": []}
    for _ in range(ROUNDS):
        for name, taken in rounds.items():
            made = []
            for _ in range(count):
                number += name == "miss"  # a hit asks again for what was missed last
                made.append(make())
            scheduler = plain if name == "without" else cached
            start = time.thread_time()
            for request in made:
                scheduler.enqueue(request)
            await asyncio.sleep(0)  # hits are answered in the next turn
            taken.append((time.thread_time() - start) / count * 1e6)
    await cache.close()
    return {name: round(statistics.median(taken), 1) for name, taken in rounds.items()}


def parts(byte_size: int) -> dict[str, float]:
    """The steps of it, each alone."""
    array = np.zeros(byte_size, np.uint8)
    maker = KeyMaker("m", "1", b"")
    request = InferRequest("m", {"I": Tensor("I", "UINT8", array.shape, array.tobytes())})
    key = maker.make(request)
    assert key is not None
    outputs = [Tensor.from_numpy("O", array)]
    entry = encode_entry(key.digest, outputs, {})
    assert entry is not None
    return {
        "key": timed(lambda: maker.make(request), byte_size),
        "write entry": timed(lambda: encode_entry(key.digest, outputs, {}), byte_size),
        "read entry": timed(lambda: decode_entry(key.digest, entry), byte_size),
    }


def timed(work: Callable[[], object], byte_size: int) -> float:
    """The median over the rounds, in microseconds of CPU."""
    count = max(50, min(5000, 50_000_000 // byte_size))
    taken = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(count):
            work()
        taken.append((time.thread_time() - start) / count * 1e6)
    return round(statistics.median(taken), 2)


if __name__ == "__main__":
    raise SystemExit(main())
