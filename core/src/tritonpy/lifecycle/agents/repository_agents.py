"""Repository agents: found by the names in configurations, alive while any model uses them.

An agent is an installed plugin of kind `repo_agents` or, where none is called so, what lies in the directory
of its name in `--repoagent-directory`: a shared object compiled for Triton, or a Python file. What they do
for one model is in `chain.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from weakref import WeakValueDictionary

from tritonpy.errors import Internal, NotFound, TritonError
from tritonpy.handles import RepoAgent
from tritonpy.plugin_files import Binder, PluginOpener
from tritonpy.plugin_manager import Hook, PluginManager, install_hint

_log = logging.getLogger("tritonpy.repository")

AGENT_FILENAME = "agent.py"
"""How a Python file in an agent's directory is called."""


class AgentHooks:
    """The hooks of one agent and the handle they receive, from its initialisation to its end.

    Args:
        name: as models write it.
        bind: gives the implementation of a hook, or None.

    Raises:
        Internal: `repo_agent_model_action` is missing.
    """

    def __init__(self, name: str, bind: Binder) -> None:
        action = bind("repo_agent_model_action")
        if action is None:
            raise Internal(f"repository agent '{name}' does not implement repo_agent_model_action")
        self.handle = RepoAgent(name)
        self.initialize = bind("repo_agent_initialize")
        self.finalize = bind("repo_agent_finalize")
        self.model_initialize = bind("repo_agent_model_initialize")
        self.model_finalize = bind("repo_agent_model_finalize")
        self.model_action: Hook = action
        self._bind = bind  # held as long as the hooks are: see `bind_file`


class SharedAgent:
    """One agent for all models that name it; the first one initialises it and the last one finalises it.

    Its methods block, and may be called on several threads.

    Args:
        name: as models write it.
        find: gives its hooks' implementations; asked each time when a first model comes.
    """

    def __init__(self, name: str, find: Callable[[str], Binder]) -> None:
        self.name = name
        self._find = find
        self._lock = threading.Lock()  # guards all below, also while the agent's own hooks run
        self._users = 0
        self._hooks: AgentHooks | None = None

    def acquire(self) -> AgentHooks:
        """Count one more model.

        Raises:
            TritonError: there is no agent of that name, it is broken, or it failed to initialise.
        """
        with self._lock:
            if self._hooks is None:
                hooks = AgentHooks(self.name, self._find(self.name))
                if hooks.initialize is not None:
                    try:
                        hooks.initialize(hooks.handle)
                    except BaseException as exc:  # on a thread; a plugin must not end more than itself
                        where = f"repository agent '{self.name}' failed to initialize"
                        raise agent_failure(where, exc) from exc
                self._hooks = hooks
            self._users += 1
            return self._hooks

    def release(self) -> None:
        """Count one model less."""
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._hooks is None:
                return
            hooks, self._hooks = self._hooks, None
            if hooks.finalize is not None:
                try:
                    hooks.finalize(hooks.handle)
                except BaseException:
                    _log.exception("repository agent '%s' failed to finalize", self.name)


class RepositoryAgents:
    """Finds agents by name; one for all models that name it.

    Args:
        agents: the installed ones.
        loaders: what opens shared objects.
        directory: `--repoagent-directory`.
    """

    def __init__(self, agents: PluginManager, loaders: PluginManager, directory: str) -> None:
        self._opener = PluginOpener(agents, loaders, "repository agent")
        self._directory = directory
        self._lock = threading.Lock()  # guards the next: chains of several models come from several threads
        self._shared: WeakValueDictionary[str, SharedAgent] = WeakValueDictionary()

    def shared(self, name: str) -> SharedAgent:
        """The agent of this name, which may not exist: `acquire` tells."""
        with self._lock:
            agent = self._shared.get(name)
            if agent is None:
                agent = self._shared[name] = SharedAgent(name, self._find)
            return agent

    def _find(self, name: str) -> Binder:
        """Find an agent's hooks; blocking.

        Raises:
            NotFound: in Triton's words; says what would install it.
            Unsupported: it is a shared object, and nothing installed opens it.
            Internal: it is disabled, or its import failed.
            TritonError: what opens shared objects does not open it.
        """
        library = f"libtritonrepoagent_{name}.so"
        found = self._opener.find(name, self._directory, (library, AGENT_FILENAME))
        if found is None:
            raise NotFound(
                f"unable to find '{library}' for repo agent '{name}', searched: {self._directory}"
                + install_hint("repo_agents", name)
            )
        return found


def agent_failure(where: str, exc: BaseException) -> TritonError:
    """The error for an agent's exception: its own code and text, or INTERNAL with type and text."""
    if isinstance(exc, TritonError):
        return exc
    return Internal(f"{where}: {type(exc).__name__}: {exc}")
