"""Priorities and limits of queues, on our server and on a real one: same order, refusals and counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tritonpy_sdk.testing import DEADLINE_S

from ..servers import OURS_AND_REAL
from .asker import Asker, askers

LEVELS = {"priority_levels": 3, "default_priority_level": 2}
CASES: dict[str, dict[str, Any]] = {
    "levels": LEVELS,
    "limits_by_level": LEVELS | {"priority_queue_policy": {"1": {"max_queue_size": 1}}},
    "limit": {"default_queue_policy": {"max_queue_size": 2}},
    "reject": {
        "default_queue_policy": {"default_timeout_microseconds": 60_000_000, "allow_timeout_override": True}
    },
    "fixed": {"default_queue_policy": {"default_timeout_microseconds": 60_000_000}},
    "delay": {
        "default_queue_policy": {
            "timeout_action": "DELAY",
            "default_timeout_microseconds": 60_000_000,
            "allow_timeout_override": True,
        }
    },
}


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def asker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Asker]]:
    root = tmp_path_factory.mktemp(request.param)
    cases = {name: {"dynamic_batching": batching} for name, batching in CASES.items()}
    with askers(request, root, cases) as make:
        yield make


def test_levels_run_in_order_and_a_wrong_one_counts_as_the_default(asker: Callable[[str], Asker]) -> None:
    model = asker("levels")
    for priority in (3, 3, 2, 0, 1, 0, 1, 99):
        model.ask(priority=priority)

    assert model.release() == [5, 7, 3, 4, 6, 8, 1, 2]


def test_a_full_queue_refuses_and_counts_no_failure(asker: Callable[[str], Asker]) -> None:
    model = asker("limit")
    model.ask()
    model.ask()

    status, error = model.ask(waits=False).result(DEADLINE_S)

    assert (status, error.removeprefix("[request id: <id_unknown>] ")) == (503, "Exceeds maximum queue size")
    assert model.release() == [1, 2]
    assert model.failures == 0


def test_a_full_level_leaves_the_others_open(asker: Callable[[str], Asker]) -> None:
    model = asker("limits_by_level")
    model.ask(priority=1)

    assert model.ask(waits=False, priority=1).result(DEADLINE_S)[0] == 503
    model.ask(priority=2)
    model.ask()

    assert model.release() == [1, 3, 4]


def test_a_request_that_waits_too_long_is_refused_though_the_instance_is_busy(
    asker: Callable[[str], Asker],
) -> None:
    model = asker("reject")
    model.ask()
    late = model.ask(waits=False, timeout=200_000)

    status, error = late.result(DEADLINE_S)

    assert (status, error) == (503, "Request timeout expired")
    model.until(lambda: model.pending == 1)
    assert model.release() == [1]
    assert model.failures == 1


def test_a_timeout_of_a_request_counts_only_where_it_is_allowed(asker: Callable[[str], Asker]) -> None:
    model = asker("fixed")
    model.ask(timeout=1)
    model.ask(timeout=1)

    assert model.release() == [1, 2]
    assert model.failures == 0


def test_a_request_that_is_delayed_runs_after_those_in_time(asker: Callable[[str], Asker]) -> None:
    model = asker("delay")
    model.ask(timeout=1000)
    time.sleep(0.05)  # its time is up
    model.ask()
    model.ask()

    assert model.release() == [2, 3, 1]
    assert model.failures == 0
