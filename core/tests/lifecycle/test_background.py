"""Loads and unloads that go on by themselves, and what is heard of those that fail."""

from __future__ import annotations

import asyncio

import pytest
from tritonpy.errors import Internal, Unavailable
from tritonpy.lifecycle.background import Background


async def fail(error: Exception) -> None:
    raise error


async def test_an_error_that_is_not_expected_is_logged_and_others_are_left_to_who_raised_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = Background()

    await asyncio.wait(
        [background.start(fail(ValueError("broken"))), background.start(fail(Internal("told")))]
    )

    [record] = caplog.records
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "broken"


async def test_work_goes_on_without_its_caller_until_the_stop() -> None:
    background, gate, done = Background(), asyncio.Event(), []

    async def work(name: str) -> None:
        await gate.wait()
        done.append(name)

    left = asyncio.ensure_future(background.finish(work("left")))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == ["left"]

    gate.clear()
    stopped = asyncio.ensure_future(background.finish(work("stopped")))
    await asyncio.sleep(0)
    await background.stop()
    with pytest.raises(Unavailable, match="Server not ready"):
        await stopped
    assert done == ["left"]
