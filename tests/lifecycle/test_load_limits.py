"""How many models load at once, how often a load is tried, and in which order instances begin."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository

from .journal import Client, Journal, config, count_of, model


def meeting(count: int, limit_s: float = 60) -> str:
    """Code that goes on when so many have begun, or after a while."""
    return (
        f"self.tell('begin'); late = time.monotonic() + {limit_s}\n"
        f"        while open(self.journal).read().count('begin') < {count} and time.monotonic() < late:\n"
        f"            time.sleep(0.01)\n"
        f"        time.sleep(0.05); self.tell('end')"
    )


def most_at_once(lines: list[str]) -> int:
    """How many were between `begin` and `end` together."""
    running = most = 0
    for line in lines:
        running += line.endswith("begin") - line.endswith("end")
        most = max(most, running)
    return most


@pytest.mark.parametrize("thread_count", [1, 3])
def test_no_more_models_are_loaded_at_once_at_the_start_than_allowed(
    serve: Callable[..., Any], tmp_path: Path, thread_count: int
) -> None:
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    for name in "abcd":
        models.python(name, model(meeting(thread_count)), config(path))

    serve(models.path, model_load_thread_count=thread_count)

    lines = Journal(path).lines()
    assert count_of(lines, "end") == 4
    assert most_at_once(lines) == thread_count


@pytest.mark.parametrize("thread_count", [1, 2])
def test_versions_of_one_model_count_one_by_one(
    serve: Callable[..., Any], tmp_path: Path, thread_count: int
) -> None:
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    given = config(path, version_policy={"all": {}})
    for version in (1, 2, 3):
        models.python("m", model(meeting(thread_count)), given, version=version)

    serve(models.path, model_load_thread_count=thread_count)

    lines = Journal(path).lines()
    assert count_of(lines, "end") == 3
    assert most_at_once(lines) == thread_count


def test_models_that_load_each_other_in_initialize_share_one_place(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    """`a` waits for `b`, `b` for `c`, and there is room for one."""
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    models.python("a", model("pb_utils.load_model('b')"), config(path))
    models.python("b", model("pb_utils.load_model('c')"), config(path))
    models.python("c", model(), config(path))
    server = serve(models.path, model_control_mode="explicit", model_load_thread_count=1)
    with Client(server.http_port, "a") as client:
        assert client.load() == ""
        _, index = client.ask("POST", "/v2/repository/index", {"ready": True})
    assert [entry["name"] for entry in index] == ["a", "b", "c"]


def test_a_version_that_cannot_be_loaded_is_tried_again_at_once(
    serve: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    third = f"open('{path}').read().count('initialize') < 3 and pb_utils.no_such_name"
    models.python("m", model(third), config(path))
    server = serve(models.path, model_control_mode="explicit", model_load_retry_count=2)
    with Client(server.http_port) as client, caplog.at_level(logging.ERROR, "tritonpy.repository"):
        assert client.load() == ""

    assert count_of(Journal(path).lines(), "initialize") == 3
    told = [message.partition(": ")[0] for message in caplog.messages if "attempt" in message]
    assert told == [f"failed to load 'm' version 1, attempt {number} of 3" for number in (1, 2)]
    assert all("AttributeError" in message for message in caplog.messages if "attempt" in message)


def test_after_the_last_attempt_the_reason_is_that_of_the_last_one(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    models.python("m", model(f"raise ValueError(open('{path}').read().count('initialize'))"), config(path))
    models.python("bad", model(), {**config(path), "instance_group": [{"kind": "KIND_GPU"}]})
    server = serve(models.path, model_control_mode="explicit", model_load_retry_count=3)
    with Client(server.http_port) as client, Client(server.http_port, "bad") as bad:
        assert "version 1 is at UNAVAILABLE state: Internal: ValueError: 4\n" in client.load()
        assert "no GPUs are available" in bad.load()  # tried as often, as Triton does, and said once


@pytest.mark.parametrize(("wish", "expected"), [(None, 3), ("0", 1), ("1", 3), ("yes", 3)])
def test_instances_of_python_models_begin_together_unless_the_environment_says_otherwise(
    serve: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wish: str | None,
    expected: int,
) -> None:
    if wish is not None:
        monkeypatch.setenv("TRITON_PARALLEL_INSTANCE_LOADING", wish)
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    limit_s = 60 if expected == 3 else 0.2
    models.python("m", model(meeting(3, limit_s)), config(path, {"count": 3}))

    serve(models.path)

    assert most_at_once(Journal(path).lines()) == expected
