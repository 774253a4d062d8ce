"""What a server loads when it starts."""

from __future__ import annotations

from typing import Any

import pytest
from tritonpy.errors import Internal, InvalidArg
from tritonpy.repository.layout import ModelKey

ALL = "version_policy { all {} }"


async def test_all_models_are_loaded_and_refusals_told(harness: Any) -> None:
    harness.write("good")
    harness.write("bad", "broken")
    (harness.root / "worse").mkdir()
    (harness.root / "worse/config.pbtxt").write_text("nonsense: 1")

    assert not await harness.manager.load_all()

    assert harness.states("good") == {"1": ("READY", "")}
    assert harness.states("bad") == {"1": ("UNAVAILABLE", "Internal: boom")}
    assert "nonsense" in harness.registry.record(ModelKey("worse")).refusal
    assert list(harness.registry.unready())


async def test_only_named_models_are_loaded(harness: Any) -> None:
    harness.write("one")
    harness.write("two")

    assert await harness.manager.load_named(("two", "two"))

    assert [entry["name"] for entry in harness.registry.index()] == ["two"]
    assert len(harness.loader.loaded) == 1


async def test_no_name_loads_nothing_and_a_star_alone_everything(harness: Any) -> None:
    harness.write("one")
    harness.write("two")

    assert await harness.manager.load_named(())
    assert harness.registry.index() == []
    assert await harness.manager.load_named(("*",))
    assert [entry["name"] for entry in harness.registry.index()] == ["one", "two"]


async def test_a_star_beside_names_is_refused(harness: Any) -> None:
    with pytest.raises(InvalidArg, match="Wildcard model name '\\*' must be the ONLY startup model"):
        await harness.manager.load_named(("*", "one"))


async def test_an_unknown_name_fails_the_start_but_not_the_readiness(harness: Any) -> None:
    harness.write("one")

    assert not await harness.manager.load_named(("nope", "one"))

    assert harness.states("one") == {"1": ("READY", "")}
    assert not list(harness.registry.unready())


@pytest.mark.parametrize("names", [None, ()])
async def test_a_repository_that_does_not_exist_is_an_error(harness: Any, names: Any) -> None:
    harness.root.rmdir()

    with pytest.raises(Internal, match=f"failed to stat file {harness.root}"):
        await (harness.manager.load_all() if names is None else harness.manager.load_named(names))

    harness.root.touch()
    with pytest.raises(InvalidArg, match=f"repository path is not a valid directory: {harness.root}"):
        await (harness.manager.load_all() if names is None else harness.manager.load_named(names))
    harness.root.unlink()


# For the watcher.
