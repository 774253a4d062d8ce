"""Coroutines that wait, and fail."""

import asyncio
import time


async def nothing(request):
    return "awaited"


async def at_the_same_time(request, seconds):
    """How long two naps take together."""
    start = time.monotonic()
    await asyncio.gather(asyncio.sleep(seconds), asyncio.sleep(seconds))
    return time.monotonic() - start


async def fails(request):
    await asyncio.sleep(0)
    raise ValueError("time does not run backwards")


async def in_an_executor(request):
    return await asyncio.get_running_loop().run_in_executor(None, lambda: "ran")


LOOPS = []


async def same_loop(request):
    """Whether all requests so far ran on one loop."""
    LOOPS.append(asyncio.get_running_loop())
    return len({id(loop) for loop in LOOPS}) == 1
