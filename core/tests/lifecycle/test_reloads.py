"""Models whose files have changed are loaded anew in the background."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tritonpy.errors import Internal, TritonError
from tritonpy_sdk.testing import until_async

ALL = "version_policy { all {} }"


async def reloaded(harness: Any, name: str) -> list[str]:
    """What a reload of a model that is wanted loads."""
    before = len(harness.loader.loaded)
    harness.manager.reload_soon(harness.found(name), only_wanted=True)
    await harness.manager.unload("none")  # some turns of the loop later
    async with harness.registry.turn(name):  # and when the reload is over
        return [model.content for model in harness.loader.loaded[before:]]


async def test_a_model_that_could_not_be_loaded_is_reloaded_when_it_was_mended(harness: Any) -> None:
    harness.write("m", "broken")
    with pytest.raises(TritonError):
        await harness.manager.load("m")
    harness.write("m", "mended")

    assert await reloaded(harness, "m") == ["mended"]


async def test_what_nobody_asked_for_or_was_unloaded_is_not_reloaded(harness: Any) -> None:
    harness.write("idle")
    harness.write("left")
    await harness.manager.load("left")
    await harness.manager.unload("left")
    harness.write("left", "second")

    assert await reloaded(harness, "idle") == []
    assert await reloaded(harness, "left") == []


async def test_a_model_unloaded_before_its_reload_begins_is_not_reloaded(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m", force=True))
    await until_async(lambda: harness.loader.running == 1)
    harness.write("m", "second")
    unloading = asyncio.create_task(harness.manager.unload("m"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    harness.manager.reload_soon(harness.found("m"), only_wanted=True)
    harness.loader.gate.set()
    await asyncio.gather(loading, unloading)
    async with harness.registry.turn("m"):
        assert [model.content for model in harness.loader.loaded] == ["first", "second"]
    await until_async(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})
    assert len(harness.loader.loaded) == 2


async def test_a_model_made_of_sent_files_does_not_follow_the_repository(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    await harness.manager.load("m", '{"backend": "fake"}', {"file:1/model.txt": b"sent"})
    harness.write("m", "second")

    assert await reloaded(harness, "m") == []


async def test_where_everything_is_loaded_new_models_are_loaded_too(harness: Any) -> None:
    await harness.manager.load_all()
    harness.write("new")

    harness.manager.reload_soon(harness.found("new"), only_wanted=False)

    await until_async(lambda: harness.states("new") == {"1": ("READY", "")})


async def test_a_changed_model_is_reloaded_in_the_background(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tritonpy.repository")
    harness.write("m")
    await harness.manager.load("m")
    harness.write("m", "second")

    harness.manager.reload_soon(harness.found("m"), only_wanted=True)
    await until_async(lambda: harness.served("m").content == "second")
    await until_async(lambda: "reloaded 'm', whose files have changed" in caplog.text)


async def test_a_broken_change_leaves_the_old_one_serving_with_a_line_in_the_log(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    harness.write("m")
    await harness.manager.load("m")
    harness.write("m", "broken")

    harness.manager.reload_soon(harness.found("m"), only_wanted=True)
    await until_async(lambda: "what was loaded before goes on serving" in caplog.text)

    assert "failed to load 'm' version 1: Internal: boom" in caplog.text
    assert harness.served("m").content == "first"


# What nobody has thought of.


@pytest.fixture
def odd(harness: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model whose files the system cannot read, for a reason of its own; and another one beside it."""
    harness.write("odd")
    harness.write("other")
    preparation = harness.manager._load
    original = preparation._read

    def read(directory: Any, override: str | None) -> Any:
        if directory.name == "odd":
            raise RuntimeError("can't start new thread")
        return original(directory, override)

    monkeypatch.setattr(preparation, "_read", read)
    return harness


async def test_whatever_is_wrong_with_one_model_the_others_are_loaded(
    odd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert not await odd.manager.load_all()

    assert odd.served("other").content == "first"
    reason = "Internal: RuntimeError: can't start new thread"
    assert odd.registry.index()[0] == {"name": "odd", "state": "UNAVAILABLE", "reason": reason}
    [record] = [record for record in caplog.records if record.exc_info]  # a line of code will be asked for
    assert record.message == "failed to load 'odd'"


async def test_whatever_is_wrong_with_a_change_is_told_and_tried_again(odd: Any) -> None:
    assert not await odd.manager.reload_soon(odd.found("odd"), only_wanted=False)

    assert "can't start new thread" in odd.registry.index()[0]["reason"]
    with pytest.raises(Internal, match=r"failed to poll from model repository: .*can't start new thread"):
        await odd.manager.load("odd")
