"""A repository agent called as a server calls it, around a model that is never loaded."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tritonpy.config.load import find_config, load_config
from tritonpy.config.write import config_to_dict
from tritonpy.handles import JsonObject
from tritonpy.lifecycle.agents.chain import AgentChain
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents, SharedAgent
from tritonpy.plugin_files import PluginOpener
from tritonpy.plugin_manager import PluginManager
from tritonpy.protos import ModelConfig

from tritonpy_sdk.testing.logged import raising_what_is_logged

_log = logging.getLogger("tritonpy.repository")


@dataclass(frozen=True, slots=True)
class AgentLoad:
    """The model that a server would load after the agent has acted.

    Attributes:
        directory: where the files are.
        config: the configuration there, as a dict; nothing is filled in.
    """

    directory: Path
    config: JsonObject


@contextmanager
def load_with_agent(
    agent: str | object,
    directory: str | os.PathLike[str],
    parameters: Mapping[str, str] | None = None,
    *,
    loads: bool = True,
) -> Iterator[AgentLoad]:
    """Let a repository agent act on a model from LOAD to its end.

    Inside, the model is loaded: LOAD and LOAD_COMPLETE have been acted on. After it come UNLOAD and
    UNLOAD_COMPLETE, and what the agent acquired is removed.

    Example:
        >>> with load_with_agent("checksum", "models/net", {"MD5:1/model.onnx": "…"}) as load:
        ...     assert load.directory == Path("models/net")

    Args:
        agent: the name of an installed agent, a plugin object, or the `Path` of a file: `.py`, or a shared
            object, which needs tritonpy-abi.
        directory: the model's; its name is the model's.
        parameters: what the configuration gives to the agent.
        loads: False for a model that cannot be loaded: inside only LOAD has been acted on, after it comes
            LOAD_FAIL.

    Raises:
        TritonError: the agent stops the load.
        ExceptionGroup: it raised where a server goes on and writes it to its log.
    """
    path = Path(directory).absolute()
    chain = chain_of(*agents_of(agent), path, parameters or {})
    with raising_what_is_logged(_log, "the agent"):
        chain.load()
        try:
            if loads:
                chain.loaded()
            yield AgentLoad(chain.directory, config_to_dict(chain.config))
        finally:
            if loads:
                chain.unload()
                chain.unloaded()
            else:
                chain.failed()


def agents_of(agent: str | object) -> tuple[RepositoryAgents, str]:
    """What finds the agent, and the name under which it does; see `load_with_agent`."""
    manager, loaders = PluginManager("repo_agents"), PluginManager("loaders")
    name = agent if isinstance(agent, str) else "agent under test"
    if isinstance(agent, Path):
        return _AgentOfFile(manager, loaders, agent.absolute()), name
    if not isinstance(agent, str):
        manager.register(name, agent)
    return RepositoryAgents(manager, loaders, directory=""), name


def chain_of(
    agents: RepositoryAgents, agent_name: str, directory: Path, parameters: Mapping[str, str]
) -> AgentChain:
    """The steps of one load of the model in a directory, which begin with LOAD."""
    config = _read(directory) or ModelConfig()
    config.ClearField("model_repository_agents")
    setting = config.model_repository_agents.agents.add(name=agent_name)
    setting.parameters.update(parameters)
    return AgentChain(agents, directory.name, directory, config, _read)


class _AgentOfFile(RepositoryAgents):
    """Finds the agent in one file, under any name."""

    def __init__(self, agents: PluginManager, loaders: PluginManager, path: Path) -> None:
        super().__init__(agents, loaders, directory="")
        opener = PluginOpener(agents, loaders, "repository agent")
        self._agent = SharedAgent("agent under test", lambda _: opener.open(path))

    def shared(self, name: str) -> SharedAgent:
        return self._agent


def _read(directory: Path) -> ModelConfig | None:
    path = find_config(directory)
    return load_config(path) if path is not None else None
