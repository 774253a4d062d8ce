"""All replicas as one: one index, and statistics that are added up."""

from __future__ import annotations

from typing import Any

from tritonpy_router.control import merge_indexes, merge_statistics
from tritonpy_router.model_facts import ModelFacts, facts_of
from tritonpy_router.probe import takes_requests


def row(name: str, version: str, state: str, **more: str) -> dict[str, str]:
    return {"name": name, "version": version, "state": state, **more}


def test_a_version_is_ready_where_one_replica_has_it_ready() -> None:
    failed = row("a", "1", "UNAVAILABLE", reason="broken")
    one = [failed, row("b", "2", "READY"), {"name": "c"}]
    other = [row("a", "1", "READY"), row("b", "1", "READY"), row("c", "1", "READY")]

    assert merge_indexes([one, other]) == [
        row("a", "1", "READY"),
        row("b", "1", "READY"),
        row("b", "2", "READY"),
        row("c", "1", "READY"),
    ]
    assert merge_indexes([[failed], [{"name": "d"}]]) == [failed, {"name": "d"}]


def statistics(count: int, last: int, batches: dict[int, int], memory: int = 0) -> dict[str, Any]:
    return {
        "name": "m",
        "version": "1",
        "last_inference": last,
        "inference_count": count,
        "inference_stats": {"queue": {"count": count, "ns": count * 10}},
        "response_stats": {str(count): {"success": {"count": 1, "ns": 5}}},
        "batch_stats": [
            {"batch_size": size, "compute_infer": {"count": n, "ns": n}} for size, n in batches.items()
        ],
        "memory_usage": [{"type": "CPU", "id": 0, "byte_size": memory}],
    }


def test_counters_are_added_and_moments_are_the_latest() -> None:
    other = {"name": "m", "version": "2", "inference_count": 1}

    one, two = merge_statistics(
        [statistics(3, 70, {1: 1, 4: 2}, 100), other, statistics(5, 60, {4: 3, 8: 1}, 50)]
    )

    assert two == other
    assert (one["inference_count"], one["last_inference"]) == (8, 70)
    assert one["inference_stats"]["queue"] == {"count": 8, "ns": 80}
    assert one["response_stats"].keys() == {"3", "5"}
    assert {each["batch_size"]: each["compute_infer"]["count"] for each in one["batch_stats"]} == {
        1: 1,
        4: 5,
        8: 1,
    }
    assert one["memory_usage"] == [{"type": "CPU", "id": 0, "byte_size": 150}]


def test_a_configuration_says_what_a_router_needs() -> None:
    retried = {"parameters": {"retry_on_replica_loss": {"string_value": "True"}}}

    assert facts_of({}) == ModelFacts()
    assert facts_of({"sequence_batching": {}}) == ModelFacts(True, 1.0)
    assert facts_of({"sequence_batching": {"max_sequence_idle_microseconds": "5000000"}}) == ModelFacts(
        True, 5.0
    )
    assert facts_of(retried) == ModelFacts(is_retriable=True)


def test_a_server_that_waits_for_models_takes_requests_for_others() -> None:
    assert takes_requests(200, b"")
    assert takes_requests(400, b'{"error": "it waits for \'m\'", "models": [{"name": "m"}]}')
    assert not takes_requests(400, b'{"error": "it is stopping", "models": []}')
    assert takes_requests(400, b"")  # Triton's, which says nothing
    assert takes_requests(400, b"not ready")
