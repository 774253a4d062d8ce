from __future__ import annotations

import asyncio

from tritonpy.lifecycle.record import Want
from tritonpy.lifecycle.registry import ModelRegistry


async def test_a_name_is_busy_as_long_as_its_lock_is_held_or_waited_for() -> None:
    registry = ModelRegistry()
    seen: list[bool] = []

    async def take_a_turn() -> None:
        async with registry.turn("m"):
            await asyncio.sleep(0)
        # Between the first and the second, too: one that came now would be before it.
        seen.append(registry.is_busy("m"))

    await asyncio.gather(take_a_turn(), take_a_turn())

    assert seen == [True, False]
    assert not registry.is_busy("m")
    assert not registry.is_busy("other")


async def test_names_that_clients_make_up_are_forgotten() -> None:
    registry = ModelRegistry()

    async with registry.turn("made up"), registry.turn("wanted") as wanted:
        wanted.want = Want.BY_NAME
        with registry.waiting("waiting", "made up"):
            assert registry.wait_chain("waiting", "made up") == ["waiting", "made up"]

    assert registry.lookup("made up") is None
    assert registry.lookup("waiting") is None
    assert registry.lookup("wanted") is wanted


async def test_a_chain_of_waiting_loads_is_found_though_another_one_goes_in_a_circle() -> None:
    registry = ModelRegistry()

    with registry.waiting("a", "b"), registry.waiting("b", "a"), registry.waiting("b", "c"):
        assert registry.wait_chain("a", "c") == ["a", "b", "c"]
        assert registry.wait_chain("c", "a") == []
