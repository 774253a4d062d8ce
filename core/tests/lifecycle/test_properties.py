"""Every order of loads, unloads, failures, changes on disk, deaths, requests and a stop, in virtual time.

What must hold at any moment:

* what serves of a model is exactly what the configuration selects that it was loaded from, and nothing of it
  is closed;
* a name finds what the index shows as READY, and nothing else;
* a load that fails leaves what served before, object by object.

And at the end: every version that was loaded was closed once, every agent heard the whole story of its load
once, no file that came with a request is left, and nobody waits.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritonpy.config.versions import select_versions
from tritonpy.config.write import config_to_dict
from tritonpy.errors import Internal, TritonError
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents
from tritonpy.lifecycle.load import ModelLoad
from tritonpy.lifecycle.loading.instance_update import InstanceUpdate
from tritonpy.lifecycle.loading.settings import LoaderSettings
from tritonpy.lifecycle.manager import ModelManager
from tritonpy.lifecycle.polling import RepositoryPolling
from tritonpy.lifecycle.prepared_model import PreparedModel
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.lifecycle.replacement import STOPPING, Replacement
from tritonpy.model.model import LoadedModel
from tritonpy.model.signature import Signature
from tritonpy.plugin import RepoAgent, RepoAgentModel, hookimpl
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.layout import ModelDirectory
from tritonpy.repository.repositories import Repositories

from core.tests.simulator.virtual_loop import VirtualLoop

NAMES = ("a", "b", "e")
TENSORS = """
    input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }
    output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }
"""
ALL_VERSIONS = "version_policy { all {} }"
AGENT = 'model_repository_agents { agents { name: "noting" } }'
STEP = """step {{
    model_name: "{name}" model_version: -1
    input_map {{ key: "IN" value: "{source}" }} output_map {{ key: "OUT" value: "{target}" }}
}}"""

REQUESTS = ("load", "load", "force", "override", "send", "send badly", "unload", "unload with steps")
CHANGES = ("write", "write", "break version", "drop version", "break config", "instances", "agent", "remove")
EVENTS = ("unload soon", "look", "look", "death", "revival", "request", "answer", "hang up")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(REQUESTS + CHANGES + EVENTS),
        st.sampled_from(NAMES),
        st.integers(0, 3),
        st.sampled_from((0.0, 0.0, 0.1, 1.0, 10.0)),
    ),
    min_size=5,
    max_size=40,
)


class Loop(VirtualLoop):
    """Work for threads is done on the loop, after a time that the seed says."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(self.chance.choice((0.0, 0.001, 0.5)), work)
        return future


class LoopThread:
    """A thread whose work is done on the loop, too."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self._target = target

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        loop.call_later(loop.chance.choice((0.0, 0.001, 0.5)), self._target)


class Version:
    """A loaded version; stands in for a `LoadedModel`."""

    def __init__(self, directory: ModelDirectory, version: int, config: Any) -> None:
        self.name = directory.name
        self.version = version
        self.version_text = str(version)
        self.config = config_to_dict(config)
        self.handle = SimpleNamespace(config=self.config)
        self.signature = Signature(self.config)
        self.is_decoupled = False
        self.labels: dict[str, Any] = {}
        self.generation = b"generation"
        self.steps = ()
        self.instance_set = self
        self.is_alive = True
        self.close_count = 0
        self.user_count = 0
        self.inflight_count = 0
        self._changed = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return self.is_alive

    @property
    def down_reason(self) -> str:
        return "" if self.is_alive else "no live instance"

    def change(self, *, users: int = 0, requests: int = 0) -> None:
        self.user_count += users
        self.inflight_count += requests
        self._changed.set()
        self._changed = asyncio.Event()

    def hold(self) -> None:
        assert not self.close_count
        self.change(users=1)

    def release(self) -> None:
        self.change(users=-1)

    async def unused(self) -> None:
        while self.user_count:
            await self._changed.wait()

    async def drain(self) -> None:
        while self.inflight_count:
            await self._changed.wait()

    async def close(self, error: TritonError) -> None:
        if error.message != STOPPING:
            assert (self.user_count, self.inflight_count) == (0, 0)
        self.close_count += 1
        self.change(requests=-self.inflight_count)  # what waits is answered with the error
        await asyncio.sleep(0.1)

    def exchange(self, change: None, config: dict[str, Any]) -> None:
        self.handle.config = self.config = config

    async def discard(self, change: None) -> None:
        """There is nothing to be given back."""

    async def wait_for_left_out(self) -> None:
        """There are no old instances to wait for."""


class VersionLoader:
    """Loads versions after a time; what `model.txt` says fails."""

    def __init__(self, chance: random.Random) -> None:
        self.settings = LoaderSettings()
        self.loaded: list[Version] = []
        self._chance = chance

    async def load(
        self, directory: ModelDirectory, version: int, config: Any, *, is_override: bool = False
    ) -> Version:
        await asyncio.sleep(self._chance.choice((0.0, 0.1, 5.0)))
        if (directory.path / str(version) / "model.txt").read_text() == "broken":
            raise Internal("boom")
        model = Version(directory, version, config)
        self.loaded.append(model)
        return model

    async def is_settled_alike(self, model: Any, config: Any) -> bool:
        return False

    async def update(self, model: Version, config: Any) -> InstanceUpdate:
        await asyncio.sleep(self._chance.choice((0.0, 0.1, 5.0)))
        if config.instance_group and config.instance_group[0].count == 3:
            raise Internal("no room for a third one")
        before = model.handle.config
        return InstanceUpdate(model, config_to_dict(config), None, before)  # type: ignore[arg-type]


class CheckedLoad(ModelLoad):
    """Sees that a load which fails changes nothing, and writes down what each was prepared from."""

    registry: ModelRegistry
    prepared: list[PreparedModel]
    under_way: set[str]

    async def run(self, prepared: PreparedModel, see_to_steps: Any, *, anew: bool = False) -> None:
        record = self.registry.record(prepared.source.key)
        self.prepared.append(prepared)
        before = record.models
        assert record.key.name not in self.under_way
        self.under_way.add(record.key.name)
        try:
            await super().run(prepared, see_to_steps, anew=anew)
        except BaseException:
            if not (record.ensemble or prepared.is_ensemble):  # those change with what they are made of
                assert record.models == before
            raise
        finally:
            self.under_way.discard(record.key.name)


class Agent:
    """Counts what it hears of each model's loads."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()

    @hookimpl
    def repo_agent_model_action(self, agent: RepoAgent, model: RepoAgentModel, action: str) -> None:
        self.heard[action] += 1


class World:
    """A server's models, those who use them, and the repository; all in virtual time."""

    def __init__(self, root: Path, loop: Loop) -> None:
        self.root = root
        self._loop = loop
        self.registry = ModelRegistry()
        self.loader = VersionLoader(loop.chance)
        self.agent = Agent()
        agents = PluginManager("repo_agents", discover=False)
        agents.register("noting", self.agent)
        repositories = Repositories((str(root),)).open()
        replacement = Replacement(self.registry, self.loader.settings)
        self.load = CheckedLoad(
            self.registry,
            replacement,
            self.loader,  # type: ignore[arg-type]
            RepositoryAgents(agents, PluginManager("loaders", discover=False), ""),
            auto_complete_config=True,
        )
        self.load.registry, self.load.prepared, self.load.under_way = self.registry, [], set()
        self.manager = ModelManager(repositories, self.registry, replacement, self.load)
        self._polling = RepositoryPolling(self.manager, repositories.look())
        self._clients: list[asyncio.Task[None]] = []
        self._busy: list[LoadedModel] = []
        self._clock = 0
        for name in NAMES:
            self._write_config(name, AGENT)
            self._write(name, 1)
            self._write(name, 2)

    async def do(self, what: str, name: str, number: int) -> None:
        """One step of the story."""
        version = 1 + number % 2
        match what:
            case "load":
                self._ask(self.manager.load(name))
            case "force":
                self._ask(self.manager.load(name, force=True))
            case "override":
                config = {"backend": "fake", "instance_group": [{"count": number + 1, "kind": "KIND_CPU"}]}
                tensor = {"data_type": "TYPE_FP32", "dims": [1]}
                config |= {"input": [{"name": "IN", **tensor}], "output": [{"name": "OUT", **tensor}]}
                self._ask(self.manager.load(name, json.dumps(config)))
            case "send" | "send badly":
                content = b"sent" if what == "send" else b"broken"
                self._ask(self.manager.load(name, '{"backend": "fake"}', {"file:1/model.txt": content}))
            case "unload" | "unload with steps":
                self._ask(self.manager.unload(name, what != "unload"))
            case "unload soon":
                self.manager.unload_soon(name)
            case "write":
                self._write(name, version)
            case "break version":
                self._write(name, version, "broken")
            case "drop version":
                shutil.rmtree(self.root / name / str(version), ignore_errors=True)
            case "break config":
                self._write_config(name, "nonsense")
            case "instances":
                self._write_config(name, f"instance_group {{ count: {number + 1} kind: KIND_CPU }}")
            case "agent":
                self._write_config(name, AGENT)
            case "remove":
                shutil.rmtree(self.root / name, ignore_errors=True)
            case "look":
                self._polling.follow(self.manager.repositories.look())
            case "death" | "revival":
                for model in self._versions_of(name):
                    model.is_alive = what == "revival"
            case "request":
                for found in self._found(name)[-1:]:
                    if isinstance(found, Version):
                        found.change(requests=1)
                    else:
                        found.hold()  # as if another ensemble were made of it
                    self._busy.append(found)
            case "answer":
                self._answer(number)
            case "hang up":
                if number < len(self._clients):
                    self._clients[number].cancel()

    def check(self) -> None:
        """What must hold whenever the loop has done what is due."""
        rows = [(row["name"], row["version"]) for row in self.registry.index(ready=True)]
        assert len(rows) == len(set(rows))
        for name in NAMES:
            found = self._found(name)
            assert [(name, model.version_text) for model in found] == [row for row in rows if row[0] == name]
            if found:
                assert self.registry.find(name) is found[-1]
        for record in self.registry.records():
            models, served = record.models, record.served
            for model in models:
                assert not (isinstance(model, Version) and model.close_count), (record, model)
                assert all(not step.close_count for step in model.steps)  # type: ignore[attr-defined]
            if models:
                assert served is not None
                assert [m.version for m in models] == select_versions(
                    served.config, served.directory.versions
                )

    async def end(self) -> None:
        """Stop like a server does, whatever is under way; then see what is left."""
        stopping = not self._loop.chance.randrange(2)
        if not stopping:
            while self._busy:
                self._answer(0)
            await asyncio.sleep(1000)
            states = {row["state"] for row in self.registry.index() if "version" in row}
            assert states <= {"READY", "UNAVAILABLE"}
            assert self.manager.live_count == len(self.registry.all_models())
        await self.manager.stop_loading()
        self._loop.on_rest = lambda: None  # from now on the index keeps what is closed, for its statistics
        await self.manager.unload_all()
        await asyncio.sleep(1000)

        assert all(client.done() for client in self._clients)
        for client in self._clients:
            if not client.cancelled():
                assert isinstance(client.exception(), TritonError | None)
        assert self.manager.live_count == 0
        assert [model.close_count for model in self.loader.loaded] == [1] * len(self.loader.loaded)
        assert all(not model.user_count for model in self.loader.loaded)
        left = [one.source for one in self.load.prepared if one.source.is_temporary]
        assert not [source for source in left if source.directory.path.exists()]
        heard = self.agent.heard
        assert heard["LOAD"] == heard["LOAD_COMPLETE"] + heard["LOAD_FAIL"]
        assert heard["LOAD_COMPLETE"] == heard["UNLOAD"] == heard["UNLOAD_COMPLETE"]

    def _ask(self, work: Coroutine[Any, Any, None]) -> None:
        client = asyncio.get_running_loop().create_task(work)
        client.add_done_callback(lambda done: done.cancelled() or done.exception())  # told at the end
        self._clients.append(client)

    def _answer(self, number: int) -> None:
        if number < len(self._busy):
            model = self._busy.pop(number)
            if not isinstance(model, Version):
                model.release()
            elif model.inflight_count:  # else it was told that the server stops
                model.change(requests=-1)

    def _found(self, name: str) -> list[LoadedModel]:
        found = []
        for version in range(1, 4):
            with suppress(TritonError):
                found.append(self.registry.find(name, str(version)))
        return found

    def _versions_of(self, name: str) -> list[Version]:
        return [model for model in self._found(name) if isinstance(model, Version)]

    def _write(self, name: str, version: int, content: str = "") -> None:
        self._clock += 1  # each change is seen by its size: a file system may count time in ticks
        directory = self.root / name / str(version)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "model.txt").write_text(content or "x" * (self._clock + 10))
        if not (self.root / name / "config.pbtxt").exists():
            self._write_config(name)

    def _write_config(self, name: str, more: str = "") -> None:
        self._clock += 1
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        text = f'backend: "fake" {TENSORS} {ALL_VERSIONS} {more}'
        if name == "e" and "instance_group" not in more:
            steps = STEP.format(name="a", source="IN", target="BETWEEN")
            steps += STEP.format(name="b", source="BETWEEN", target="OUT")
            text = f'platform: "ensemble" {TENSORS} {ALL_VERSIONS} {more} ensemble_scheduling {{ {steps} }}'
        (directory / "config.pbtxt").write_text(text + "\n" * self._clock)


@pytest.fixture(scope="module", autouse=True)
def on_the_loop() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritonpy.own_thread.threading", SimpleNamespace(Thread=LoopThread))
        patch.setattr("tritonpy.lifecycle.replacement._tidy_up", lambda: None)
        yield


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), story=STEPS)
def test_whatever_happens_to_models_all_invariants_hold(seed: int, story: Any) -> None:
    loop = Loop(random.Random(seed))

    async def main(root: Path) -> None:
        world = World(root, loop)
        loop.on_rest = world.check
        await world.manager.load_all()
        for what, name, number, pause_s in story:
            await world.do(what, name, number)
            await asyncio.sleep(pause_s)
            world.check()
        await world.end()

    with tempfile.TemporaryDirectory(prefix="models-") as root:
        try:
            loop.run_until_complete(main(Path(root)))
        finally:
            loop.close()
