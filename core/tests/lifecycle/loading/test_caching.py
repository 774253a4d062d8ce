"""Which models get the cache, and what tells their answers from those of other loads."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.cache.response_cache import ResponseCache
from tritonpy.errors import Internal, InvalidArg
from tritonpy.handles import Backend, Model, OpLibrary
from tritonpy.lifecycle.loading.caching import (
    check_cached_steps,
    content_digest,
    generation_of,
    generation_of_ensemble,
    with_cache,
)
from tritonpy.plugin import hookimpl
from tritonpy.plugin_manager import bind_object
from tritonpy.request import InferRequest
from tritonpy.scheduler.cached import CachedScheduler
from tritonpy.scheduler.direct import DirectPolicy
from tritonpy.scheduler.ordering import ResponseOrder
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.stats import ModelStats

FILES = {
    "config.pbtxt": "name: 'm'",
    "labels.txt": "cat",
    "1/model.py": "print(1)",
    "1/weights/w.bin": "1234",
    "2/model.py": "print(2)",
    "configs/small.pbtxt": "name: 'm'",
}
CONFIG: dict[str, Any] = {
    "name": "m",
    "response_cache": {"enable": True},
    "parameters": {"a": {"string_value": "1"}},
    "instance_group": [{"count": 1}],
}


class Recorder:
    """A cache that has nothing and remembers the keys."""

    def __init__(self, is_shared: bool = False) -> None:
        self.keys: list[str] = []
        self._is_shared = is_shared

    @hookimpl
    def cache_initialize(self, cache: Any) -> None:
        cache.is_shared = self._is_shared

    @hookimpl
    def cache_lookup(self, key: str) -> None:
        self.keys.append(key)

    @hookimpl
    def cache_insert(self, key: str, entry: bytes) -> None:
        pass


def model(directory: Path, config: dict[str, Any] = CONFIG) -> Model:
    for path, text in FILES.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    return Model("m", 1, config, directory, Backend("b", {}))


async def opened(plugin: Recorder) -> ResponseCache:
    cache = ResponseCache("it", {}, lambda name: bind_object("caches", plugin, name), 1)
    await cache.open()
    return cache


async def test_a_model_that_does_not_want_it_keeps_its_scheduler(tmp_path: Path) -> None:
    scheduler, stats = Scheduler(DirectPolicy(), ModelStats()), ModelStats()
    cache = await opened(Recorder())

    for config in ({}, {"response_cache": {"enable": False}}):
        assert with_cache(scheduler, model(tmp_path, config), stats, cache, b"") is scheduler
    assert not stats.is_cached


async def test_without_a_cache_of_the_server_a_wish_is_told_of_and_counted_as_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler, stats = Scheduler(DirectPolicy(), ModelStats()), ModelStats()

    assert with_cache(scheduler, model(tmp_path), stats, None, b"") is scheduler
    assert stats.is_cached  # it has the metrics of one that is, as in Triton
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (
            logging.WARNING,
            "model 'm' wants its responses cached, but the server has no cache: see --cache-config",
        )
    ]


async def test_the_line_of_responses_goes_to_the_front(tmp_path: Path) -> None:
    scheduler, stats = Scheduler(DirectPolicy(), ModelStats(), order=ResponseOrder()), ModelStats()
    cached = with_cache(scheduler, model(tmp_path), stats, await opened(Recorder()), b"")

    assert isinstance(cached, CachedScheduler)
    assert cached.scheduler is scheduler
    assert scheduler.give_up_order() is None
    assert stats.is_cached


@pytest.mark.parametrize("is_shared", [False, True])
async def test_two_loads_of_the_same_files_share_entries_only_where_servers_do(
    tmp_path: Path, is_shared: bool
) -> None:
    plugin = Recorder(is_shared)
    cache = await opened(plugin)
    for directory in ("one", "other"):
        handle = model(tmp_path / directory)
        scheduler = Scheduler(DirectPolicy(), ModelStats())
        generation = await generation_of(handle, cache)
        with_cache(scheduler, handle, ModelStats(), cache, generation).enqueue(InferRequest("m", {}))

    assert (plugin.keys[0] == plugin.keys[1]) == is_shared


@pytest.mark.parametrize(
    ("path", "text"),
    [("1/model.py", "print(3)"), ("1/weights/w.bin", "1235"), ("1/new", ""), ("labels.txt", "")],
)
def test_a_model_of_other_files_is_another_one(tmp_path: Path, path: str, text: str) -> None:
    handle = model(tmp_path)
    before = content_digest(handle)
    (tmp_path / path).write_text(text)

    assert content_digest(handle) != before


@pytest.mark.parametrize("path", ["2/model.py", "config.pbtxt", "configs/small.pbtxt", "1/__pycache__/m.pyc"])
def test_what_does_not_belong_to_the_version_makes_no_difference(tmp_path: Path, path: str) -> None:
    handle = model(tmp_path)
    before = content_digest(handle)
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("other")
    for touched in tmp_path.rglob("*"):
        os.utime(touched, (1, 1))

    assert content_digest(handle) == before


def test_contents_do_not_move_from_one_file_to_another(tmp_path: Path) -> None:
    handle = model(tmp_path)
    (tmp_path / "1/a").write_text("xy")
    (tmp_path / "1/b").write_text("")
    before = content_digest(handle)
    (tmp_path / "1/a").write_text("x")
    (tmp_path / "1/b").write_text("y")

    assert content_digest(handle) != before


def test_the_configuration_belongs_to_the_model_but_for_what_answers_do_not_depend_on(tmp_path: Path) -> None:
    before = content_digest(model(tmp_path))

    assert content_digest(model(tmp_path, CONFIG | {"instance_group": [{"count": 2}]})) == before
    assert content_digest(model(tmp_path, CONFIG | {"parameters": {"a": {"string_value": "2"}}})) != before


def test_the_operators_of_plugins_belong_to_the_model(tmp_path: Path) -> None:
    handle, library = model(tmp_path / "m"), tmp_path / "ops.so"
    digests = {content_digest(handle)}
    handle.plugin_op_libraries = [OpLibrary(library, "a plugin")]

    for content in ("first", "second"):
        library.write_text(content)
        digests.add(content_digest(handle))

    assert len(digests) == 3


def test_neither_a_pipe_nor_a_link_to_nowhere_holds_a_digest_up(tmp_path: Path) -> None:
    handle = model(tmp_path)
    before = content_digest(handle)
    os.mkfifo(tmp_path / "1/pipe")
    (tmp_path / "1/link").symlink_to("nowhere")

    assert content_digest(handle) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_that_cannot_be_read_fails_the_load_with_its_reason(tmp_path: Path) -> None:
    handle = model(tmp_path)
    (tmp_path / "1/model.py").chmod(0)

    with pytest.raises(Internal, match="model 'm': a file cannot be read"):
        await generation_of(handle, await opened(Recorder(is_shared=True)))


def step(generation: bytes = b"1", config: dict[str, Any] | None = None, steps: Any = ()) -> Any:
    is_decoupled = (config or {}).get("model_transaction_policy", {}).get("decoupled", False)
    return SimpleNamespace(
        name="step", generation=generation, config=config or {}, is_decoupled=is_decoupled, steps=steps
    )


def test_an_ensemble_is_its_configuration_and_its_models(tmp_path: Path) -> None:
    one, other = model(tmp_path), model(tmp_path, CONFIG | {"max_batch_size": 3})

    generations = {
        generation_of_ensemble(one, [step(b"1"), step(b"2")]),
        generation_of_ensemble(one, [step(b"2"), step(b"1")]),
        generation_of_ensemble(one, [step(b"1"), step(b"3")]),
        generation_of_ensemble(other, [step(b"1"), step(b"2")]),
    }

    assert len(generations) == 4
    assert generation_of_ensemble(one, [step(b"1"), step(b"2")]) in generations


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        ({"sequence_batching": {}}, "sequence batching scheduler"),
        ({"model_transaction_policy": {"decoupled": True}}, "'decoupled' transaction policy"),
    ],
)
def test_an_ensemble_of_what_cannot_be_cached_is_refused(
    tmp_path: Path, config: dict[str, Any], cause: str
) -> None:
    handle = model(tmp_path)
    for steps in ([step(), step(config=config)], [step(steps=[step(config=config)])]):
        with pytest.raises(InvalidArg, match=f"does not currently support model m with {cause}"):
            check_cached_steps(handle, steps)

    check_cached_steps(handle, [step()])
    check_cached_steps(model(tmp_path, {}), [step(config=config)])
