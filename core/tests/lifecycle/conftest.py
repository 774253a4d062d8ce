"""A repository manager over loads that tests steer by hand, on the loop of each test."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import Internal, TritonError
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents
from tritonpy.lifecycle.load import ModelLoad
from tritonpy.lifecycle.loading.instance_update import InstanceUpdate
from tritonpy.lifecycle.loading.settings import LoaderSettings
from tritonpy.lifecycle.manager import ModelManager
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.lifecycle.replacement import Replacement
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.layout import ModelDirectory
from tritonpy.repository.repositories import FoundModel, Repositories


class FakeModel:
    """A loaded version whose requests the test answers by setting `idle`."""

    def __init__(self, directory: ModelDirectory, version: int, is_override: bool) -> None:
        self.name = directory.name
        self.version = version
        self.version_text = str(version)
        self.path = directory.path
        self.content = (directory.path / str(version) / "model.txt").read_text()
        self.is_override = is_override
        self.is_ready = True
        self.steps = ()
        self.handle = SimpleNamespace(config={})
        self.instance_set = self
        self.closed_with: TritonError | None = None
        self.idle = asyncio.Event()
        self.idle.set()

    async def probe(self) -> bool:
        return self.is_ready

    def exchange(self, change: None, config: dict[str, Any]) -> None:
        self.handle.config = config

    async def discard(self, change: None) -> None:
        pass

    async def wait_for_left_out(self) -> None:
        pass

    async def unused(self) -> None:
        pass

    async def drain(self) -> None:
        await self.idle.wait()

    async def close(self, error: TritonError) -> None:
        self.closed_with = self.closed_with or error
        self.idle.set()


class FakeLoader:
    """Loads versions at once, or when the test lets it; a version whose `model.txt` says `broken` fails.

    Attributes:
        loaded: every version that was loaded, in order.
        running: loads that are under way.
        most_running: the most of them at once, by model.
        gate: loads wait for it.
        settings: those of a server that is told nothing.
    """

    def __init__(self) -> None:
        self.settings = LoaderSettings()
        self.loaded: list[FakeModel] = []
        self.running = 0
        self.most_running = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(
        self, directory: ModelDirectory, version: int, config: Any, *, is_override: bool = False
    ) -> FakeModel:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.gate.wait()
            model = FakeModel(directory, version, is_override)
            if model.content == "broken":
                raise Internal("boom")
        finally:
            self.running -= 1
        self.loaded.append(model)
        return model

    async def is_settled_alike(self, model: Any, config: Any) -> bool:
        return False

    async def update(self, model: Any, config: Any) -> InstanceUpdate:
        await self.gate.wait()
        return InstanceUpdate(model, {"updated": True}, None, {})  # type: ignore[arg-type]


class Harness:
    """A manager of one repository, with what it works with.

    Attributes:
        root: the repository.
        agents: repository agents, which tests register.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loader = FakeLoader()
        self.agents = PluginManager("repo_agents", discover=False)
        self.registry = ModelRegistry()
        replacement = Replacement(self.registry, self.loader.settings)
        self.manager = ModelManager(
            Repositories((str(root),)).open(),
            self.registry,
            replacement,
            ModelLoad(
                self.registry,
                replacement,
                self.loader,  # type: ignore[arg-type]
                RepositoryAgents(self.agents, PluginManager("loaders", discover=False), ""),
                auto_complete_config=True,
            ),
        )

    def write(self, name: str, content: str = "first", *, version: int = 1, config: str = "") -> None:
        """Add a version of a model, or change it."""
        directory = self.root / name / str(version)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "model.txt").write_text(content)
        now_ns = time.time_ns()  # a file system may count in ticks, and a change of equal size be lost in one
        os.utime(directory / "model.txt", ns=(now_ns, now_ns))
        (self.root / name / "config.pbtxt").write_text(f'backend: "fake" {config}')

    def found(self, name: str) -> FoundModel:
        """A model as it lies in the repository now."""
        (found,) = self.manager.repositories.find(name)
        return found

    def served(self, name: str, version: str = "") -> FakeModel:
        """What takes requests for a model now."""
        return self.registry.find(name, version)  # type: ignore[return-value]

    def states(self, name: str) -> dict[str, tuple[str, str]]:
        """State and reason of each version in the index."""
        return {
            entry["version"]: (entry["state"], entry.get("reason", ""))
            for entry in self.registry.index()
            if entry["name"] == name and "version" in entry
        }


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    root = tmp_path / "models"
    root.mkdir()
    harness = Harness(root)
    yield harness
    await harness.manager.stop_loading()
    await harness.manager.unload_all()
