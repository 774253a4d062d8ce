from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.repository.key import ModelKey

Until = Callable[[Callable[[], bool]], Any]

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


async def test_a_changed_model_replaces_the_old_one_which_answers_before_it_is_closed(
    harness: Any, until: Until
) -> None:
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
    await until(lambda: harness.manager.live_models == [harness.served("m")])
    assert isinstance(old.closed_with, Unavailable)
    assert harness.states("m") == {"1": ("READY", "")}


async def test_what_serves_goes_on_while_the_new_version_loads(harness: Any, until: Until) -> None:
    harness.write("m")
    await harness.manager.load("m")
    harness.write("m", "second")
    harness.loader.gate.clear()

    loading = asyncio.create_task(harness.manager.load("m"))
    await until(lambda: harness.loader.running == 1)

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


async def test_a_version_that_is_no_longer_there_is_taken_out(harness: Any, until: Until) -> None:
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
    await until(lambda: harness.states("m")["1"] == ("UNAVAILABLE", "unloaded"))


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


async def test_unload_takes_a_model_out_at_once_and_closes_it_when_it_has_answered(
    harness: Any, until: Until
) -> None:
    harness.write("m")
    await harness.manager.load("m")
    model = harness.served("m")
    model.idle.clear()

    await harness.manager.unload("m")

    assert harness.states("m") == {"1": ("UNLOADING", "")}
    assert list(harness.registry.unready())
    assert model.closed_with is None
    model.idle.set()
    await until(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})
    assert model.closed_with is not None
    assert not list(harness.registry.unready())


async def test_a_model_can_be_loaded_again_while_its_last_requests_are_answered(
    harness: Any, until: Until
) -> None:
    harness.write("m")
    await harness.manager.load("m")
    old = harness.served("m")
    old.idle.clear()
    await harness.manager.unload("m")

    await harness.manager.load("m")
    old.idle.set()
    await until(lambda: old.closed_with is not None)

    assert harness.states("m") == {"1": ("READY", "")}
    assert harness.served("m") is not old


async def test_what_was_unloaded_is_freed_though_its_parts_refer_to_each_other(
    harness: Any, until: Until
) -> None:
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
        await until(lambda: freed() is None)
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


async def test_loads_of_different_models_do_not_wait_for_each_other(harness: Any, until: Until) -> None:
    harness.write("one")
    harness.write("two")
    harness.loader.gate.clear()

    loads = [asyncio.create_task(harness.manager.load(name)) for name in ("one", "two")]
    await until(lambda: harness.loader.running == 2)

    harness.loader.gate.set()
    await asyncio.gather(*loads)


async def test_an_unload_comes_after_the_load_that_is_under_way(harness: Any, until: Until) -> None:
    harness.write("m")
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m"))
    await until(lambda: harness.loader.running == 1)
    unloading = asyncio.create_task(harness.manager.unload("m"))
    await asyncio.sleep(0)

    harness.loader.gate.set()
    await loading
    await unloading

    await until(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})


async def test_unload_soon_waits_for_nothing(harness: Any, until: Until) -> None:
    harness.write("m")
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m"))
    await until(lambda: harness.loader.running == 1)

    harness.manager.unload_soon("m")

    assert harness.states("m") == {"1": ("LOADING", "")}
    harness.loader.gate.set()
    await loading
    await until(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})


async def test_a_load_goes_on_when_whoever_asked_for_it_is_gone(harness: Any, until: Until) -> None:
    harness.write("m")
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m"))
    await until(lambda: harness.loader.running == 1)

    loading.cancel()
    await asyncio.wait((loading,))
    harness.loader.gate.set()

    assert loading.cancelled()
    await until(lambda: harness.states("m") == {"1": ("READY", "")})


async def test_a_stopping_server_gives_up_its_loads_and_tells_who_waits(harness: Any, until: Until) -> None:
    harness.write("m", config=ALL)
    harness.write("m", version=2, config=ALL)
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m"))
    await until(lambda: harness.loader.running == 2)

    await harness.manager.stop_loading()

    with pytest.raises(Unavailable, match="Server not ready"):
        await loading
    assert harness.loader.running == 0


async def test_what_was_loaded_before_its_load_was_given_up_is_closed(harness: Any, until: Until) -> None:
    harness.write("m", config=ALL)
    harness.write("m", version=2, config=ALL)
    load = harness.loader.load

    async def second_takes_long(directory: Any, version: int, config: Any, **more: Any) -> Any:
        if version == 2:
            await asyncio.sleep(60)
        return await load(directory, version, config, **more)

    harness.loader.load = second_takes_long
    loading = asyncio.create_task(harness.manager.load("m"))
    await until(lambda: len(harness.loader.loaded) == 1)

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


@pytest.mark.parametrize("name", ["", ".", "..", "../models/m", "m/1", "/", "m\0", ".hidden"])
async def test_names_that_lead_out_of_the_repository_are_refused(harness: Any, name: str) -> None:
    harness.write("m")
    harness.write(".hidden")

    with pytest.raises(Internal, match="is no name of a model") as error:
        await harness.manager.load(name)

    assert str(error.value).startswith(f"failed to load '{name}', failed to poll from model repository")
    with pytest.raises(Internal, match="is no name of a model"):
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


def is_there(path: Path) -> bool:
    return path.exists()


def config(**fields: object) -> str:
    return json.dumps({"backend": "fake", **fields})


async def test_a_configuration_of_the_request_stands_in_for_the_file_until_the_files_change(
    harness: Any,
) -> None:
    harness.write("m")
    harness.write("m", version=2)

    await harness.manager.load("m", config(version_policy={"specific": {"versions": [1]}}))
    assert list(harness.states("m")) == ["1"]
    assert harness.served("m").is_override
    await harness.manager.load("m")
    assert harness.served("m").version == 1  # kept, because nothing has changed
    harness.write("m", "second", version=2)
    await harness.manager.load("m")

    assert harness.served("m").version == 2
    assert not harness.served("m").is_override


async def test_a_forced_load_drops_the_configuration_of_an_earlier_request(harness: Any) -> None:
    harness.write("m")
    harness.write("m", version=2)
    await harness.manager.load("m", config(version_policy={"specific": {"versions": [1]}}))

    await harness.manager.load("m", force=True)

    assert harness.served("m").version == 2


async def test_the_same_configuration_again_changes_nothing(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m", config())

    await harness.manager.load("m", config())
    await harness.manager.load("m", config(max_batch_size=4))

    assert len(harness.loader.loaded) == 2


async def test_an_unload_forgets_the_configuration_of_the_request(harness: Any) -> None:
    harness.write("m")
    harness.write("m", version=2)
    await harness.manager.load("m", config(version_policy={"specific": {"versions": [1]}}))
    await harness.manager.unload("m")

    await harness.manager.load("m")

    assert harness.served("m").version == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not JSON"),
        ("{bad", "is not JSON"),
        ("[]", "expected an object"),
        ('{"nonsense": 1}', "no field is called 'nonsense'"),
        ('{"name": "other", "backend": "fake"}', "unexpected directory name 'm' for model 'other'"),
    ],
)
async def test_a_bad_configuration_is_refused_and_the_old_one_serves(
    harness: Any, text: str, problem: str
) -> None:
    harness.write("m")
    await harness.manager.load("m")

    with pytest.raises(Internal, match="failed to poll from model repository") as error:
        await harness.manager.load("m", text)

    assert problem in str(error.value)
    assert harness.served("m").content == "first"


async def test_files_of_the_request_are_all_there_is_and_go_when_the_model_is_unloaded(
    harness: Any, until: Until
) -> None:
    harness.write("m", version=1)
    files = {"file:3/model.txt": b"sent", "file:3/deep/er.bin": b"\0", "file:note.txt": b"hello"}

    await harness.manager.load("m", config(), files)

    model = harness.served("m")
    directory: Path = model.path
    assert (model.version, model.content) == (3, "sent")
    assert (directory / "3/deep/er.bin").read_bytes() == b"\0"
    assert (directory / "note.txt").read_bytes() == b"hello"
    assert directory.name == "m"
    assert model.is_override
    model.idle.clear()
    await harness.manager.unload("m")
    await asyncio.sleep(0)
    assert model.closed_with is None  # a request is still under way
    assert is_there(directory)
    model.idle.set()
    await until(lambda: not directory.parent.exists())


async def test_a_plain_load_goes_back_to_the_repository(harness: Any, until: Until) -> None:
    harness.write("m")
    await harness.manager.load("m", config(), {"file:1/model.txt": b"sent"})
    directory = harness.served("m").path

    await harness.manager.load("m")

    assert harness.served("m").content == "first"
    await until(lambda: not directory.parent.exists())


async def test_files_of_a_load_that_fails_are_removed(harness: Any) -> None:
    paths = []
    load = harness.loader.load

    async def noting_the_path(directory: Any, version: int, config: Any, **more: Any) -> Any:
        paths.append(directory.path.parent)
        return await load(directory, version, config, **more)

    harness.loader.load = noting_the_path

    with pytest.raises(InvalidArg, match="Internal: boom"):
        await harness.manager.load("m", config(), {"file:1/model.txt": b"broken"})

    assert len(paths) == 1
    assert not paths[0].exists()


async def test_files_are_removed_when_the_server_stops(harness: Any) -> None:
    await harness.manager.load("m", config(), {"file:1/model.txt": b"sent"})
    directory = harness.served("m").path

    await harness.manager.unload_all()

    assert not directory.parent.exists()


# At the start.


async def test_all_models_are_loaded_and_refusals_told(harness: Any) -> None:
    harness.write("good")
    harness.write("bad", "broken")
    (harness.root / "worse").mkdir()
    (harness.root / "worse/config.pbtxt").write_text("nonsense: 1")

    assert not await harness.manager.load_all()

    assert harness.states("good") == {"1": ("READY", "")}
    assert harness.states("bad") == {"1": ("UNAVAILABLE", "Internal: boom")}
    assert "nonsense" in harness.registry.refusals[ModelKey("worse")]
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


async def reloaded(harness: Any, name: str) -> list[str]:
    """What a reload of a model that is wanted loads."""
    before = len(harness.loader.loaded)
    harness.manager.reload_soon(harness.found(name), only_wanted=True)
    await harness.manager.unload("none")  # some turns of the loop later
    async with harness.manager._turns.lock(name):  # and when the reload is over
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


async def test_a_model_unloaded_before_its_reload_begins_is_not_reloaded(harness: Any, until: Until) -> None:
    harness.write("m")
    await harness.manager.load("m")
    harness.loader.gate.clear()
    loading = asyncio.create_task(harness.manager.load("m", force=True))
    await until(lambda: harness.loader.running == 1)
    harness.write("m", "second")
    unloading = asyncio.create_task(harness.manager.unload("m"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    harness.manager.reload_soon(harness.found("m"), only_wanted=True)
    harness.loader.gate.set()
    await asyncio.gather(loading, unloading)
    async with harness.manager._turns.lock("m"):
        assert [model.content for model in harness.loader.loaded] == ["first", "second"]
    await until(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})
    assert len(harness.loader.loaded) == 2


async def test_a_model_made_of_sent_files_does_not_follow_the_repository(harness: Any) -> None:
    harness.write("m")
    await harness.manager.load("m")
    await harness.manager.load("m", config(), {"file:1/model.txt": b"sent"})
    harness.write("m", "second")

    assert await reloaded(harness, "m") == []


async def test_where_everything_is_loaded_new_models_are_loaded_too(harness: Any, until: Until) -> None:
    await harness.manager.load_all()
    harness.write("new")

    harness.manager.reload_soon(harness.found("new"), only_wanted=False)

    await until(lambda: harness.states("new") == {"1": ("READY", "")})


async def test_a_changed_model_is_reloaded_in_the_background(
    harness: Any, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tritonpy.repository")
    harness.write("m")
    await harness.manager.load("m")
    harness.write("m", "second")

    harness.manager.reload_soon(harness.found("m"), only_wanted=True)
    await until(lambda: harness.served("m").content == "second")
    await until(lambda: "reloaded 'm', whose files have changed" in caplog.text)


async def test_a_broken_change_leaves_the_old_one_serving_with_a_line_in_the_log(
    harness: Any, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    harness.write("m")
    await harness.manager.load("m")
    harness.write("m", "broken")

    harness.manager.reload_soon(harness.found("m"), only_wanted=True)
    await until(lambda: "what was loaded before goes on serving" in caplog.text)

    assert "failed to load 'm' version 1: Internal: boom" in caplog.text
    assert harness.served("m").content == "first"


# What nobody has thought of.


@pytest.fixture
def odd(harness: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model whose files the system cannot read, for a reason of its own; and another one beside it."""
    harness.write("odd")
    harness.write("other")
    preparation = harness.manager._preparation
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
