"""What agents count is on the metrics page, as it was when they answered last."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy.process_metrics import MetricFamily, MetricSample, process_metrics
from tritonpy_abi.agents import metrics

from ..conftest import Compiled
from .conftest import Living, Place


def shown(name: str) -> list[MetricFamily]:
    return [family for family in process_metrics() if family.name == name]


def test_what_an_agent_counts_is_shown_until_its_process_ends(place: Place) -> None:
    living = Living(place)
    first = living.model("first", **{"in": "LOAD", "do": "count", "with": "a"})
    again = living.model("again", **{"in": "LOAD", "do": "count", "with": "a"})
    other = living.model("other", **{"in": "LOAD", "do": "count", "with": "b"})
    while_it_lives = shown("obedient_deeds")
    for model in (first, again, other):
        living.end(model)
    living.plugin.repo_agent_finalize(living.agent)

    samples = [MetricSample({"of": "a"}, 2.0), MetricSample({"of": "b"}, 1.0)]
    assert while_it_lives == [MetricFamily("obedient_deeds", "What was done", "counter", samples)]
    assert shown("obedient_deeds") == []


def test_two_agents_that_count_under_one_name_have_one_family(
    place: Place, compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living(place)
    model = living.model("model", **{"in": "LOAD", "do": "count", "with": "a"})
    others = Living(Place(compiled("agents/obedient.cc", '-DNAME="other"'), tmp_path / "other"))
    more = [others.model(of, **{"in": "LOAD", "do": "count", "with": of}) for of in ("a", "b")]
    (family,) = shown("obedient_deeds")
    living.end(model)
    for other in more:
        others.end(other)
    for each in (living, others):
        each.plugin.repo_agent_finalize(each.agent)

    assert [sample.labels["of"] for sample in family.samples] == ["a", "b"]


def test_a_name_of_two_kinds_is_shown_with_the_first_one() -> None:
    family = MetricFamily("of_two_kinds", "", "gauge", [MetricSample({}, 1)])
    metrics.show(-1, [family])
    metrics.show(-2, [MetricFamily("of_two_kinds", "", "counter", [MetricSample({"a": "b"}, 2)])])
    found = shown("of_two_kinds")
    for pid in (-1, -2):
        metrics.forget(pid)

    assert found == [family]
