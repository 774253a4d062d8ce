"""Coroutines that wait, and fail."""

import asyncio


async def nothing(request):
    return "awaited"


async def at_the_same_time(request):
    """Two that wait for each other."""
    events = [asyncio.Event(), asyncio.Event()]

    async def meet(own, other):
        own.set()
        await asyncio.wait_for(other.wait(), 20)
        return "met"

    return await asyncio.gather(meet(*events), meet(*reversed(events)))


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
