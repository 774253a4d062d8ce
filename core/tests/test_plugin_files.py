from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import Internal
from tritonpy.plugin import hookimpl
from tritonpy.plugin_files import import_file, open_shared_object
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
