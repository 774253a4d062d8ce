"""Plugins with operators are asked as a server asks them, and held to the rules of their hook."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tritonpy.plugin import Model, NotFound, TritonError, hookimpl
from tritonpy_sdk.testing import ask_op_libraries


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "net/3").mkdir(parents=True)
    return tmp_path / "net"


def plugin(answer: Any) -> object:
    @hookimpl
    def op_library_paths(framework: str, model: Model) -> Any:
        return answer(framework, model)

    return SimpleNamespace(op_library_paths=op_library_paths)


def test_the_answer_is_for_the_newest_version_and_its_configuration(directory: Path) -> None:
    def answer(framework: str, model: Model) -> list[str]:
        if framework != "flow":
            return []
        return [f"/{model.name}-{model.version}-{model.parameter('size')}.so"]

    config = {"parameters": {"size": {"string_value": "big"}}}
    assert ask_op_libraries(plugin(answer), "flow", directory, config) == [Path("/net-3-big.so")]


def test_what_would_fail_a_load_is_raised(directory: Path) -> None:
    with pytest.raises(TritonError, match=r"'plugin under test' .* got 'x.so', expected an absolute path"):
        ask_op_libraries(plugin(lambda framework, model: ["x.so"]), "flow", directory)
    with pytest.raises(NotFound, match="no installed plugin of kind 'op_libraries' is called 'nosuch'"):
        ask_op_libraries("nosuch", "flow", directory)


def import_torch(framework: str, model: Model) -> list[str]:
    sys.modules["torch"] = ModuleType("torch")
    return []


def change(framework: str, model: Model) -> list[str]:
    model.config["name"] = "other"
    return []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda framework, model: ["/x.so"], "names libraries for 'a framework of tomorrow'"),
        (change, "the plugin changed the model"),
        (import_torch, "the plugin imports 'torch' in the server's process"),
    ],
)
def test_a_broken_rule_is_told(
    answer: Any, message: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))  # and put back what there was before
    monkeypatch.delitem(sys.modules, "torch")

    with pytest.raises(AssertionError, match=message):
        ask_op_libraries(plugin(answer), "pytorch", directory)


def test_an_answer_that_changes_is_told(directory: Path) -> None:
    answers = iter([["/a.so"], ["/b.so"]])

    with pytest.raises(AssertionError, match="asked again, the plugin names"):
        ask_op_libraries(plugin(lambda framework, model: next(answers)), "pytorch", directory)
