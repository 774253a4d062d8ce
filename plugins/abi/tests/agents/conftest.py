"""Agents in C as their author calls them in a test: without a server, with the calls that a server makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tritonpy.plugin import RepoAgent, RepoAgentModel, TritonError
from tritonpy_abi.agents.library import AgentLibrary
from tritonpy_sdk.testing import load_with_agent

from ..conftest import Compiled


class Place:
    """A model, and an agent that does what the model's parameters say.

    Attributes:
        library: the agent.
        directory: the model's.
    """

    def __init__(self, library: Path, path: Path) -> None:
        self.library = library
        self.directory = path / "net"
        (self.directory / "1").mkdir(parents=True)
        self._log = path / "agents.log"
        self._log.touch()

    def load(self, step: str = "", deed: str = "", argument: str = "", *, loads: bool = True) -> None:
        """Load and unload the model, with something done in a step."""
        parameters = {"in": step, "do": deed, "with": argument}
        with load_with_agent(AgentLibrary(str(self.library)), self.directory, parameters, loads=loads):
            pass

    def refusal(self, step: str, deed: str, argument: str = "") -> TritonError:
        """What the agent stops a load with."""
        with pytest.raises(TritonError) as caught:
            self.load(step, deed, argument)
        return caught.value

    def failure(self, step: str, deed: str, argument: str = "") -> TritonError:
        """What a server would only log."""
        with pytest.raises(ExceptionGroup) as caught:
            self.load(step, deed, argument)
        (error,) = caught.value.exceptions
        assert isinstance(error, TritonError)
        return error

    @property
    def steps(self) -> list[str]:
        return [line.split(maxsplit=2)[2].strip() for line in self._log.read_text().splitlines()]

    @property
    def pids(self) -> list[int]:
        """Of the agent's processes, in the order of their first calls."""
        return list(dict.fromkeys(int(line.split()[1]) for line in self._log.read_text().splitlines()))

    def named(self, what: str) -> str:
        """What follows this word in the agent's notes."""
        return next(step.split()[1] for step in self.steps if step.startswith(what))


@pytest.fixture
def place(compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AGENTS_LOG", str(tmp_path / "agents.log"))
    return Place(compiled("agents/obedient.cc"), tmp_path)


def gone(pid: int) -> bool:
    """Whether a process has ended, also if nobody has asked for its status."""
    with suppress(FileNotFoundError, ProcessLookupError):  # the latter where it ends while its file is read
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    return True


class Living:
    """An agent between `repo_agent_initialize` and `repo_agent_finalize`."""

    def __init__(self, place: Place) -> None:
        self.plugin = AgentLibrary(str(place.library))
        self.agent = RepoAgent("living")
        self._directory = place.directory
        self.plugin.repo_agent_initialize(self.agent)

    def model(self, name: str, **parameters: str) -> RepoAgentModel:
        """A model for which LOAD has been acted on."""
        model = RepoAgentModel(name, self._directory, {"tag": name, **parameters}, {})
        self.plugin.repo_agent_model_initialize(self.agent, model)
        self.plugin.repo_agent_model_action(model, "LOAD")
        return model

    def end(self, model: RepoAgentModel) -> None:
        for action in ("LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"):
            self.plugin.repo_agent_model_action(model, action)
        self.plugin.repo_agent_model_finalize(model)
        model.release_directory()


@pytest.fixture
def living(place: Place) -> Iterator[Living]:
    started = Living(place)
    yield started
    started.plugin.repo_agent_finalize(started.agent)
