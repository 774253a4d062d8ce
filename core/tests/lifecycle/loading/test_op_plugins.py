"""Plugins are asked for libraries of custom operators, and named where they fail."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import ErrorCode, TritonError, Unavailable
from tritonpy.handles import Backend, Model, OpLibrary
from tritonpy.lifecycle.loading.op_plugins import OpPlugins
from tritonpy.plugin import hookimpl
from tritonpy.plugin_manager import PluginManager

CONFIG = {"model_operations": {"op_library_filename": ["own.so", "/elsewhere/theirs.so"]}}


def model(**parameters: str) -> Model:
    config = {"parameters": {key: {"string_value": value} for key, value in parameters.items()}}
    return Model("net", 1, config | CONFIG, Path("/models/net"), Backend("flow"))


def plugin(answer: Any) -> object:
    """A plugin that answers so, or as this function does."""

    @hookimpl
    def op_library_paths(framework: str, model: Model) -> Any:
        return answer(framework, model) if callable(answer) else answer

    return SimpleNamespace(op_library_paths=op_library_paths)


def plugins(*, disabled: tuple[str, ...] = (), **answers: Any) -> OpPlugins:
    manager = PluginManager("op_libraries", discover=False, disabled=disabled)
    for name, answer in answers.items():
        manager.register(name, plugin(answer))
    return OpPlugins(manager)


def failing(error: Exception) -> Any:
    def fail(framework: str, model: Model) -> Any:
        raise error

    return fail


def test_the_libraries_of_all_plugins_come_before_those_of_the_configuration() -> None:
    asked = plugins(
        b=lambda framework, model: [f"/b/{framework}-{model.parameter('size')}.so"],
        a=[Path("/a/1.so"), "/a/2.so"],
        none=(),
        disabled=("off",),
    )
    handle = model(size="big")

    handle.plugin_op_libraries = asked.libraries_of("flow", handle)

    named_by_b = "plugin 'b' of kind 'op_libraries'"
    named_by_model = "'op_library_filename' of model 'net'"
    assert handle.op_libraries == [
        OpLibrary(Path("/a/1.so"), "plugin 'a' of kind 'op_libraries'"),
        OpLibrary(Path("/a/2.so"), "plugin 'a' of kind 'op_libraries'"),
        OpLibrary(Path("/b/flow-big.so"), named_by_b),
        OpLibrary(Path("/models/net/own.so"), named_by_model),
        OpLibrary(Path("/elsewhere/theirs.so"), named_by_model),
    ]


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (failing(LookupError("no licence")), ErrorCode.INTERNAL, "LookupError: no licence"),
        (failing(Unavailable("no licence")), ErrorCode.UNAVAILABLE, "no licence"),
        (["lib/x.so"], ErrorCode.INTERNAL, "got 'lib/x.so', expected an absolute path"),
        ([None], ErrorCode.INTERNAL, "got None, expected an absolute path"),
        ("/x.so", ErrorCode.INTERNAL, "got '/x.so', expected a list of absolute paths"),
        (None, ErrorCode.INTERNAL, "got None, expected a list of absolute paths"),
    ],
)
def test_a_plugin_that_fails_is_named_with_the_model(answer: Any, code: ErrorCode, text: str) -> None:
    with pytest.raises(TritonError) as caught:
        plugins(xyz=answer).libraries_of("flow", model())

    expected = f"plugin 'xyz' of kind 'op_libraries' failed to name libraries for model 'net': {text}"
    assert (caught.value.code, caught.value.message) == (code, expected)


def test_a_plugin_without_the_hook_is_named() -> None:
    manager = PluginManager("op_libraries", discover=False)
    manager.register("empty", SimpleNamespace())

    with pytest.raises(TritonError, match="plugin 'empty' of kind 'op_libraries' has no hook 'op_library_pa"):
        OpPlugins(manager).libraries_of("flow", model())
