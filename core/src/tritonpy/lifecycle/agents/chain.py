"""The repository agents of one load of a model, from LOAD to the model's end.

    LOAD ──► LOAD_COMPLETE ──► UNLOAD ──► UNLOAD_COMPLETE
      └────► LOAD_FAIL

LOAD and UNLOAD go through the agents in configured order, the others in reverse. A reload runs a chain of its
own beside that of what serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tritonpy.config.write import config_to_dict
from tritonpy.errors import Internal, InvalidArg, Unavailable
from tritonpy.handles import RepoAgentModel
from tritonpy.lifecycle.agents.repository_agents import (
    AgentHooks,
    RepositoryAgents,
    SharedAgent,
    agent_failure,
)
from tritonpy.own_thread import on_own_thread
from tritonpy.protos import ModelConfig

_log = logging.getLogger("tritonpy.repository")

Action = Literal["LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE"]

_FOLLOWING: dict[Action | None, tuple[Action, ...]] = {
    None: ("LOAD",),
    "LOAD": ("LOAD_COMPLETE", "LOAD_FAIL"),
    "LOAD_COMPLETE": ("UNLOAD",),
    "UNLOAD": ("UNLOAD_COMPLETE",),
}


def check_transition(current: Action | None, action: Action) -> None:
    """Refuse an action that cannot follow the current one; None stands for no action yet.

    Raises:
        Internal: in Triton's words.
    """
    if action in _FOLLOWING.get(current, ()):
        return
    wanted = f"TRITONREPOAGENT_ACTION_{action}"
    if current is None:
        raise Internal(f"Unexpected lifecycle start state {wanted}")
    raise Internal(f"Unexpected lifecycle state transition from TRITONREPOAGENT_ACTION_{current} to {wanted}")


class AgentChain:
    """The work of a model's agents for one load of it.

    All methods block, and none may be called while another one runs, but `give_up`.

    Args:
        agents: finds them.
        name: the model.
        directory: its files.
        config: as it stands there, or as a load request brought it; names the agents.
        read_config: reads the configuration in a directory that an agent has handed over; None for a
            directory without one.

    Attributes:
        directory: where the model is to be loaded from, after `load`.
        config: what is to be loaded from there; its agents are those of the configuration given, not
            those that agents wrote into it.
    """

    def __init__(
        self,
        agents: RepositoryAgents,
        name: str,
        directory: Path,
        config: ModelConfig,
        read_config: Callable[[Path], ModelConfig | None],
    ) -> None:
        self.name = name
        self.directory = directory
        self.config = config
        self._agents = agents
        self._settings = config.model_repository_agents
        self._read_config = read_config
        self._links: list[_Link] = []
        self._is_given_up = False

    def load(self) -> None:
        """LOAD: let each agent see the files, and hand over others.

        Raises:
            TritonError: an agent does not exist or refuses the model; those called have got LOAD_FAIL.
        """
        try:
            for setting in self._settings.agents:
                if self._is_given_up:
                    raise Unavailable(f"the load of model '{self.name}' was given up")
                self._add(setting.name, dict(setting.parameters))
        except BaseException:
            self._end("LOAD_FAIL")
            raise

    def give_up(self) -> None:
        """Call no more agents in a `load` that is under way."""
        self._is_given_up = True

    def loaded(self) -> None:
        """LOAD_COMPLETE: the model serves."""
        self._tell("LOAD_COMPLETE")

    def failed(self) -> None:
        """LOAD_FAIL: the model could not be loaded; nothing is left then, and a second call does nothing."""
        self._end("LOAD_FAIL")

    def unload(self) -> None:
        """UNLOAD: the model takes no new requests."""
        self._tell("UNLOAD")

    def unloaded(self) -> None:
        """UNLOAD_COMPLETE: the model is gone; after this nothing is left."""
        self._end("UNLOAD_COMPLETE")

    def _add(self, agent_name: str, parameters: dict[str, str]) -> None:
        agent = self._agents.shared(agent_name)
        hooks = agent.acquire()
        model = RepoAgentModel(self.name, self.directory, parameters, config_to_dict(self.config))
        link = _Link(agent, hooks, model)
        try:
            link.initialize()
        except BaseException:
            link.give_back()
            raise
        self._links.append(link)
        link.act("LOAD")
        if model.directory != self.directory:
            self._move(agent_name, model.directory)

    def _move(self, agent_name: str, directory: Path) -> None:
        directory = directory.absolute()
        if not directory.is_dir():
            raise InvalidArg(
                f"repository agent '{agent_name}' handed over '{directory}' for model '{self.name}': "
                f"expected a directory that exists"
            )
        self.directory = directory
        config = self._read_config(directory)
        if config is not None:
            config.model_repository_agents.CopyFrom(self._settings)
            self.config = config

    def _tell(self, action: Action) -> None:
        for link in self._links:
            check_transition(link.action, action)
        for link in self._links if action == "UNLOAD" else reversed(self._links):
            link.act_and_log(action)

    def _end(self, action: Action) -> None:
        self._tell(action)
        while self._links:
            link = self._links.pop()
            link.finalize()
            link.give_back()


class _Link:
    """One agent and the model it acts on."""

    def __init__(self, agent: SharedAgent, hooks: AgentHooks, model: RepoAgentModel) -> None:
        self.action: Action | None = None
        self._agent = agent
        self._hooks = hooks
        self._model = model

    def initialize(self) -> None:
        """Tell the agent that the model is coming."""
        if self._hooks.model_initialize is None:
            return
        try:
            self._hooks.model_initialize(self._hooks.handle, self._model)
        except BaseException as exc:  # on a thread; a plugin must not end more than itself
            raise agent_failure(f"{self._who} failed to initialize for {self._what}", exc) from exc

    def act(self, action: Action) -> None:
        """Have the agent act; what it raises becomes a `TritonError`."""
        check_transition(self.action, action)
        self.action = self._model.action = action
        try:
            self._hooks.model_action(self._hooks.handle, self._model, action)
        except BaseException as exc:
            raise agent_failure(f"{self._who} failed in {action} of {self._what}", exc) from exc

    def act_and_log(self, action: Action) -> None:
        """Have the agent act; what it raises is logged, because the step cannot be refused."""
        try:
            self.act(action)
        except Exception:
            _log.exception("%s failed in %s of %s", self._who, action, self._what)

    def finalize(self) -> None:
        """Tell the agent that the model is gone."""
        if self._hooks.model_finalize is None:
            return
        try:
            self._hooks.model_finalize(self._hooks.handle, self._model)
        except BaseException:
            _log.exception("%s failed to finalize for %s", self._who, self._what)

    def give_back(self) -> None:
        """Remove what the agent acquired, and release the agent."""
        try:
            with suppress(Unavailable, FileNotFoundError):
                self._model.release_directory()
        except Exception:  # the agent is released although something cannot be removed
            _log.exception("what %s acquired for %s cannot be removed", self._who, self._what)
        self._agent.release()

    @property
    def _who(self) -> str:
        return f"repository agent '{self._agent.name}'"

    @property
    def _what(self) -> str:
        return f"model '{self._model.name}'"


_PATIENCE_S = 15.0
"""For how long a step is waited for that nothing depends on: the next one takes its turn when it is over."""


class AgentSteps:
    """The steps of a chain, each on a thread of its own and one after the other; on the loop only.

    Args:
        chain: what to do.
        patience_s: how long to wait for other steps than `load`.
    """

    def __init__(self, chain: AgentChain, patience_s: float = _PATIENCE_S) -> None:
        self.chain = chain
        self._patience_s = patience_s
        self._last: asyncio.Task[None] | None = None
        self._under_way = ""
        self._is_left_alone = False

    async def load(self) -> None:
        """See `AgentChain.load`; cancelled, no more agents are called, and `failed` must follow."""
        try:
            await self._take(self.chain.load, "LOAD", is_needed=True)
        except asyncio.CancelledError:
            self.chain.give_up()
            raise

    async def loaded(self) -> None:
        """LOAD_COMPLETE: the model serves."""
        await self._take(self.chain.loaded, "LOAD_COMPLETE")

    async def failed(self) -> None:
        """LOAD_FAIL: the model could not be loaded."""
        await self._take(self.chain.failed, "LOAD_FAIL")

    async def unload(self) -> None:
        """UNLOAD: the model takes no new requests."""
        await self._take(self.chain.unload, "UNLOAD")

    async def unloaded(self) -> None:
        """UNLOAD_COMPLETE: the model is gone."""
        await self._take(self.chain.unloaded, "UNLOAD_COMPLETE")

    async def _take(self, step: Callable[[], None], action: str, *, is_needed: bool = False) -> None:
        """Take a step when the one before it is over; a caller that goes away does not end it."""
        previous = self._last
        self._last = current = asyncio.create_task(self._after(previous, step, action))
        current.add_done_callback(_look_at)
        if self._is_left_alone and previous is not None and not previous.done():
            return
        done, _ = await asyncio.wait((current,), timeout=None if is_needed else self._patience_s)
        if done:
            current.result()
            return
        self._is_left_alone = True
        _log.error(
            "repository agents of model '%s' are still busy with %s after %g s; they are left alone with it",
            self.chain.name,
            self._under_way,
            self._patience_s,
        )

    async def _after(
        self, previous: asyncio.Task[None] | None, step: Callable[[], None], action: str
    ) -> None:
        if previous is not None:
            await asyncio.wait((previous,))
        self._under_way = action
        await on_own_thread(step, f"agents of {self.chain.name}")


def _look_at(task: asyncio.Task[None]) -> None:
    """Drop the error of a step whose caller was cancelled."""
    if not task.cancelled():
        task.exception()
