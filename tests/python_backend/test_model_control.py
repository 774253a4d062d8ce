"""Models that load, unload and ask about other models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DIES = "2.51 may die of it"
FAILED = "Failed to process the request for model 'cases_0', message: "
ADD = Path(__file__).parent / "models" / "add" / "1" / "model.py"
SMALL = json.dumps(
    {
        "backend": "python",
        "max_batch_size": 2,
        "input": [{"name": name, "data_type": "TYPE_FP32", "dims": [2]} for name in "AB"],
        "output": [{"name": "SUM", "data_type": "TYPE_FP32", "dims": [2]}],
    }
)


def ask(server, case: str, *args: Any) -> Any:
    return server.ask(f"control.{case}", *args)


@pytest.fixture
def unloaded(explicit_server):
    """The server, with nothing but `cases` on it."""
    for model in ("add", "mirror", "added"):
        ask(explicit_server, "unload", model)
    explicit_server.wait_for(
        lambda: not any(ask(explicit_server, "is_ready", model) for model in ("add", "mirror", "added"))
    )
    return explicit_server


def test_a_model_is_loaded_called_and_unloaded(unloaded):
    before = ask(unloaded, "is_ready", "add")
    loaded = ask(unloaded, "load", "add")

    assert (before, loaded) == (False, None)
    assert ask(unloaded, "is_ready", "add") is True
    assert ask(unloaded, "call", "add") == [[2, 2]]
    assert ask(unloaded, "unload", "add") is None
    unloaded.wait_for(lambda: ask(unloaded, "is_ready", "add") is False)


def test_each_version_is_ready_or_not(unloaded):
    ask(unloaded, "load", "mirror")

    ready = {version: ask(unloaded, "is_ready", "mirror", version) for version in ("", "1", "2", "3")}

    assert ready == {"": True, "1": True, "2": False, "3": True}


def test_a_model_that_is_not_known_is_not_ready(unloaded):
    assert ask(unloaded, "is_ready", "nope") is False


@pytest.mark.parametrize("model", ["add", "nope"])
def test_what_is_not_loaded_may_be_unloaded(unloaded, model):
    assert ask(unloaded, "unload", model) is None


def test_a_configuration_replaces_the_one_in_the_repository(unloaded):
    assert ask(unloaded, "load", "add", SMALL) is None
    assert unloaded.config("add")["max_batch_size"] == 2
    assert ask(unloaded, "call", "add") == [[2, 2]]


def test_a_model_is_loaded_from_files_that_come_along(unloaded):
    files = {"file:1/model.py": ADD.read_text()}

    assert ask(unloaded, "load_with", "added", {"config": SMALL, "files": files}) is None
    assert ask(unloaded, "is_ready", "added") is True
    assert ask(unloaded, "call", "added") == [[2, 2]]


def test_models_are_loaded_at_the_same_time(unloaded):
    assert ask(unloaded, "load_twice_at_once", "add", "mirror", "add") == [None, None, None]
    assert ask(unloaded, "is_ready", "mirror") is True


def test_an_exception_in_finalize_is_logged_and_ends_nothing(unloaded):
    config = {
        "backend": "python",
        "output": [{"name": "SEEN", "data_type": "TYPE_STRING", "dims": [1]}],
        "parameters": {"fail_at_end": {"string_value": "yes"}},
    }
    ask(unloaded, "load", "early", json.dumps(config))

    ask(unloaded, "unload", "early")

    unloaded.wait_for_log("TritonModelException: cannot end")
    unloaded.wait_for(lambda: unloaded.index()["early/1"] == ("UNAVAILABLE", "unloaded"))


@pytest.mark.ours("2.51 goes on showing it")
def test_the_metrics_of_a_model_go_with_it(unloaded):
    ask(unloaded, "load", "early")
    unloaded.infer("early", {})
    assert unloaded.metrics("early_requests")

    ask(unloaded, "unload", "early")

    unloaded.wait_for(lambda: not unloaded.metrics("early_requests"))


@pytest.mark.ours(DIES)
def test_a_model_that_does_not_exist_cannot_be_loaded(unloaded):
    kind, text = ask(unloaded, "load", "nope")

    assert kind == "TritonModelException"
    assert text.startswith("Failed to load model: ")
    assert "failed to load 'nope', failed to poll from model repository" in text


@pytest.mark.ours(DIES)
def test_a_model_that_fails_says_why(unloaded):
    kind, text = ask(unloaded, "load", "raises_in_initialize")

    assert kind == "TritonModelException"
    assert text.startswith("Failed to load model: ")
    assert (
        "load failed for model 'raises_in_initialize': version 1 is at UNAVAILABLE state: Internal: "
        "ValueError: no weights" in text
    )


@pytest.mark.ours(DIES)
@pytest.mark.parametrize(
    "arguments",
    [
        {"config": "{bad"},
        {"config": SMALL, "files": {"1/model.py": "x"}},
        {"files": {"file:1/model.py": "x"}},
    ],
    ids=["no JSON", "a path without file:", "files without a configuration"],
)
def test_what_cannot_be_loaded_is_refused_and_what_serves_goes_on_serving(unloaded, arguments):
    ask(unloaded, "load", "add")

    kind, text = ask(unloaded, "load_with", "add", arguments)

    assert kind == "TritonModelException"
    assert text.startswith("Failed to load model: ")
    assert ask(unloaded, "call", "add") == [[2, 2]]


@pytest.mark.ours(DIES)
def test_a_version_is_a_number(unloaded):
    kind, text = ask(unloaded, "is_ready", "add", "x")

    assert kind == "TritonModelException"
    assert text.startswith("Failed to check model readiness: ")
    assert "failed to get model version from specified version string 'x'" in text


@pytest.mark.ours(DIES)
@pytest.mark.parametrize(
    ("step", "text"), [("load", "Failed to load model: "), ("unload", "Failed to unload")]
)
def test_without_model_control_a_model_only_asks(server, step, text):
    kind, found = ask(server, step, "add")

    assert kind == "TritonModelException"
    assert found.startswith(text)
    assert ask(server, "is_ready", "add") is True
