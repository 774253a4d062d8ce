"""Starts with a cache that cannot be, and models that cannot be cached; a stand-in for shared objects."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy.plugin import hookimpl
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options

IDENTITY: dict[str, Any] = {
    "backend": "identity",
    "max_batch_size": 4,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "response_cache": {"enable": True},
}

Corectl = Callable[..., Any]


def options(models: ModelRepository, *cache: tuple[str, str, str], **settings: Any) -> ServerOptions:
    return local_options(models.path, cache_config=cache, allow_grpc=False, allow_metrics=False, **settings)


def ask(server: Server, value: float = 1.0) -> list[float]:
    tensor = httpclient.InferInput("INPUT0", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.full((1, 1), value, np.float32))
    client = httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    try:
        answer: list[float] = client.infer("m", [tensor]).as_numpy("OUTPUT0")[0].tolist()
        return answer
    finally:
        client.close()


@pytest.fixture
def models(tmp_path: Path) -> ModelRepository:
    repository = ModelRepository(tmp_path / "models")
    repository.model("m", IDENTITY)
    return repository


@pytest.mark.parametrize(
    ("cache", "text"),
    [
        ((("nope", "size", "1"),), "unable to find 'libtritoncache_nope.so' for cache. Searched: "),
        (
            (("local", "foo", "1"),),
            "Failed to initialize LocalCache: config didn't contain a valid 'size' field",
        ),
        (
            (("local", "size", "1"), ("other", "size", "1")),
            "found multiple cache configurations, but only a single cache is currently supported",
        ),
    ],
)
def test_a_cache_that_cannot_be_ends_the_start(
    models: ModelRepository, cache: tuple[tuple[str, str, str], ...], text: str
) -> None:
    with pytest.raises(InvalidArg, match=text), Server(options(models, *cache)):
        pass


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        ({"sequence_batching": {}}, "sequence batching scheduler"),
        ({"model_transaction_policy": {"decoupled": True}}, "'decoupled' transaction policy"),
    ],
)
def test_what_cannot_be_cached_is_not_loaded(
    models: ModelRepository, setting: dict[str, Any], cause: str
) -> None:
    models.model("odd", IDENTITY | setting)
    cache = ("local", "size", "65536")
    with Server(options(models, cache, model_control_mode="explicit", load_models=("m",))) as server:
        client = httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}")
        with pytest.raises(InferenceServerException) as error:
            client.load_model("odd")
        client.close()

    assert f"Response Cache does not currently support model odd with {cause}." in str(error.value)


class Slow:
    """A cache that keeps those who ask it waiting until the test lets them go."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.gate = threading.Event()

    @hookimpl
    async def cache_lookup(self, key: str) -> None:
        self.asked.set()
        while not self.gate.is_set():  # noqa: ASYNC110 (the test is on another thread)
            await asyncio.sleep(0.001)

    @hookimpl
    async def cache_insert(self, key: str, entry: bytes) -> None:
        pass


def test_a_model_is_unloaded_after_those_whom_the_cache_keeps_waiting(models: ModelRepository) -> None:
    slow = Slow()
    settings = options(
        models,
        ("slow", "a", "b"),
        cache_timeout_ms=20_000,
        model_control_mode="explicit",
        load_models=("m",),
    )
    with Server(settings, plugins={"caches": {"slow": slow}}) as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server)
        assert slow.asked.wait(30)
        client = httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}")
        client.unload_model("m")
        assert not client.is_model_ready("m")
        assert not answer.done()
        slow.gate.set()

        assert answer.result(30) == [1.0]
        client.close()


def test_the_end_of_the_server_waits_for_them_too(models: ModelRepository) -> None:
    slow = Slow()
    settings = options(models, ("slow", "a", "b"), cache_timeout_ms=20_000)
    with ThreadPoolExecutor(2) as pool:
        with Server(settings, plugins={"caches": {"slow": slow}}) as server:
            answer = pool.submit(ask, server)
            assert slow.asked.wait(30)
            pool.submit(lambda: (time.sleep(0.2), slow.gate.set()))
        assert answer.result(30) == [1.0]


def test_those_who_wait_longer_than_the_server_does_are_answered(models: ModelRepository) -> None:
    slow = Slow()
    settings = options(models, ("slow", "a", "b"), cache_timeout_ms=20_000, exit_timeout_s=0)
    with ThreadPoolExecutor(1) as pool:
        with Server(settings, plugins={"caches": {"slow": slow}}) as server:
            answer = pool.submit(ask, server)
            assert slow.asked.wait(30)
            answer.add_done_callback(lambda _: slow.gate.set())  # not before: its model would answer
        with pytest.raises(InferenceServerException):
            answer.result(30)


def test_a_shared_object_is_used_through_an_installed_loader(models: ModelRepository, tmp_path: Path) -> None:
    (tmp_path / "caches/mine").mkdir(parents=True)
    (tmp_path / "caches/mine/libtritoncache_mine.so").touch()
    entries: dict[str, bytes] = {}
    stand_in = SimpleNamespace(
        cache_lookup=hookimpl(lambda key: entries.get(key)),
        cache_insert=hookimpl(lambda key, entry: entries.setdefault(key, entry)),
    )
    loader = SimpleNamespace(load_shared_object=hookimpl(lambda kind: stand_in if kind == "caches" else None))
    settings = options(
        models,
        ("mine", "a", "b"),
        cache_directory=str(tmp_path / "caches"),
        disabled_plugins=(("loaders", "abi"),),  # it would be asked first
    )
    with Server(settings, plugins={"loaders": {"stand_in": loader}}) as server:
        assert [ask(server), ask(server), ask(server, 2.0)] == [[1.0], [1.0], [2.0]]

    assert [key.rpartition(":")[0] for key in entries] == ["m:1", "m:1"]


def test_the_log_tells_why_a_start_with_a_wrong_cache_failed(
    corectl: Corectl, models: ModelRepository
) -> None:
    server = corectl(f"--model-repository={models.path}", "--cache-config=nope,size=1", awaited=0)

    assert server.wait() == 1
    assert "error: creating server: Invalid argument - unable to find 'libtritoncache_nope.so'" in server.log


def test_the_table_of_options_shows_that_there_is_a_cache(corectl: Corectl, models: ModelRepository) -> None:
    server = corectl(f"--model-repository={models.path}", "--cache-config=local,size=65536")
    url = f"http://127.0.0.1:{server.ports['Metrics Service']}/metrics"
    with urllib.request.urlopen(url, timeout=30) as page:
        assert "nv_cache_num_lookups 0" in page.read().decode()

    assert server.stop() == 0
    assert any(line.split()[:4] == ["|", "cache_enabled", "|", "1"] for line in server.lines)
