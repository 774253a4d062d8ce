"""Repository agents that write down what they are told, and chains of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonpy.config.load import parse_config
from tritonpy.errors import InvalidArg
from tritonpy.lifecycle.agents.chain import AgentChain
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents
from tritonpy.plugin import RepoAgent, RepoAgentModel, hookimpl
from tritonpy.plugin_manager import PluginManager
from tritonpy.protos import ModelConfig


class Recorder:
    """An agent that writes down what it is told, and does what a test puts into `on`.

    Attributes:
        on: what to do, by action or hook.
    """

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.on: dict[str, Callable[[RepoAgentModel], object]] = {}
        self._log = log

    @hookimpl
    def repo_agent_initialize(self, agent: RepoAgent) -> None:
        self._note("initialize", None)

    @hookimpl
    def repo_agent_finalize(self, agent: RepoAgent) -> None:
        self._note("finalize", None)

    @hookimpl
    def repo_agent_model_initialize(self, agent: RepoAgent, model: RepoAgentModel) -> None:
        self._note("model_initialize", model)

    @hookimpl
    def repo_agent_model_finalize(self, agent: RepoAgent, model: RepoAgentModel) -> None:
        self._note("model_finalize", model)

    @hookimpl
    def repo_agent_model_action(self, agent: RepoAgent, model: RepoAgentModel, action: str) -> None:
        assert agent.name == self.name
        assert model.action == action
        self._note(action, model)

    def _note(self, what: str, model: Any) -> None:
        self._log.append(f"{self.name} {what}")
        if what in self.on:
            self.on[what](model)


class Harness:
    """Three agents a, b and c, and chains of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log: list[str] = []
        manager = PluginManager("repo_agents", discover=False)
        self.agents: dict[str, Recorder] = {}
        for name in "abc":
            self.agents[name] = Recorder(name, self.log)
            manager.register(name, self.agents[name])
        self.finder = RepositoryAgents(manager, PluginManager("loaders", discover=False), "/no/agents")

    def chain(self, agents: str = "abc", *, config: str = "", name: str = "m") -> AgentChain:
        blocks = " ".join(f'agents {{ name: "{agent}" }}' for agent in agents)
        parsed = parse_config(f"{config} model_repository_agents {{ {blocks} }}", "test")
        return AgentChain(self.finder, name, self.directory, parsed, self.read_config)

    @staticmethod
    def read_config(directory: Path) -> ModelConfig | None:
        path = directory / "config.pbtxt"
        return parse_config(path.read_text(), path) if path.exists() else None

    def take_log(self) -> list[str]:
        taken, self.log[:] = list(self.log), []
        return taken


def refuse(model: RepoAgentModel) -> None:
    raise InvalidArg("refused")
