from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tritonpy.errors import Unavailable
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents
from tritonpy.lifecycle.load import ModelLoad
from tritonpy.lifecycle.loading.settings import LoaderSettings
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.lifecycle.replacement import Replacement
from tritonpy.plugin import hookimpl
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.layout import ModelKey, read_model
from tritonpy.repository.source import ModelSource

from core.tests.lifecycle.conftest import FakeLoader

AGENT = "model_repository_agents { agents { name: 'slow' } }"


class Watch(logging.Handler):
    """Lets work go on when the log has a text."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._waiting: dict[str, threading.Event] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        for text, event in list(self._waiting.items()):  # a thread may begin to wait meanwhile
            if text in self.texts[-1]:
                event.set()

    def wait_for(self, text: str) -> None:
        assert self._waiting.setdefault(text, threading.Event()).wait(20), text


class SlowAgent:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    @hookimpl
    def repo_agent_model_action(self, action: str) -> None:
        if action == "LOAD":
            self._watch.wait_for("now in repository agents")


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> Iterator[Watch]:
    watch = Watch()
    log = logging.getLogger("tritonpy.repository")
    log.addHandler(watch)
    with caplog.at_level(logging.INFO, log.name):
        yield watch
    log.removeHandler(watch)


def preparation(watch: Watch, interval_s: float) -> ModelLoad:
    agents = PluginManager("repo_agents", discover=False)
    agents.register("slow", SlowAgent(watch))
    registry, settings = ModelRegistry(), LoaderSettings()
    return ModelLoad(
        registry,
        Replacement(registry, settings),
        FakeLoader(),  # type: ignore[arg-type]
        RepositoryAgents(agents, PluginManager("loaders", discover=False), ""),
        auto_complete_config=True,
        progress_interval_s=interval_s,
    )


def source(path: Path, config: str = "") -> ModelSource:
    (path / "1").mkdir(parents=True)
    (path / "config.pbtxt").write_text(f"backend: 'identity' {config}")
    return ModelSource(ModelKey(path.name), read_model(path), frozenset(), str(path.parent))


async def test_files_and_agents_that_take_long_are_told_of_meanwhile(tmp_path: Path, watch: Watch) -> None:
    found = source(tmp_path / "net", AGENT)

    def fetch() -> ModelSource:
        watch.wait_for("now in files")
        return found

    prepared = await preparation(watch, 0.02).prepare("net", fetch)

    await prepared.discard()
    assert re.fullmatch(r"loading: net for \d+ s, now in files", watch.texts[0])


async def test_only_the_end_of_what_took_long_is_told(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonpy.lifecycle.load._WORTH_TELLING_S", 3600.0)
    await preparation(watch, 0).prepare("quick", lambda: source(tmp_path / "quick"))
    monkeypatch.setattr("tritonpy.lifecycle.load._WORTH_TELLING_S", 0.0)
    await preparation(watch, 0).prepare("net", lambda: source(tmp_path / "net"))

    (told,) = watch.texts
    assert told.startswith("loading: net took ")
    assert "(files " in told


@pytest.mark.parametrize("outcome", ["fetched", "failed", "hanging"])
async def test_a_load_that_is_given_up_while_files_are_fetched_ends_and_leaves_no_file(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    copied = tmp_path / "copy" / "m"

    def fetch() -> ModelSource:
        begun.set()
        assert goes_on.wait(30)
        if outcome == "failed":
            raise Unavailable("the server stops")
        return replace(source(copied), is_temporary=True)

    loading = asyncio.ensure_future(preparation(watch, interval_s=0).prepare("m", fetch))
    await asyncio.to_thread(begun.wait, 30)
    if outcome == "hanging":
        monkeypatch.setattr("tritonpy.lifecycle.load._PATIENCE_S", 0.01)
    loading.cancel()
    if outcome != "hanging":
        asyncio.get_running_loop().call_soon(goes_on.set)
    await asyncio.wait((loading,), timeout=20)
    goes_on.set()

    assert loading.cancelled()
    assert outcome == "hanging" or not copied.parent.exists()
