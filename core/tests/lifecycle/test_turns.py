from __future__ import annotations

import asyncio

from tritonpy.lifecycle.turns import Turns


async def test_a_name_is_taken_as_long_as_somebody_has_it_or_waits_for_it() -> None:
    turns = Turns()
    seen: list[bool] = []

    async def take_it() -> None:
        async with turns.lock("m"):
            await asyncio.sleep(0)
        # Between the first and the second, too: whoever came now would be before it.
        seen.append(turns.is_taken("m"))

    await asyncio.wait((turns.start(take_it()), turns.start(take_it())))

    assert seen == [True, False]
    assert not turns.is_taken("m")
    assert not turns.is_taken("other")
