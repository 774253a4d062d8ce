from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.plugin import RepoAgentModel, hookimpl
from tritonpy_sdk.testing import load_with_agent


class Agent:
    """Writes down the actions, and does what a test puts into `on`."""

    def __init__(self, **on: Callable[[RepoAgentModel], object]) -> None:
        self.log: list[str] = []
        self._on = on

    @hookimpl
    def repo_agent_model_action(self, model: RepoAgentModel, action: str) -> None:
        self.log.append(f"{model.name} {action}")
        if action in self._on:
            self._on[action](model)

    @hookimpl
    def repo_agent_model_finalize(self, model: RepoAgentModel) -> None:
        self.log.append("gone")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net"
    path.mkdir()
    (path / "config.pbtxt").write_text(
        'max_batch_size: 2 model_repository_agents { agents { name: "other" } }'
    )
    return path


def test_an_agent_lives_through_a_load(model: Path) -> None:
    agent = Agent()

    with load_with_agent(agent, model, {"key": "value"}) as load:
        assert agent.log == ["net LOAD", "net LOAD_COMPLETE"]
        assert load.directory == model
        assert load.config["max_batch_size"] == 2
        (shown,) = load.config["model_repository_agents"]["agents"]
        assert shown["parameters"] == {"key": "value"}

    assert agent.log[2:] == ["net UNLOAD", "net UNLOAD_COMPLETE", "gone"]


def test_an_agent_lives_through_a_load_that_fails(model: Path) -> None:
    agent = Agent()

    with load_with_agent(agent, model, loads=False):
        assert agent.log == ["net LOAD"]

    assert agent.log[1:] == ["net LOAD_FAIL", "gone"]


def test_what_it_hands_over_is_there_until_the_end(model: Path) -> None:
    def hand_over(model: RepoAgentModel) -> None:
        model.directory = model.acquire_directory()
        (model.directory / "config.pbtxt").write_text(f"max_batch_size: {model.parameters['size']}")

    with load_with_agent(Agent(LOAD=hand_over), model, {"size": "16"}) as load:
        assert load.config["max_batch_size"] == 16
        assert load.directory != model

    assert not load.directory.exists()


def test_a_refusal_is_raised(model: Path) -> None:
    def refuse(model: RepoAgentModel) -> None:
        raise InvalidArg("no licence")

    agent = Agent(LOAD=refuse)

    with pytest.raises(InvalidArg, match="no licence"), load_with_agent(agent, model):
        raise AssertionError("the load was not stopped")
    assert agent.log == ["net LOAD", "net LOAD_FAIL", "gone"]


@pytest.mark.parametrize("action", ["LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"])
def test_what_a_server_would_only_log_is_raised(model: Path, action: str) -> None:
    agent = Agent(**{action: lambda model: 1 / 0})

    with pytest.raises(ExceptionGroup) as caught, load_with_agent(agent, model):
        pass

    (error,) = caught.value.exceptions
    assert f"failed in {action} of model 'net': ZeroDivisionError" in str(error)
    assert agent.log[-1] == "gone"
    assert not logging.getLogger("tritonpy.repository").handlers


def test_what_a_test_raises_inside_is_what_it_raises(model: Path) -> None:
    agent = Agent()

    with pytest.raises(KeyError), load_with_agent(agent, model):
        raise KeyError

    assert agent.log[-1] == "gone"


def test_an_installed_agent_is_found_by_its_name(model: Path) -> None:
    with (
        pytest.raises(NotFound, match=r"unable to find .* for repo agent 'absent'"),
        load_with_agent("absent", model),
    ):
        pass
    with pytest.raises(InvalidArg, match="nothing to check"), load_with_agent("checksum", model):
        pass


def test_an_agent_may_be_a_file(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    file.write_text(
        "from tritonpy.plugin import InvalidArg, hookimpl\n"
        "@hookimpl\n"
        "def repo_agent_model_action(model, action):\n"
        "    raise InvalidArg(f'{action} of {model.name}')\n"
    )

    with pytest.raises(InvalidArg, match="LOAD of net"), load_with_agent(file, model):
        pass


def test_a_plugin_that_is_no_agent_is_refused(model: Path) -> None:
    with (
        pytest.raises(Exception, match="does not implement repo_agent_model_action"),
        load_with_agent(SimpleNamespace(), model),
    ):
        pass
