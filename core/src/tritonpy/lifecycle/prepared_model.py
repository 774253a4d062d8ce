"""A model that can be brought up: its files on a local disk, its configuration and its repository agents."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tritonpy.lifecycle.agents.chain import AgentSteps
from tritonpy.protos import ModelConfig
from tritonpy.repository.layout import ModelDirectory
from tritonpy.repository.source import ModelSource


@dataclass(slots=True, eq=False)
class PreparedModel:
    """A model that is ready to be loaded, and what has to be done around its life.

    Either `discard` is called, or `loaded`, `leave` and `end` one after the other.

    Attributes:
        source: its files, as they came.
        directory: what is to be loaded: those files, or what a repository agent has handed over.
        config: its configuration, checked as far as it can be before its backend has seen it.
        agents: its repository agents, if it has any.
        has_served: `loaded` was called. An ensemble may wait for its models until it is not wanted any more.
    """

    source: ModelSource
    directory: ModelDirectory
    config: ModelConfig
    agents: AgentSteps | None = None
    has_served: bool = False

    @property
    def is_ensemble(self) -> bool:
        """True if it is made of other models."""
        return self.config.HasField("ensemble_scheduling")

    async def discard(self) -> None:
        """The load failed: remove what was made for it."""
        await discard(self.source, self.agents)

    async def loaded(self) -> None:
        """The model serves."""
        self.has_served = True
        if self.agents is not None:
            await self.agents.loaded()

    async def leave(self) -> None:
        """The model takes no new requests."""
        if self.agents is not None:
            await (self.agents.unload() if self.has_served else self.agents.failed())

    async def end(self) -> None:
        """All its versions are gone: remove what was made for this load."""
        if self.agents is not None and self.has_served:
            await self.agents.unloaded()
        await asyncio.to_thread(self.source.remove)


async def discard(source: ModelSource, agents: AgentSteps | None) -> None:
    """Remove what was made for a load that failed."""
    if agents is not None:
        await agents.failed()
    await asyncio.to_thread(source.remove)
