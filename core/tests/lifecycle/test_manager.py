from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from tritonpy.errors import Internal, InvalidArg, NotFound, Unavailable
from tritonpy_sdk.testing import until_async

ALL = "version_policy { all {} }"


async def test_a_model_serves_when_its_load_returns(harness: Any) -> None:
    harness.write("m")

    await harness.manager.load("m")

    assert harness.served("m").content == "first"
    assert harness.states("m") == {"1": ("READY", "")}


async def test_loading_what_serves_unchanged_does_nothing(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")

    await harness.manager.load("m")

    assert len(harness.loader.loaded) == 1


async def test_files_that_python_or_an_editor_writes_are_no_change(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    (harness.root / "m/1/__pycache__").mkdir()
    (harness.root / "m/1/__pycache__/model.pyc").write_bytes(b"x")
    (harness.root / "m/1/.model.py.swp").write_bytes(b"x")

    await harness.manager.load("m")

    assert len(harness.loader.loaded) == 1


async def test_a_forced_load_loads_what_has_not_changed(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")

    await harness.manager.load("m", force=True)

    assert len(harness.loader.loaded) == 2
    assert harness.served("m") is harness.loader.loaded[1]


async def test_a_model_without_a_live_instance_is_loaded_anew_though_unchanged(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    harness.served("m").is_ready = False

    await harness.manager.load("m")

    assert len(harness.loader.loaded) == 2


async def test_a_changed_model_replaces_the_old_one_which_answers_before_it_is_closed(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    old = harness.served("m")
    old.idle.clear()  # a request is under way
    harness.write("m", "second")

    await harness.manager.load("m")

    assert harness.served("m").content == "second"
    assert harness.manager.live_models == [harness.served("m"), old]
    assert old.closed_with is None
    old.idle.set()
    await until_async(lambda: harness.manager.live_models == [harness.served("m")])
    assert isinstance(old.closed_with, Unavailable)
    assert harness.states("m") == {"1": ("READY", "")}


async def test_what_serves_goes_on_while_the_new_version_loads(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    harness.write("m", "second")
    harness.loader.gate.clear()

    loading = asyncio.create_task(harness.manager.load("m"))
    await until_async(lambda: harness.loader.running == 1)

    assert harness.served("m").content == "first"
    assert harness.states("m") == {"1": ("READY", "")}
    harness.loader.gate.set()
    await loading
    assert harness.served("m").content == "second"


async def test_a_failed_load_leaves_the_old_one_serving_and_says_why(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    harness.write("m", "broken")

    with pytest.raises(InvalidArg) as error:
        await harness.manager.load("m")

    assert str(error.value) == (
        "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: boom;\n"
    )
    assert harness.served("m").content == "first"
    assert harness.states("m") == {"1": ("READY", "")}
    assert harness.served("m").closed_with is None


async def test_all_versions_are_loaded_or_none(harness: Any) -> None:
    harness.write("m", config=ALL)
    harness.write("m", "broken", version=2, config=ALL)
    harness.write("m", "broken", version=3, config=ALL)

    with pytest.raises(InvalidArg) as error:
        await harness.manager.load("m")

    assert str(error.value) == (
        "load failed for model 'm': version 2 is at UNAVAILABLE state: Internal: boom;"
        "version 3 is at UNAVAILABLE state: Internal: boom;\n"
    )
    assert harness.states("m") == {
        "1": ("UNAVAILABLE", "unloaded"),
        "2": ("UNAVAILABLE", "Internal: boom"),
        "3": ("UNAVAILABLE", "Internal: boom"),
    }
    assert harness.loader.loaded[0].closed_with is not None
    with pytest.raises(NotFound, match="'m' has no available versions"):
        harness.served("m")


async def test_a_version_that_is_no_longer_there_is_taken_out(harness: Any) -> None:
    harness.write("m", config=ALL)
    harness.write("m", version=2, config=ALL)
    await harness.manager.load("m")
    first = harness.served("m", "1")
    first.idle.clear()
    (harness.root / "m/1/model.txt").unlink()
    (harness.root / "m/1").rmdir()

    await harness.manager.load("m")

    assert harness.states("m") == {"1": ("UNLOADING", ""), "2": ("READY", "")}
    with pytest.raises(Unavailable, match="'m' version 1 is not at ready state"):
        harness.served("m", "1")
    first.idle.set()
    await until_async(lambda: harness.states("m")["1"] == ("UNAVAILABLE", "unloaded"))


async def test_versions_that_have_not_changed_go_on_beside_a_new_one(harness: Any) -> None:
    harness.write("m", config=ALL)
    harness.write("m", version=2, config=ALL)
    await harness.manager.load("m")
    before = harness.served("m", "1"), harness.served("m", "2")

    harness.write("m", version=3, config=ALL)
    harness.write("m", "second", version=2, config=ALL)
    await harness.manager.load("m")

    assert harness.served("m", "1") is before[0]
    assert harness.served("m", "2").content == "second"
    assert harness.served("m").version == 3
    assert len(harness.loader.loaded) == 4
    assert before[0].closed_with is None


@pytest.mark.parametrize("change", ["a file of all versions", "the configuration", "a request", "a link"])
async def test_what_concerns_all_versions_loads_all_of_them(harness: Any, change: str) -> None:
    harness.write("m", config=ALL)
    harness.write("m", version=2, config=ALL)
    (harness.root / "m/1/weights").symlink_to(harness.root / "m/2")  # seen once, under either name
    await harness.manager.load("m")
    before = harness.served("m", "1")

    match change:
        case "a file of all versions":
            (harness.root / "m/labels.txt").write_text("cat")
        case "the configuration":
            harness.write("m", version=2, config=f"{ALL} max_batch_size: 4")
        case "a link":
            (harness.root / "m/2/weights").write_text("other")
    await harness.manager.load("m", force=change == "a request")

    assert harness.served("m", "1") is not before
    assert len(harness.loader.loaded) == 4


async def test_a_new_version_that_fails_leaves_those_that_serve_as_they_are(harness: Any) -> None:
    harness.write("m", config=ALL)
    await harness.manager.load("m")
    before = harness.served("m", "1")
    harness.write("m", "broken", version=2, config=ALL)

    with pytest.raises(InvalidArg, match="version 2 is at UNAVAILABLE state: Internal: boom"):
        await harness.manager.load("m")

    assert harness.served("m") is before
    assert before.closed_with is None
    assert harness.states("m") == {"1": ("READY", ""), "2": ("UNAVAILABLE", "Internal: boom")}


async def test_a_version_that_failed_is_forgotten_when_it_is_no_longer_there(harness: Any) -> None:
    harness.write("m", config=ALL)
    harness.write("m", "broken", version=2, config=ALL)
    with pytest.raises(InvalidArg):
        await harness.manager.load("m")
    (harness.root / "m/2/model.txt").unlink()
    (harness.root / "m/2").rmdir()

    await harness.manager.load("m")

    assert harness.states("m") == {"1": ("READY", "")}
    assert not list(harness.registry.unready())


async def test_unload_takes_a_model_out_at_once_and_closes_it_when_it_has_answered(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    model = harness.served("m")
    model.idle.clear()

    await harness.manager.unload("m")

    assert harness.states("m") == {"1": ("UNLOADING", "")}
    assert list(harness.registry.unready())
    assert model.closed_with is None
    model.idle.set()
    await until_async(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})
    assert model.closed_with is not None
    assert not list(harness.registry.unready())


async def test_a_model_can_be_loaded_again_while_its_last_requests_are_answered(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    old = harness.served("m")
    old.idle.clear()
    await harness.manager.unload("m")

    await harness.manager.load("m")
    old.idle.set()
    await until_async(lambda: old.closed_with is not None)

    assert harness.states("m") == {"1": ("READY", "")}
    assert harness.served("m") is not old


async def test_what_was_unloaded_is_freed_though_its_parts_refer_to_each_other(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    model = harness.served("m")
    model.itself = model
    freed = weakref.ref(model)
    harness.loader.loaded.clear()
    del model
    gc.disable()

    try:
        await harness.manager.unload("m")
        await until_async(lambda: freed() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["never heard of", "", "a/b", ".."])
async def test_unloading_what_is_not_loaded_is_no_error(harness: Any, name: str) -> None:
    await harness.manager.unload(name)

    assert harness.registry.index() == []


async def test_loads_of_one_model_run_one_after_the_other(harness: Any) -> None:
    harness.write("m")

    await asyncio.gather(*(harness.manager.load("m", force=True) for _ in range(5)))

    assert harness.loader.most_running == 1
    assert len(harness.loader.loaded) == 5
    assert harness.served("m") is harness.loader.loaded[4]


async def test_loads_of_different_models_do_not_wait_for_each_other(harness: Any) -> None:
    harness.write("one")
    harness.write("two")
    harness.loader.gate.clear()

    loads = [asyncio.create_task(harness.manager.load(name)) for name in ("one", "two")]
    await until_async(lambda: harness.loader.running == 2)

    harness.loader.gate.set()
    await asyncio.gather(*loads)


async def test_an_unload_comes_after_the_load_that_is_under_way(harness: Any) -> None:
    harness.write("m")
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m"))
    await until_async(lambda: harness.loader.running == 1)
    unloading = asyncio.create_task(harness.manager.unload("m"))
    await asyncio.sleep(0)

    harness.loader.gate.set()
    await loading
    await unloading

    await until_async(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})


async def test_unload_soon_waits_for_nothing(harness: Any) -> None:
    harness.write("m")
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m"))
    await until_async(lambda: harness.loader.running == 1)

    harness.manager.unload_soon("m")

    assert harness.states("m") == {"1": ("LOADING", "")}
    harness.loader.gate.set()
    await loading
    await until_async(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})


async def test_a_load_goes_on_when_whoever_asked_for_it_is_gone(harness: Any) -> None:
    harness.write("m")
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m"))
    await until_async(lambda: harness.loader.running == 1)

    loading.cancel()
    await asyncio.wait((loading,))
    harness.loader.gate.set()

    assert loading.cancelled()
    await until_async(lambda: harness.states("m") == {"1": ("READY", "")})


async def test_a_stopping_server_gives_up_its_loads_and_tells_who_waits(harness: Any) -> None:
    harness.write("m", config=ALL)
    harness.write("m", version=2, config=ALL)
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m"))
    await until_async(lambda: harness.loader.running == 2)

    await harness.manager.stop_loading()

    with pytest.raises(Unavailable, match="Server not ready"):
        await loading
    assert harness.loader.running == 0


async def test_what_was_loaded_before_its_load_was_given_up_is_closed(harness: Any) -> None:
    harness.write("m", config=ALL)
    harness.write("m", version=2, config=ALL)
    load = harness.loader.load

    async def second_takes_long(directory: Any, version: int, config: Any, **more: Any) -> Any:
        if version == 2:
            await asyncio.sleep(60)
        return await load(directory, version, config, **more)

    harness.loader.load = second_takes_long
    loading = asyncio.create_task(harness.manager.load("m"))
    await until_async(lambda: len(harness.loader.loaded) == 1)

    await harness.manager.stop_loading()
    await asyncio.wait((loading,))

    assert harness.loader.loaded[0].closed_with is not None


async def test_at_the_end_everything_is_closed_also_what_has_not_answered(harness: Any) -> None:
    harness.write("m")
    harness.write("other")
    await harness.manager.load("m")
    await harness.manager.load("other")
    old = harness.served("m")
    old.idle.clear()
    await harness.manager.load("m", force=True)

    await harness.manager.unload_all()

    assert all(isinstance(model.closed_with, Unavailable) for model in harness.loader.loaded)
    assert "Server is stopping" in str(old.closed_with)


@pytest.mark.parametrize("name", ["", " ", ".", "..", "../models/m", "m/1", "/", "m\0", ".hidden"])
async def test_names_that_lead_out_of_the_repository_are_refused(harness: Any, name: str) -> None:
    harness.write("m")
    harness.write(".hidden")

    text = "cannot be empty|path traversal characters|is no name of a model"
    with pytest.raises(InvalidArg, match=text):
        await harness.manager.load(name)
    with pytest.raises(InvalidArg, match=text):
        await harness.manager.load(name, '{"backend": "fake"}', {"file:1/model.txt": b"x"})


async def test_an_unknown_model_is_refused(harness: Any) -> None:
    with pytest.raises(Internal) as error:
        await harness.manager.load("nope")

    assert str(error.value) == (
        "failed to load 'nope', failed to poll from model repository: "
        "Not found: model 'nope' not found in any model repository"
    )
    assert harness.registry.index() == []
    assert not list(harness.registry.unready())


async def test_a_model_without_a_version_to_serve_is_refused_and_the_server_not_ready(harness: Any) -> None:
    (harness.root / "m").mkdir()
    (harness.root / "m/config.pbtxt").write_text('backend: "fake"')

    with pytest.raises(InvalidArg) as error:
        await harness.manager.load("m")

    assert str(error.value) == (
        "load failed for model 'm': "
        "at least one version must be available under the version policy of model 'm'\n"
    )
    assert list(harness.registry.unready())
    harness.write("m")
    await harness.manager.load("m")
    assert not list(harness.registry.unready())


# What comes with a load request.
