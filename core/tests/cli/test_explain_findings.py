"""What is found in the numbers of a model, and how they are told."""

from __future__ import annotations

from typing import Any

import pytest
from tritonpy.cli.explain import difference
from tritonpy.cli.explain_findings import busy_part, findings, mean_rows
from tritonpy.cli.explain_text import describe

Facts = dict[str, Any]

PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


def facts(kind: str = "dynamic_batching", settings: Facts | None = None, **changes: Any) -> Facts:
    """Ten seconds of 100 requests in 50 batches of 2 rows, on one instance; each batch took 10 ms."""
    return {
        "name": "m",
        "version": "1",
        "scheduler": {"kind": kind, "settings": settings or {}},
        "max_batch_size": 8,
        "strategy": "",
        "seconds": 10.0,
        "closed": {"queue empty": 50},
        "batch_sizes": {"2": {"count": 50, "ns": 500_000_000}},
        "requests": dict.fromkeys(PHASES, 100) | {"fail": 0},
        "durations_ns": dict.fromkeys(PHASES, 100 * 100_000) | {"fail": 0},
        "inferences": 100,
        "executions": 50,
        "failures": {"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 0},
        "cache": {"hits": 0, "misses": 0},
        "pending": 0,
        "instances": [{"name": "m_0_0", "is_ready": True, "executing": 0}],
        **changes,
    }


def told(of: Facts) -> str:
    return "\n".join(f"{found['finding']} {found['advice']}" for found in findings(of))


def test_an_empty_queue_is_named_with_what_a_delay_would_bring() -> None:
    text = told(facts(requests=dict.fromkeys(PHASES, 10_000) | {"fail": 0}))

    assert text == (
        "100% of the batches left because the queue was empty: an instance was free, and nothing else "
        "waited. max_queue_delay_microseconds: 1000 would let them grow: about 1 more requests come in that "
        "time, and a batch of 8 needs 6 ms."
    )


def test_nobody_is_told_to_wait_for_requests_that_do_not_come() -> None:
    text = told(facts())

    assert "10 requests come in a second: a delay would make them wait without company." in text
    assert "max_queue_delay_microseconds" not in text


@pytest.mark.parametrize(
    ("reason", "settings", "expected"),
    [
        (
            "delay",
            {"max_queue_delay_microseconds": 50_000},
            "had waited for 50000 µs (max_queue_delay_microseconds). Another delay of 50000 µs would let "
            "them grow: about 0.5 more requests come in that time, and a batch of 8 needs 600 ms.",
        ),
        ("shape", {}, "inputs of other shapes. Pad inputs to few lengths, or set allow_ragged_batch"),
        ("strategy", {}, "because the batching strategy 'volume' refused the next request."),
        ("preferred", {"preferred_batch_size": [2, 4]}, "left at a preferred size (2, 4)."),
        ("full", {}, "left as large as they may be."),
        ("utilization", {}, "because as many slots had a request as minimum_slot_utilization asks for."),
        ("slot busy", {}, "left for the reason 'slot busy'."),
    ],
)
def test_each_reason_has_its_words(reason: str, settings: Facts, expected: str) -> None:
    text = told(facts(settings=settings, closed={reason: 50}, strategy="volume"))

    assert text.startswith("100% of the batches left ")
    assert expected in text


def test_the_most_frequent_reason_comes_first_and_rare_ones_not_at_all() -> None:
    found = findings(facts(closed={"shape": 30, "full": 65, "preferred": 5}))

    assert [one["finding"][:20] for one in found] == ["65% of the batches l", "30% of the batches l"]


def test_a_model_that_could_batch_and_does_not_is_told_how() -> None:
    text = told(facts("default", closed={"single": 50}))

    assert (
        "the model has no dynamic_batching, though its max_batch_size is 8. Add dynamic_batching { }" in text
    )
    assert "does not batch (max_batch_size: 0)" in told(
        facts("default", closed={"single": 50}, max_batch_size=0)
    )


def test_full_batches_that_wait_long_could_be_larger() -> None:
    waits = facts()["durations_ns"] | {"queue": 100 * 900_000}

    text = told(facts(closed={"full": 50}, durations_ns=waits))

    assert "Requests wait longer than they are computed: try a max_batch_size above 8." in text


def test_busy_instances_with_a_queue_are_too_few() -> None:
    waits = facts()["durations_ns"] | {"queue": 100 * 900_000}
    busy = {"2": {"count": 50, "ns": 9_500_000_000}}

    text = told(facts(durations_ns=waits, batch_sizes=busy))

    assert (
        "Instances are busy 95% of the time, and a request waits 900 µs where it is computed for 300 µs. "
        "More instances would shorten the queue, if the machine has room: instance_group { count: 2 }."
    ) in text


def test_waiting_beside_idle_instances_is_for_company() -> None:
    waits = facts()["durations_ns"] | {"queue": 100 * 9_000_000}

    assert "though instances are busy only 5% of the time. It waits for company" in told(
        facts(durations_ns=waits)
    )


def test_the_times_of_a_few_requests_are_chance() -> None:
    few = dict.fromkeys(PHASES, 9) | {"fail": 0}
    waits = facts()["durations_ns"] | {"queue": 9 * 9_000_000}

    assert "A request waits" not in told(facts(requests=few, durations_ns=waits))
    assert "A request waits" in told(facts(requests=few | {"success": 10}, durations_ns=waits))


def test_failures_are_counted_by_reason() -> None:
    text = told(
        facts(
            requests=facts()["requests"] | {"fail": 25}, failures={"REJECTED": 5, "BACKEND": 20, "OTHER": 0}
        )
    )

    assert "5 of 125 requests (4.0%) failed: REJECTED. They waited longer than their queue allows" in text
    assert "20 of 125 requests (16.0%) failed: BACKEND. They failed in the model" in text
    assert "OTHER" not in text


def test_instances_that_are_down_come_first() -> None:
    instances = [
        {"name": "m_0_0", "is_ready": False, "executing": 0},
        {"name": "m_0_1", "is_ready": True, "executing": 1},
    ]

    first, *_ = findings(facts(instances=instances))

    assert first["finding"] == "1 of 2 instances take no batches: m_0_0."


def test_an_ensemble_points_at_its_steps() -> None:
    settings = {"step": [{"model_name": "a"}, {"model_name": "b"}, {"model_name": "a"}]}

    text = told(facts("ensemble_scheduling", settings, closed={}, instances=[]))

    assert text == (
        "An ensemble has no batches of its own: each step is batched by its model. Ask for the steps: "
        "corectl explain a, corectl explain b."
    )


def test_a_model_that_did_nothing_says_so() -> None:
    empty = facts(executions=0, requests=dict.fromkeys(PHASES, 0), closed={}, batch_sizes={}, seconds=0.0)

    assert told(empty) == "Nothing was executed. Send requests, and ask again."
    assert "0 succeeded, 0 failed" in describe(empty, findings(empty))


def test_numbers_are_of_batches_not_of_requests() -> None:
    mixed = facts(batch_sizes={"1": {"count": 3, "ns": 1}, "5": {"count": 1, "ns": 5_000_000_000}})

    assert mean_rows(mixed) == 2
    assert busy_part(mixed) == pytest.approx(0.5)
    assert busy_part(facts(instances=[])) is None


def test_what_came_between_two_looks_is_what_is_more() -> None:
    before = facts(closed={"full": 3}, batch_sizes={"2": {"count": 3, "ns": 30}}, seconds=5.0)
    after = facts(
        closed={"full": 4, "shape": 2},
        batch_sizes={"2": {"count": 4, "ns": 40}, "3": {"count": 2, "ns": 7}},
        seconds=7.0,
        executions=56,
        pending=4,
    )

    between = difference(before, after)

    assert between["closed"] == {"full": 1, "shape": 2}
    assert between["batch_sizes"] == {"2": {"count": 1, "ns": 10}, "3": {"count": 2, "ns": 7}}
    assert (between["seconds"], between["executions"], between["pending"]) == (2.0, 6, 4)
    assert between["requests"] == dict.fromkeys(PHASES, 0)


def test_a_model_that_was_loaded_anew_between_two_looks_is_told_from_its_load() -> None:
    after = facts(seconds=1.0)

    assert difference(facts(seconds=5.0), after) is after


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("default", {}, "default: one request at a time, of up to 8 rows"),
        (
            "dynamic_batching",
            {
                "max_queue_delay_microseconds": 500,
                "preferred_batch_size": [4],
                "priority_levels": 3,
                "preserve_ordering": True,
                "default_queue_policy": {"max_queue_size": 9, "default_timeout_microseconds": 70},
            },
            "dynamic batching, up to 8 rows; requests wait up to 500 µs for company; preferred: 4; 3 "
            "priority levels; at most 9 wait; refused after 70 µs in the queue; answered in the order of "
            "arrival",
        ),
        (
            "sequence_batching",
            {"max_sequence_idle_microseconds": 1000},
            "sequences in slots of their own, 8 for each instance; idle ones end after 1000 µs",
        ),
        (
            "sequence_batching",
            {"oldest": {"max_candidate_sequences": 4, "max_queue_delay_microseconds": 5}},
            "sequences, the oldest first, 4 at once for each instance; requests wait up to 5 µs for company",
        ),
        ("sequence_batching", {"iterative_sequence": True}, "iterative sequences"),
        ("ensemble_scheduling", {"step": [{"model_name": "a"}, {"model_name": "b"}]}, "ensemble of a → b"),
    ],
)
def test_the_scheduler_is_told_in_words(kind: str, settings: Facts, expected: str) -> None:
    assert f"Scheduler   {expected}\n" in describe(facts(kind, settings), [])


def test_everything_is_told_with_its_share() -> None:
    text = describe(
        facts(closed={"queue empty": 30, "full": 10}, failures={"BACKEND": 2, "OTHER": 0}),
        [{"finding": "Something.", "advice": "Do it."}, {"finding": "Nothing to do.", "advice": ""}],
    )

    assert "queue empty         30   75.0%  ██████████████████████" in text
    assert "       full         10   25.0%  ████████" in text
    assert "  BACKEND          2  100.0%" in text
    assert "Instances   1, 0 executing now, busy 5% of the time" in text
    assert "100 succeeded, 0 failed, 10 in a second, 0 waiting now; 50 executions of 2 rows" in text
    assert "a request takes 100 µs: queue 100 µs, compute input 100 µs" in text
    assert text.endswith("* Something.\n  Do it.\n* Nothing to do.")
