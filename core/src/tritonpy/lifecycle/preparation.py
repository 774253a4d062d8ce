"""From where a model lies to what can be loaded: files on a local disk, and a configuration that was read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tritonpy.config.files import check_config_name, find_config
from tritonpy.config.load import MAX_CONFIG_BYTE_SIZE
from tritonpy.config.named_files import check_model_files, check_sent_files, named_files
from tritonpy.config.schema import ModelConfig
from tritonpy.errors import TritonError
from tritonpy.lifecycle.agents.chain import AgentChain
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents
from tritonpy.lifecycle.agents.steps import AgentSteps
from tritonpy.lifecycle.loading.progress import INTERVAL_S, LoadProgress
from tritonpy.lifecycle.resolved_config import check_config, read_given_config
from tritonpy.repository.layout import ModelDirectory, read_model
from tritonpy.repository.source import ModelSource
from tritonpy.repository.store_threads import StoreThreads

_WORTH_TELLING_S = 1.0


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that is ready to be loaded, and what has to be done around its life.

    Either `discard` is called, or `loaded`, `leave` and `end` one after the other.

    Attributes:
        source: its files, as they came.
        directory: what is to be loaded: those files, or what a repository agent has handed over.
        config: its configuration, checked as far as it can be before its backend has seen it.
        agents: its repository agents, if it has any.
    """

    source: ModelSource
    directory: ModelDirectory
    config: ModelConfig
    agents: AgentSteps | None = None

    @property
    def is_ensemble(self) -> bool:
        """Whether it is made of other models."""
        return self.config.HasField("ensemble_scheduling")

    async def discard(self) -> None:
        """It could not be loaded: give up what was made for this load."""
        await _discard(self.source, self.agents)

    async def loaded(self) -> None:
        """It serves."""
        if self.agents is not None:
            await self.agents.loaded()

    async def leave(self) -> None:
        """It takes no new requests."""
        if self.agents is not None:
            await self.agents.unload()

    async def end(self) -> None:
        """All its versions are gone: remove what was made for this load."""
        if self.agents is not None:
            await self.agents.unloaded()
        await asyncio.to_thread(self.source.remove)


class ModelPreparation:
    """Prepares models; on the loop, with everything that blocks on threads.

    Args:
        agents: finds repository agents.
        auto_complete_config: a model may do without a configuration file.
        config_name: models that have a configuration of this name are configured by it; "" for none.
        max_config_byte_size: how large a configuration may be.
        progress_interval_s: how often a model that takes long is mentioned in the log; 0 for never.

    Raises:
        InvalidArg: `config_name` could lead out of the models' directories.
    """

    def __init__(
        self,
        agents: RepositoryAgents,
        *,
        auto_complete_config: bool,
        config_name: str = "",
        max_config_byte_size: int = MAX_CONFIG_BYTE_SIZE,
        progress_interval_s: float = INTERVAL_S,
    ) -> None:
        if config_name:
            check_config_name(config_name)
        self._agents = agents
        self._auto_complete_config = auto_complete_config
        self._config_name = config_name
        self._max_config_byte_size = max_config_byte_size
        self._progress_interval_s = progress_interval_s
        self._threads = StoreThreads()

    async def prepare(self, name: str, fetch: Callable[[], ModelSource]) -> PreparedModel:
        """Get a model's files, let its repository agents see them, and read its configuration.

        Args:
            name: the model, for the log.
            fetch: gets the files; blocking.

        Raises:
            TritonError, OSError: why the model cannot even be tried; nothing is left behind.
        """
        with LoadProgress(name, interval_s=self._progress_interval_s, least_s=_WORTH_TELLING_S) as progress:
            return await self._prepare(fetch, progress)

    async def check(self, directory: ModelDirectory) -> None:
        """Look at the configuration in a model's own directory, which another one stands in for.

        Raises:
            TritonError, OSError: why the model could not be tried with it.
        """
        config = await asyncio.to_thread(self._read, directory, None)
        await asyncio.to_thread(check_config, config, directory, is_strict=not self._auto_complete_config)

    async def _prepare(self, fetch: Callable[[], ModelSource], progress: LoadProgress) -> PreparedModel:
        progress.begin("files")
        source = await self._fetched(fetch)
        steps = None
        try:
            progress.begin("configuration")
            directory = source.directory
            config = await asyncio.to_thread(self._read, directory, source.config_override)
            if config.model_repository_agents.agents:
                steps = AgentSteps(self._chain(source, config))
                progress.begin("repository agents")
                await steps.load()
                config = steps.chain.config
                directory = await asyncio.to_thread(_moved, directory, steps.chain.directory)
            progress.begin("configuration")
            is_strict = not self._auto_complete_config
            await asyncio.to_thread(check_config, config, directory, is_strict=is_strict)
            return PreparedModel(source, directory, config, steps)
        except BaseException:
            await _discard(source, steps)
            raise

    def _read(self, directory: ModelDirectory, override: str | None) -> ModelConfig:
        config = read_given_config(
            directory,
            is_strict=not self._auto_complete_config,
            override=override,
            config_name=self._config_name,
            max_byte_size=self._max_config_byte_size,
        )
        check_model_files(config, directory.name)
        if override is not None:
            check_sent_files(config, directory.path, directory.versions, self._own_files(directory))
        return config

    def _own_files(self, directory: ModelDirectory) -> set[str]:
        """Every path that stands in the model's own configuration, if that can be read."""
        try:
            config = read_given_config(
                directory,
                config_name=self._config_name,
                max_byte_size=self._max_config_byte_size,
            )
        except TritonError:
            return set()
        return {file.path for file in named_files(config)}

    async def _fetched(self, fetch: Callable[[], ModelSource]) -> ModelSource:
        """`fetch` on a thread; cancelled, it leaves no directory behind."""
        fetching = asyncio.ensure_future(self._threads.call(fetch))
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:
            source = await fetching
            await asyncio.to_thread(source.remove)
            raise

    def _chain(self, source: ModelSource, config: ModelConfig) -> AgentChain:
        return AgentChain(
            self._agents,
            source.directory.name,
            source.directory.path,
            config,
            partial(self._read_handed_over, source),
        )

    def _read_handed_over(self, source: ModelSource, path: Path) -> ModelConfig | None:
        """What stands where an agent has put the files; what came with a load request counts for more."""
        if source.config_override is not None or find_config(path, self._config_name) is None:
            return None
        return self._read(replace(source.directory, path=path), None)


def _moved(directory: ModelDirectory, path: Path) -> ModelDirectory:
    """A model whose files are elsewhere now, in a directory that may be called otherwise; blocking."""
    return directory if path == directory.path else replace(read_model(path), name=directory.name)


async def _discard(source: ModelSource, steps: AgentSteps | None) -> None:
    if steps is not None:
        await steps.failed()
    await asyncio.to_thread(source.remove)
