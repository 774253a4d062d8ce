"""Metrics of workers that report them as a whole."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tritonpy.metrics.custom import CustomMetrics
from tritonpy.metrics.exposition import render
from tritonpy.metrics.models import ModelMetrics


@dataclass(frozen=True, eq=False)
class Worker:
    instance: str


ONE, TWO = Worker("m_0_0"), Worker("m_0_1")


def sample(
    value: float,
    bounds: list[float] | None = None,
    counts: list[int] | None = None,
    set_count: int = 0,
    **labels: str,
) -> Any:
    return labels, value, bounds or [], counts or [], set_count


def family(*samples: Any, name: str = "tokens", kind: str = "counter") -> Any:
    return name, "Tokens", kind, list(samples)


class Kept:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ModelMetrics(self.registry, list)
        self.metrics = CustomMetrics(self.registry)

    def report(self, worker: Worker, *families: Any) -> None:
        self.metrics.tell(worker, "state", (list(families),))

    def lines(self) -> list[str]:
        self.metrics.take()
        lines = render(self.registry).decode().splitlines()
        return [line for line in lines if line.startswith(("tokens", "others"))]


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_what_workers_count_under_the_same_labels_is_added(kept: Kept) -> None:
    kept.report(ONE, family(sample(2, kind="a"), sample(5)))
    kept.report(TWO, family(sample(3, kind="a")))
    kept.report(ONE, family(sample(4, kind="a"), sample(5)))

    assert kept.lines() == ['tokens{kind="a"} 7', "tokens 5"]


def test_a_gauge_is_what_was_set_last_and_changed_since(kept: Kept) -> None:
    kept.report(ONE, family(sample(10, set_count=1), kind="gauge"))
    kept.report(TWO, family(sample(10, set_count=1), kind="gauge"))
    same = kept.lines()
    kept.report(TWO, family(sample(7, set_count=1), kind="gauge"))
    changed = kept.lines()
    kept.report(ONE, family(sample(10, set_count=2), kind="gauge"))

    assert (same, changed, kept.lines()) == (["tokens 10"], ["tokens 7"], ["tokens 10"])


def test_gauges_that_are_only_changed_are_added(kept: Kept) -> None:
    kept.report(ONE, family(sample(2), kind="gauge"))
    kept.report(TWO, family(sample(3), kind="gauge"))
    kept.report(ONE, family(sample(1), kind="gauge"))

    assert kept.lines() == ["tokens 4"]


def test_histograms_with_the_same_buckets_are_added(kept: Kept) -> None:
    kept.report(ONE, family(sample(1.5, [1.0, 2.0], [0, 1, 0]), kind="histogram"))
    kept.report(TWO, family(sample(5.5, [1.0, 2.0], [1, 0, 1]), kind="histogram"))
    kept.report(ONE, family(sample(3.0, [1.0, 2.0], [0, 2, 0]), kind="histogram"))
    kept.report(Worker("other"), family(sample(9.0, [4.0], [0, 1]), kind="histogram"))

    assert set(kept.lines()) == {
        'tokens_bucket{le="1"} 1',
        'tokens_bucket{le="2"} 3',
        'tokens_bucket{le="+Inf"} 4',
        "tokens_count 4",
        "tokens_sum 8.5",
    }


def test_what_is_not_reported_any_more_is_gone(kept: Kept) -> None:
    kept.report(ONE, family(sample(2, kind="a"), sample(5)), family(sample(1), name="others"))
    kept.report(TWO, family(sample(2, kind="a")))
    kept.report(ONE, family(sample(5)))
    without = kept.lines()
    kept.report(ONE)
    only_two = kept.lines()
    kept.metrics.caller_gone(TWO)

    assert without == ['tokens{kind="a"} 4', "tokens 5"]
    assert only_two == ['tokens{kind="a"} 4']
    assert kept.lines() == []


def test_what_a_worker_reported_is_gone_with_it(kept: Kept) -> None:
    kept.report(ONE, family(sample(2)))

    kept.metrics.caller_gone(ONE)

    assert kept.lines() == []


def test_a_family_may_be_made_anew_as_another_kind(kept: Kept) -> None:
    kept.report(ONE, family(sample(2)))
    kept.report(ONE, family(sample(3, set_count=1), kind="gauge"))

    assert kept.lines() == ["tokens 3"]


@pytest.mark.parametrize("name", ["nv_inference_count", "tokens", "to kens"])
def test_a_family_whose_name_is_taken_or_none_is_left_out(
    kept: Kept, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    kept.report(TWO, family(sample(1)))
    with caplog.at_level(logging.WARNING):
        for value in (1, 2):
            kept.report(ONE, family(sample(value), name=name, kind="gauge"), family(sample(7), name="others"))

    assert set(kept.lines()) == {"tokens 1", "others 7"}
    (record,) = caplog.records
    assert record.getMessage().startswith(f"metrics of instance '{ONE.instance}' are not shown: ")
