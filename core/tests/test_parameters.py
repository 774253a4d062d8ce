"""Values of parameters as text, and parameters that no backend reads."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.handles import Backend, Model, OpLibrary
from tritonpy.parameters import parse_flag, parse_whole, warn_of_unknown_parameters


@pytest.mark.parametrize(("text", "flag"), [("true", True), ("ON", True), ("No", False), ("0", False)])
def test_a_truth_value_has_several_spellings(text: str, flag: bool) -> None:
    assert parse_flag(text, "here") is flag


@pytest.mark.parametrize("text", ["", "2", "maybe"])
def test_everything_else_is_no_truth_value(text: str) -> None:
    with pytest.raises(InvalidArg, match=f"failed to convert '{text}' to boolean: here, expected true"):
        parse_flag(text, "here")


@pytest.mark.parametrize(
    ("text", "least", "message"), [("-1", 0, "0 or more"), ("0", 1, "1 or more"), ("²", 0, "")]
)
def test_a_number_out_of_bounds_is_told(text: str, least: int, message: str) -> None:
    assert parse_whole("12", "here", least) == 12
    with pytest.raises(InvalidArg, match=f"here: got '{text}', expected a whole number, {message}"):
        parse_whole(text, "here", least)


@pytest.mark.parametrize(
    ("keys", "warnings"),
    [
        (["THREADS", "TRITONPY_ISOLATION", "EXECUTION_ENV_PATH"], []),
        (["threads"], ["parameter 'threads' is not known, did you mean 'THREADS'?"]),
        (["other"], ["parameter 'other' is not known"]),
        (["OLD"], ["parameter 'OLD' has no effect"]),
        (["other", "TRITON_BATCH_STRATEGY_PATH"], []),
        (
            ["threads", "TRITON_BATCH_STRATEGY_PATH"],
            ["parameter 'threads' is not known, did you mean 'THREADS'?"],
        ),
    ],
)
def test_parameters_that_nothing_reads_are_named(
    keys: list[str], warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    config = {"parameters": {key: {"string_value": "1"} for key in keys}}
    model = Model("net", 1, config, Path("/nowhere"), Backend("xyz"))

    with caplog.at_level(logging.WARNING, "tritonpy.backend.xyz"):
        warn_of_unknown_parameters(model, ["THREADS"], ["OLD"])

    assert [record.getMessage() for record in caplog.records] == [f"model 'net': {each}" for each in warnings]


def test_a_plugin_with_operators_may_have_parameters_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    config = {"parameters": {"xyz_precision": {"string_value": "high"}}}
    library = OpLibrary(Path("/xyz.so"), "plugin 'xyz'")
    model = Model("net", 1, config, Path("/nowhere"), Backend("flow"), plugin_op_libraries=[library])

    with caplog.at_level(logging.WARNING, "tritonpy.backend.flow"):
        warn_of_unknown_parameters(model, ["THREADS"])

    assert caplog.records == []
