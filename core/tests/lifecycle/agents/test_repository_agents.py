from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError, Unsupported
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents
from tritonpy.plugin import RepoAgent, hookimpl
from tritonpy.plugin_manager import PluginManager

SOURCE = """
from tritonpy.plugin import hookimpl

@hookimpl
def repo_agent_initialize(agent):
    agent.state = "{state}"

@hookimpl
def repo_agent_model_action(agent, model, action):
    pass
"""


class Agent:
    @hookimpl
    def repo_agent_model_action(self) -> None: ...


class Loader:
    """Opens shared objects that hold the word `agent`."""

    @hookimpl
    def load_shared_object(self, kind: str, path: str) -> object | None:
        return Agent() if kind == "repo_agents" and Path(path).read_text() == "agent" else None


def agents(
    directory: Path | str = "/no/agents",
    *,
    installed: Mapping[str, object] | None = None,
    loaders: Mapping[str, object] | None = None,
    disabled: tuple[str, ...] = (),
) -> RepositoryAgents:
    managers = {
        "repo_agents": PluginManager("repo_agents", discover=False, disabled=disabled),
        "loaders": PluginManager("loaders", discover=False),
    }
    for kind, plugins in (("repo_agents", installed), ("loaders", loaders)):
        for name, plugin in (plugins or {}).items():
            managers[kind].register(name, plugin)
    return RepositoryAgents(managers["repo_agents"], managers["loaders"], str(directory))


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def reason(found: RepositoryAgents, name: str, kind: type[TritonError]) -> str:
    with pytest.raises(kind) as caught:
        found.shared(name).acquire()
    return str(caught.value)


def test_an_agent_that_is_not_there_is_named_in_the_words_of_triton_with_what_installs_it() -> None:
    assert reason(agents(), "checksum", NotFound) == (
        "unable to find 'libtritonrepoagent_checksum.so' for repo agent 'checksum', searched: /no/agents; "
        "to install it: pip install tritonpy-repo-agent-checksum"
    )


@pytest.mark.parametrize("name", ["", "../x", "/x", "a b", "a;b", ".", "x\n", "-x", "squatted"])
def test_no_other_name_is_recommended_to_be_installed(name: str) -> None:
    assert reason(agents(), name, NotFound) == (
        f"unable to find 'libtritonrepoagent_{name}.so' for repo agent '{name}', searched: /no/agents"
    )


@pytest.mark.parametrize("name", ["../out", "..", ".", "/etc", "in/../../out", "x\0", "x" * 300])
def test_a_name_leads_nowhere_out_of_the_directory_of_agents(tmp_path: Path, name: str) -> None:
    for place in ("out", "in", "."):
        write(tmp_path / place / "agent.py", SOURCE)
    write(tmp_path / "agents/agent.py", SOURCE)

    assert reason(agents(tmp_path / "agents"), name, NotFound).startswith("unable to find")


def test_a_python_file_in_the_directory_of_agents_is_an_agent(tmp_path: Path) -> None:
    path = write(tmp_path / "mine/agent.py", SOURCE.format(state="first"))
    found = agents(tmp_path)
    shared = found.shared("mine")

    assert shared.acquire().handle.state == "first"
    write(path, SOURCE.format(state="second"))
    assert shared.acquire().handle.state == "first"  # it is in use
    shared.release()
    shared.release()
    assert shared.acquire().handle.state == "second"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 / 0", "failed to import: ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(2)", "failed to import: SystemExit: 2"),
        ("x = 1", "repository agent 'mine' does not implement repo_agent_model_action"),
        (
            "from tritonpy.plugin import hookimpl\n@hookimpl\ndef repo_agent_model_acton(agent): ...",
            "does not fit the hooks of kind 'repo_agents'",
        ),
    ],
)
def test_a_python_file_that_is_no_agent_is_refused_with_the_reason(
    tmp_path: Path, source: str, expected: str
) -> None:
    write(tmp_path / "mine/agent.py", source)

    assert expected in reason(agents(tmp_path), "mine", Internal)


def test_a_shared_object_needs_something_that_opens_it(tmp_path: Path) -> None:
    path = write(tmp_path / "mine/libtritonrepoagent_mine.so", "agent")

    assert reason(agents(tmp_path), "mine", Unsupported) == (
        f"repository agent {path} is a shared object, and nothing is installed that opens it: "
        f"pip install tritonpy-abi"
    )
    agents(tmp_path, loaders={"loader": Loader()}).shared("mine").acquire()


def test_a_shared_object_that_no_loader_takes_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "mine/libtritonrepoagent_mine.so", "something else")

    found = agents(tmp_path, loaders={"loader": Loader()})

    assert "nothing is installed that opens it" in reason(found, "mine", Unsupported)


def test_an_installed_agent_wins_over_files(tmp_path: Path) -> None:
    write(tmp_path / "mine/agent.py", SOURCE.format(state="file"))

    assert agents(tmp_path, installed={"mine": Agent()}).shared("mine").acquire().handle.state is None


def test_a_disabled_agent_is_no_agent_and_no_file_stands_in(tmp_path: Path) -> None:
    write(tmp_path / "mine/agent.py", SOURCE)

    assert "disabled by --disable-plugin repo_agents:mine" in reason(
        agents(tmp_path, disabled=("mine",)), "mine", Internal
    )


def test_an_agent_without_its_one_required_hook_is_refused() -> None:
    assert reason(agents(installed={"mine": SimpleNamespace()}), "mine", Internal) == (
        "repository agent 'mine' does not implement repo_agent_model_action"
    )


def test_all_models_share_one_agent() -> None:
    found = agents(installed={"mine": Agent()})
    first = found.shared("mine")

    assert found.shared("mine") is first
    assert first.acquire().handle is first.acquire().handle


def test_an_agent_that_failed_to_initialize_is_tried_again_by_the_next_model() -> None:
    class Late(Agent):
        count = 0

        @hookimpl
        def repo_agent_initialize(self, agent: RepoAgent) -> None:
            self.count += 1
            if self.count == 1:
                raise InvalidArg("not yet")

    found = agents(installed={"mine": Late()})

    assert reason(found, "mine", InvalidArg) == "not yet"
    found.shared("mine").acquire()


def test_what_agents_raise_at_their_start_names_them() -> None:
    class Broken(Agent):
        @hookimpl
        def repo_agent_initialize(self) -> None:
            raise OSError("no route to the key server")

    assert reason(agents(installed={"mine": Broken()}), "mine", Internal) == (
        "repository agent 'mine' failed to initialize: OSError: no route to the key server"
    )
