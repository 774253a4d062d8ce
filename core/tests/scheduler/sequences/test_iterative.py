"""Iterative sequences: the model has its request executed again, and says by not doing so that it is done."""

from __future__ import annotations

from typing import Any

import pytest
from tritonpy.errors import InvalidArg

from .simulation import Simulation, config

STRATEGIES: list[dict[str, Any]] = [{"direct": {}}, {"oldest": {}}]
both = pytest.mark.parametrize("strategy", STRATEGIES, ids=["direct", "oldest"])


def iterative(**settings: Any) -> dict[str, Any]:
    return config(iterative_sequence=True, **settings)


@both
def test_a_request_without_an_id_starts_a_sequence_and_goes_on_without_flags(
    strategy: dict[str, Any],
) -> None:
    lab = Simulation(iterative(**strategy))
    sent = lab.send(end=True, id="a")
    assert (sent.request.correlation_id, sent.request.flags) == (1, 1)

    lab.reschedule()

    assert (sent.request.correlation_id, sent.request.flags) == (1, 0)
    lab.finish()
    assert lab.batches == [("i0", ["a"]), ("i0", ["a"])]
    assert sent.answers == [None]


@both
def test_what_is_rescheduled_joins_the_next_batch(strategy: dict[str, Any]) -> None:
    lab = Simulation(iterative(**strategy))
    lab.send(id="a")
    lab.send(id="b")
    lab.reschedule()

    assert sorted(lab.batches[1][1]) == ["a", "b"]


@both
def test_a_slot_is_free_when_the_model_is_done(strategy: dict[str, Any]) -> None:
    lab = Simulation(iterative(max_batch_size=1, **strategy))
    lab.send(id="a")
    second = lab.send(id="b")
    lab.reschedule()
    lab.finish_all()

    assert [names for _, names in lab.batches] == [["a"], ["a"], ["b"]]
    assert second.answers == [None]


@both
def test_an_id_of_the_client_needs_start_each_time(strategy: dict[str, Any]) -> None:
    lab = Simulation(iterative(**strategy))
    with pytest.raises(InvalidArg, match="must specify the START flag"):
        lab.send(7)
    lab.send(7, start=True)
    follower = lab.send(7)
    lab.finish()

    assert "must specify the START flag" in follower.error.message
    with pytest.raises(InvalidArg, match="the model has ended the one before"):
        lab.send(7)
    lab.send(7, start=True)


@both
def test_a_second_request_of_a_sequence_waits_until_the_first_is_done(strategy: dict[str, Any]) -> None:
    lab = Simulation(iterative(**strategy))
    lab.send(7, start=True, id="a")
    lab.send(7, start=True, id="b")
    lab.reschedule()
    lab.finish_all()

    assert [names for _, names in lab.batches] == [["a"], ["a"], ["b"]]


@both
def test_ids_of_clients_are_not_given_to_others(strategy: dict[str, Any]) -> None:
    lab = Simulation(iterative(**strategy))
    lab.send(1, start=True)

    assert lab.send().request.correlation_id == 2


@both
def test_an_end_of_the_client_is_not_the_end_of_the_steps(strategy: dict[str, Any]) -> None:
    lab = Simulation(iterative(max_batch_size=2, **strategy))
    sent = lab.send(7, start=True, end=True, id="a")
    lab.reschedule()
    lab.send(8, start=True, id="b")
    lab.finish_all()

    assert lab.batches[:2] == [("i0", ["a"]), ("i0", ["a"])]
    assert sent.answers == [None]


@both
def test_a_rescheduled_request_of_a_dead_worker_is_answered(strategy: dict[str, Any]) -> None:
    lab = Simulation(iterative(max_batch_size=1, **strategy))
    sent = lab.send(id="a")
    lab.instances[0].is_ready = False
    lab.reschedule()
    assert sent.answers == []

    lab.die()

    assert sent.error.message == "sequence 1 was ended: the worker died"
    lab.come_back()
    assert lab.send(id="b").answers == []
    assert lab.batches[-1] == ("i0", ["b"])
