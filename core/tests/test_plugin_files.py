from __future__ import annotations

import gc
import pickle
import py_compile
import sys
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import Internal, NotFound, Unsupported
from tritonpy.plugin import hookimpl
from tritonpy.plugin_files import PluginOpener, bind_file, first_file, import_file
from tritonpy.plugin_manager import PluginManager

SOURCE = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Point:
    x: int = {x}
"""


def write(path: Path, x: int) -> Path:
    path.write_text(SOURCE.format(x=x))
    return path


def test_each_import_of_a_file_is_a_module_of_its_own(tmp_path: Path) -> None:
    first: Any = import_file(write(tmp_path / "agent.py", 1), "agent")
    second: Any = import_file(write(tmp_path / "agent.py", 2), "agent")

    assert (first.Point().x, second.Point().x) == (1, 2)
    assert pickle.loads(pickle.dumps(first.Point())) == first.Point()
    assert pickle.loads(pickle.dumps(second.Point())) == second.Point()


def test_a_file_is_compiled_from_its_source_and_nothing_is_written_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "agent.py", 1)
    other = write(tmp_path / "other.py", 2)
    compiled = Path(cache_from_source(str(path)))
    py_compile.compile(str(other), str(compiled), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)

    module: Any = import_file(path, "agent")
    import_file(other, "agent")

    assert module.Point().x == 1
    assert list(compiled.parent.iterdir()) == [compiled]


AGENT = """
from tritonpy.plugin import hookimpl

@hookimpl
def repo_agent_model_action(agent, model, action):
    return action
"""


def test_a_module_can_be_found_by_its_name_as_long_as_its_binder_is_held(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    modules = set(sys.modules)

    bind: Any = bind_file("repo_agents", path, "repository agent")
    (name,) = set(sys.modules) - modules
    hook = bind("repo_agent_model_action")
    assert hook.__module__ == name

    del bind
    gc.collect()
    assert set(sys.modules) <= modules  # those of earlier tests may have gone as well
    assert hook("agent", "model", "LOAD") == "LOAD"  # whoever calls it still can


def test_a_file_whose_hooks_do_not_fit_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text(AGENT.replace("action)", "action, more)"))
    modules = set(sys.modules)

    with pytest.raises(Internal, match="does not fit the hooks"):
        bind_file("repo_agents", path, "repository agent")

    assert set(sys.modules) <= modules


@pytest.mark.parametrize(
    ("source", "reason"), [("1 / 0", "ZeroDivisionError: division by zero"), ("exit(3)", "SystemExit: 3")]
)
def test_a_file_that_fails_to_import_is_named_and_leaves_nothing(
    tmp_path: Path, source: str, reason: str
) -> None:
    path = tmp_path / "agent.py"
    path.write_text(source)
    modules = set(sys.modules)

    with pytest.raises(Internal) as caught:
        import_file(path, "repository agent")

    assert str(caught.value) == f"repository agent {path} failed to import: {reason}"
    assert set(sys.modules) <= modules


class Loader:
    def __init__(self, opened: object) -> None:
        self.asked: list[tuple[str, str]] = []
        self._opened = opened

    @hookimpl
    def load_shared_object(self, kind: str, path: str) -> object:
        self.asked.append((kind, path))
        if isinstance(self._opened, Exception):
            raise self._opened
        return self._opened


def agents(*loaders: object, disabled: Sequence[str] = ()) -> PluginOpener:
    installed = PluginManager("repo_agents", discover=False)
    installed.register("installed", SimpleNamespace(repo_agent_model_action=hookimpl(lambda: "installed")))
    manager = PluginManager("loaders", discover=False, disabled=disabled)
    for name, loader in enumerate(loaders):
        manager.register(str(name), loader)
    return PluginOpener(installed, manager, "repository agent")


def opened_agent() -> object:
    return SimpleNamespace(repo_agent_model_action=hookimpl(lambda action: f"C: {action}"))


def test_an_installed_plugin_is_bound_by_its_name() -> None:
    opener = agents()

    assert opener.names() == ["installed"]
    action = opener.load("installed")("repo_agent_model_action")
    assert action is not None
    assert action("agent", "model", "LOAD") == "installed"


def test_loaders_are_asked_until_one_opens_the_file() -> None:
    passing, opening, unasked = Loader(None), Loader(opened_agent()), Loader(object())

    action = agents(passing, opening, unasked).open(Path("/a.so"))("repo_agent_model_action")

    assert action is not None
    assert action("agent", "model", "LOAD") == "C: LOAD"
    assert passing.asked == opening.asked == [("repo_agents", "/a.so")]
    assert not unasked.asked


def test_an_installed_plugin_that_is_a_library_is_opened_by_the_loaders(tmp_path: Path) -> None:
    library = tmp_path / "agent.so"
    library.touch()
    installed = PluginManager("repo_agents", discover=False)
    loaders = PluginManager("loaders", discover=False)
    loader = Loader(opened_agent())
    installed.register("mine", library)
    loaders.register("loader", loader)

    action = PluginOpener(installed, loaders, "repository agent").load("mine")("repo_agent_model_action")

    assert action is not None
    assert loader.asked == [("repo_agents", str(library))]
    assert action("agent", "model", "LOAD") == "C: LOAD"


def test_loaders_are_given_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loader = Loader(opened_agent())

    agents(loader).open(Path("a.so"))

    assert loader.asked == [("repo_agents", str(tmp_path / "a.so"))]


def test_a_file_of_python_needs_no_loader(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text(AGENT)

    action = agents().open(path)("repo_agent_model_action")

    assert action is not None
    assert action("agent", "model", "LOAD") == "LOAD"


@pytest.mark.parametrize("loaders", [[], [Loader(None)]])
def test_a_shared_object_that_nothing_opens_says_what_to_install(loaders: list[object]) -> None:
    with pytest.raises(Unsupported) as caught:
        agents(*loaders).open(Path("/a.so"))

    assert str(caught.value) == (
        "repository agent /a.so is a shared object, and nothing is installed that opens it: "
        "pip install tritonpy-abi"
    )


def test_a_loader_that_cannot_be_used_is_named_with_the_reason() -> None:
    with pytest.raises(
        Unsupported, match="opens it; plugin 'abi' of kind 'loaders' is disabled by --disable"
    ):
        agents(disabled=["abi"]).open(Path("/a.so"))


def test_an_error_of_a_loader_keeps_its_code_and_text() -> None:
    with pytest.raises(NotFound, match=r"^no such symbol$"):
        agents(Loader(NotFound("no such symbol"))).open(Path("/a.so"))


def test_a_loader_that_breaks_is_named_with_the_file() -> None:
    with pytest.raises(Internal) as caught:
        agents(Loader(OSError("short read"))).open(Path("/a.so"))

    assert str(caught.value) == (
        "repository agent /a.so: plugin '0' of kind 'loaders' failed to open it: OSError: short read"
    )


def test_what_a_loader_gives_is_checked_like_every_plugin() -> None:
    misspelt = SimpleNamespace(repo_agent_model_acton=hookimpl(lambda: None))

    with pytest.raises(Internal, match=r"'/a\.so' does not fit the hooks of kind 'repo_agents'"):
        agents(Loader(misspelt)).open(Path("/a.so"))


def test_files_are_looked_for_in_one_directory_after_the_other(tmp_path: Path) -> None:
    for path in ("one/b.py", "two/a.so", "two/b.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "one/a.so").mkdir()  # is no file
    directories = [tmp_path / "none", tmp_path / "one", tmp_path / "two"]

    assert first_file(directories, ("a.so", "b.py")) == tmp_path / "one/b.py"
    assert first_file(directories[2:], ("a.so", "b.py")) == tmp_path / "two/a.so"
    assert first_file(directories[:1], ("a.so", "b.py")) is None
