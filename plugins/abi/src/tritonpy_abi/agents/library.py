"""Repository agents that are shared objects: the hooks of an agent, carried out in a process of its own.

One process serves all models, because the functions of an agent share what is in its memory. It is started
for the first model and ends after the last. Where it dies before, the models that it has let through go on
serving, and the next load begins a new one.
"""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

from tritonpy.plugin import RepoAgent, RepoAgentModel, hookimpl

from tritonpy_abi.agents.process import AgentProcess, ProcessGone
from tritonpy_abi.json_text import json_text

_numbers = itertools.count(1)


class AgentLibrary:
    """The plugin of one library; `agent.state` is an `_Agent`, and `model.state` a `_Model`.

    Args:
        path: of the library; opened by its process.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    @hookimpl
    def repo_agent_initialize(self, agent: RepoAgent) -> None:
        """Start a process, open the library there, and call its `Initialize`."""
        agent.state = _Agent(self._path)

    @hookimpl
    def repo_agent_finalize(self, agent: RepoAgent) -> None:
        """Call its `Finalize` and end the process."""
        state: _Agent = agent.state
        state.finalize()

    @hookimpl
    def repo_agent_model_initialize(self, agent: RepoAgent, model: RepoAgentModel) -> None:
        """Call its `ModelInitialize`."""
        state: _Agent = agent.state
        try:
            model.state = _Model(state.process(), model)
        except ProcessGone as exc:
            if not exc.is_killed:
                raise
            # It had been killed before, which could not be seen yet.
            model.release_directory()
            model.state = _Model(state.process(), model)

    @hookimpl
    def repo_agent_model_action(self, model: RepoAgentModel, action: str) -> None:
        """Call its `ModelAction`."""
        state: _Model = model.state
        state.act(model, action)

    @hookimpl
    def repo_agent_model_finalize(self, model: RepoAgentModel) -> None:
        """Call its `ModelFinalize`."""
        state: _Model = model.state
        state.finalize()


class _Agent:
    """The processes of an agent: one that lives at most."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()  # guards the next, also while a process begins
        self._process = self._begin()

    def process(self) -> AgentProcess:
        """The one for the next load: if the last one has died, it is a new one."""
        with self._lock:
            if self._process.is_gone:
                self._process = self._begin()
            return self._process

    def finalize(self) -> None:
        with self._lock:
            if self._process.is_gone:
                return
            try:
                self._process.call("Finalize", "in TRITONREPOAGENT_Finalize")
            finally:
                self._process.end()

    def _begin(self) -> AgentProcess:
        process = AgentProcess(self._path)
        try:
            process.call("open", "while it was opened")
            process.call("Initialize", "in TRITONREPOAGENT_Initialize")
        except BaseException:
            process.end()
            raise
        return process


class _Model:
    """One load of a model in the process that it began in."""

    def __init__(self, process: AgentProcess, model: RepoAgentModel) -> None:
        self._process = process
        self._name = model.name
        self._number = next(_numbers)
        room, why_no_room = None, None
        try:
            room = str(model.acquire_directory())
        except OSError as exc:  # of no importance for an agent that only looks
            why_no_room = f"no directory can be made for model '{model.name}': {exc}"
        process.call(
            "ModelInitialize",
            f"in TRITONREPOAGENT_ModelInitialize for model '{self._name}'",
            self._number,
            texts={
                "location": str(model.directory),
                "config": json_text(model.config),
                "room": room,
                "why_no_room": why_no_room,
            },
            parameters=dict(sorted(model.parameters.items())),  # a configuration gives them no order
        )

    def act(self, model: RepoAgentModel, action: str) -> None:
        """Raise what the agent says. Where its process has died before, the rest is dropped."""
        if action != "LOAD" and self._process.is_gone:
            return
        where = f"in TRITONREPOAGENT_ModelAction with {action} for model '{self._name}'"
        before = str(model.directory)
        reply = self._process.call("ModelAction", where, self._number, action=action)
        if reply["location"] != before:
            model.directory = Path(reply["location"])
        if action == "LOAD":
            self._process.note(self._number, self._name)

    def finalize(self) -> None:
        """The last call for this load. Where its process has died before, it stays noted as never told."""
        if self._process.is_gone:
            return
        where = f"in TRITONREPOAGENT_ModelFinalize for model '{self._name}'"
        try:
            self._process.call("ModelFinalize", where, self._number)
        finally:
            self._process.note(self._number, None)
