from __future__ import annotations

import gc
import pickle
import py_compile
import sys
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import pytest
from tritonpy.errors import Internal
from tritonpy.plugin import hookimpl
from tritonpy.plugin_files import bind_file, import_file, open_shared_object
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
    assert set(sys.modules) == modules
    assert hook("agent", "model", "LOAD") == "LOAD"  # whoever calls it still can


def test_a_file_whose_hooks_do_not_fit_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text(AGENT.replace("action)", "action, more)"))
    modules = set(sys.modules)

    with pytest.raises(Internal, match="does not fit the hooks"):
        bind_file("repo_agents", path, "repository agent")

    assert set(sys.modules) == modules


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
    assert set(sys.modules) == modules


class Loader:
    def __init__(self, opened: object) -> None:
        self.asked: list[tuple[str, str]] = []
        self._opened = opened

    @hookimpl
    def load_shared_object(self, kind: str, path: str) -> object:
        self.asked.append((kind, path))
        return self._opened


def test_loaders_are_asked_until_one_opens_the_file() -> None:
    plugin = object()
    passing, opening, unasked = Loader(None), Loader(plugin), Loader(object())
    manager = PluginManager("loaders", discover=False)
    for name, loader in (("1", passing), ("2", opening), ("3", unasked)):
        manager.register(name, loader)

    assert open_shared_object(manager, "repo_agents", Path("/a.so")) is plugin
    assert passing.asked == opening.asked == [("repo_agents", "/a.so")]
    assert not unasked.asked


def test_a_file_that_no_loader_opens_is_none() -> None:
    manager = PluginManager("loaders", discover=False)
    assert open_shared_object(manager, "repo_agents", Path("/a.so")) is None

    manager.register("1", Loader(None))
    assert open_shared_object(manager, "repo_agents", Path("/a.so")) is None
