from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tritonpy.errors import ErrorCode, InvalidArg, TritonError, Unavailable
from tritonpy.lifecycle.model_control import ModelControl, WorkerModelControl
from tritonpy.workers.worker_services import Caller
from tritonpy_sdk.testing import until_async


def serving(harness: Any, *, is_explicit: bool = True) -> ModelControl:
    control = ModelControl(harness.manager, is_explicit=is_explicit)
    control.set_serving(True)
    return control


@pytest.mark.parametrize("name", ["m", "nope"])
async def test_only_the_explicit_mode_loads_and_unloads_on_request(harness: Any, name: str) -> None:
    harness.write("m")
    control = serving(harness, is_explicit=False)
    words = "^explicit model load / unload is not allowed if polling is enabled$"

    with pytest.raises(Unavailable, match=words):
        await control.load(name)
    with pytest.raises(Unavailable, match=words):
        await control.unload(name)
    with pytest.raises(Unavailable, match=words):
        control.unload_soon(name)
    assert harness.loader.loaded == []


async def test_a_server_that_starts_or_stops_loads_nothing_on_request(harness: Any) -> None:
    harness.write("m")
    control = ModelControl(harness.manager, is_explicit=True)

    with pytest.raises(Unavailable, match=r"^Server not ready$"):
        await control.load("m")
    control.set_serving(True)
    await control.load("m")
    control.set_serving(False)
    with pytest.raises(Unavailable, match=r"^Server not ready$"):
        await control.unload("m")


async def test_only_so_many_requests_are_taken_at_once(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonpy.lifecycle.model_control.MOST_REQUESTS", 2)
    harness.write("m")
    control = serving(harness)
    harness.loader.gate.clear()
    loads = [asyncio.create_task(control.load("m")) for _ in range(2)]
    await until_async(lambda: harness.loader.running == 1)

    with pytest.raises(Unavailable, match=r"^2 requests .* no more than 2 .* ask again for 'other'"):
        await control.load("other")
    with pytest.raises(Unavailable, match="ask again for 'm'"):
        await control.unload("m")
    harness.loader.gate.set()
    await asyncio.gather(*loads)

    await control.unload("m")


async def test_the_index_has_what_was_loaded_and_the_names_of_what_was_not(harness: Any) -> None:
    for name in ("b", "a", "c"):
        harness.write(name)
    control = serving(harness)
    await control.load("b")
    await control.load("sent", '{"backend": "fake"}', {"file:2/model.txt": b"x"})

    assert await control.index() == [
        {"name": "a"},
        {"name": "b", "version": "1", "state": "READY"},
        {"name": "c"},
        {"name": "sent", "version": "2", "state": "READY"},
    ]
    assert await control.index(ready=True) == [
        {"name": "b", "version": "1", "state": "READY"},
        {"name": "sent", "version": "2", "state": "READY"},
    ]


# Models that ask.

CALLER = Caller("asker", 1, "asker_0", is_loading=False)


async def test_a_model_loads_asks_and_unloads(harness: Any) -> None:
    harness.write("m")
    worker = WorkerModelControl(serving(harness))

    assert await worker.ask(CALLER, "ready", ("m", "")) is False
    assert await worker.ask(CALLER, "load", ("m", None, None, False)) is None
    assert await worker.ask(CALLER, "ready", ("m", "1")) is True
    assert await worker.ask(CALLER, "ready", ("m", "2")) is False
    assert await worker.ask(CALLER, "unload", ("m", False)) is None
    assert await worker.ask(CALLER, "ready", ("m", "")) is False
    await until_async(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})


async def test_what_is_refused_names_the_asking_instance(harness: Any) -> None:
    worker = WorkerModelControl(serving(harness))

    with pytest.raises(TritonError) as error:
        await worker.ask(CALLER, "ready", ("m", "x"))

    assert error.value.code is ErrorCode.INVALID_ARG
    assert str(error.value).startswith(
        "Failed to process the request for model 'asker_0', message: failed to get model version from"
    )


async def test_an_unknown_question_is_refused(harness: Any) -> None:
    worker = WorkerModelControl(serving(harness))

    with pytest.raises(TritonError, match=r"does not answer 'models\.paint'"):
        await worker.ask(CALLER, "paint", ())


async def test_nothing_is_answered_before_the_server_has_started(harness: Any) -> None:
    worker = WorkerModelControl(ModelControl(harness.manager, is_explicit=True))

    for what, args in (
        ("load", ("m", None, None, True)),
        ("unload", ("m", False)),
        ("ready", ("m", "")),
    ):
        with pytest.raises(TritonError, match=r"message: Server not ready$"):
            await worker.ask(CALLER, what, args)


async def test_an_unload_is_answered_though_a_load_of_the_model_is_under_way(harness: Any) -> None:
    harness.write("m")
    worker = WorkerModelControl(serving(harness))
    harness.loader.gate.clear()
    loading = asyncio.create_task(worker.ask(CALLER, "load", ("m", None, None, False)))
    await until_async(lambda: harness.loader.running == 1)

    async with asyncio.timeout(20):
        await worker.ask(CALLER, "unload", ("m", False))

    harness.loader.gate.set()
    await loading
    await until_async(lambda: harness.states("m") == {"1": ("UNAVAILABLE", "unloaded")})


class Initializing:
    """A load that, like a model's `initialize`, asks for another load before it is done."""

    def __init__(self, harness: Any, worker: WorkerModelControl) -> None:
        self.wants: dict[str, str] = {}
        self.errors: dict[str, TritonError] = {}
        self._load = harness.loader.load
        self._worker = worker
        harness.loader.load = self.load

    async def load(self, directory: Any, version: int, config: Any, **more: Any) -> Any:
        name = directory.name
        if name in self.wants:
            caller = Caller(name, version, f"{name}_0")
            try:
                await self._worker.ask(caller, "load", (self.wants[name], None, None, True))
            except TritonError as error:
                self.errors[name] = error
                raise
        return await self._load(directory, version, config, **more)


async def test_a_model_may_have_others_loaded_while_it_is_loaded(harness: Any) -> None:
    for name in "abc":
        harness.write(name)
    worker = WorkerModelControl(serving(harness))
    Initializing(harness, worker).wants = {"a": "b", "b": "c"}

    async with asyncio.timeout(20):
        await harness.manager.load("a")

    assert [model.name for model in harness.loader.loaded] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("wants", "refused", "way"),
    [
        ({"a": "a"}, "a", "a -> a"),
        ({"a": "b", "b": "a"}, "b", "b -> a -> b"),
        ({"a": "b", "b": "c", "c": "b"}, "c", "c -> b -> c"),
    ],
)
async def test_models_that_would_wait_for_each_other_for_ever_are_told_so(
    harness: Any, wants: dict[str, str], refused: str, way: str
) -> None:
    for name in "abc":
        harness.write(name)
    worker = WorkerModelControl(serving(harness))
    initializing = Initializing(harness, worker)
    initializing.wants = wants

    async with asyncio.timeout(20):
        with pytest.raises(InvalidArg, match="load failed for model 'a'"):
            await harness.manager.load("a")

    assert str(initializing.errors[refused]).endswith(way)


async def test_two_loads_that_begin_apart_do_not_wait_for_each_other_for_ever(harness: Any) -> None:
    harness.write("a")
    harness.write("b")
    worker = WorkerModelControl(serving(harness))
    Initializing(harness, worker).wants = {"a": "b", "b": "a"}

    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(
            harness.manager.load("a"), harness.manager.load("b"), return_exceptions=True
        )

    assert any(isinstance(outcome, InvalidArg) for outcome in outcomes)
