"""The direct strategy: slots, places in batches, null requests, and how long a batch waits for more."""

from __future__ import annotations

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.scheduler.decision import Closed

from .simulation import MS, Simulation, config


def test_a_sequence_keeps_its_place_and_null_requests_fill_the_others() -> None:
    lab = Simulation(config())
    for sequence in (1, 2, 3):
        lab.send(sequence, start=True)
        lab.finish()
    lab.send(3)
    lab.finish()
    lab.send(2, end=True)
    lab.finish()

    assert [names for _, names in lab.batches] == [
        [1],
        [None, 2],
        [None, None, 3],
        [None, None, 3],
        [None, 2],
    ]


def test_a_batch_holds_one_request_of_each_sequence() -> None:
    lab = Simulation(config())
    lab.send(1, start=True, id="1a")
    for sequence in (2, 3):
        lab.send(sequence, start=True, id=f"{sequence}a")
        lab.send(sequence, id=f"{sequence}b")
    lab.send(1, id="1b")
    lab.finish_all()

    assert [names for _, names in lab.batches] == [["1a"], ["1b", "2a", "3a"], [None, "2b", "3b"]]


def test_sequences_spread_over_instances_before_one_has_two() -> None:
    lab = Simulation(config(), instance_count=2)
    for sequence in (1, 2, 3, 4):
        lab.send(sequence, start=True)
    lab.finish_all()

    assert lab.batches == [("i0", [1]), ("i1", [2]), ("i0", [None, 3]), ("i1", [None, 4])]


def test_requests_of_a_sequence_go_to_its_instance_though_another_one_is_free() -> None:
    lab = Simulation(config(), instance_count=2)
    lab.send(1, start=True, id="a")
    lab.send(1, id="b")
    assert lab.batches == [("i0", ["a"])]

    lab.finish_all()

    assert lab.batches == [("i0", ["a"]), ("i0", ["b"])]


def test_a_slot_is_free_when_the_last_request_is_in_a_batch() -> None:
    lab = Simulation(config())
    lab.send(1, start=True, end=True)
    lab.send(2, start=True)
    lab.finish_all()

    assert [names for _, names in lab.batches] == [[1], [2]]


def test_the_backlog_moves_up_in_order_with_all_its_requests() -> None:
    lab = Simulation(config(max_batch_size=1))
    lab.send(1, start=True, id="1a")
    lab.send(2, start=True, id="2a")
    lab.send(3, start=True, end=True, id="3")
    lab.send(2, end=True, id="2b")
    lab.send(1, end=True, id="1b")
    lab.finish_all()

    assert [names for _, names in lab.batches] == [["1a"], ["1b"], ["2a"], ["2b"], ["3"]]


def test_requests_of_other_shapes_wait_for_the_next_batch_and_keep_their_slots() -> None:
    lab = Simulation(config())
    lab.send(1, start=True, id="1a")
    lab.send(2, start=True, id="2a", columns=3)
    lab.send(3, start=True, id="3a")
    lab.send(1, id="1b")
    lab.finish_all()

    assert [names for _, names in lab.batches] == [["1a"], ["1b", None, "3a"], [None, "2a"]]
    assert lab.closed == [Closed.QUEUE_EMPTY, Closed.SHAPE, Closed.QUEUE_EMPTY]


def test_a_batch_waits_until_enough_slots_have_a_request() -> None:
    direct = {"minimum_slot_utilization": 0.5, "max_queue_delay_microseconds": 100_000}
    lab = Simulation(config(direct=direct))
    lab.send(1, start=True)
    assert lab.batches == []
    assert lab.wakes_ns == 1 + 100 * MS

    lab.send(2, start=True)

    assert lab.batches == [("i0", [1, 2])]
    assert lab.closed == [Closed.UTILIZATION]


def test_a_batch_waits_for_enough_slots_no_longer_than_the_delay() -> None:
    direct = {"minimum_slot_utilization": 1.0, "max_queue_delay_microseconds": 100_000}
    lab = Simulation(config(direct=direct))
    lab.send(1, start=True)
    lab.wait(99 * MS)
    assert lab.batches == []

    lab.wait(1 * MS)

    assert lab.batches == [("i0", [1])]
    assert lab.closed == [Closed.DELAY]


@pytest.mark.parametrize(
    "direct", [{"minimum_slot_utilization": 1.0}, {"max_queue_delay_microseconds": 100_000}, {}]
)
def test_nothing_is_waited_for_unless_both_settings_are_there(direct: dict[str, float]) -> None:
    lab = Simulation(config(direct=direct))
    lab.send(1, start=True)

    assert lab.batches == [("i0", [1])]


def test_null_requests_are_zeros_with_ready_false_and_count_for_nothing() -> None:
    lab = Simulation(config())
    lab.send(1, start=True)
    lab.finish()
    lab.send(2, start=True, columns=5)

    execution = lab.instances[0].execution
    assert execution is not None
    null, real = execution.requests
    assert null.input("X").numpy().tolist() == [[0.0] * 5]
    assert (null.input("READY").numpy().item(), real.input("READY").numpy().item()) == (0, 1)
    assert (null.correlation_id, null.flags) == (0, 0)


def test_a_request_that_cannot_be_read_leaves_the_others_in_their_places() -> None:
    lab = Simulation(config())
    lab.send(1, start=True, id="1a")
    broken = lab.send(2, start=True, id="2a")
    follower = lab.send(2, id="2b")
    last = lab.send(3, start=True, id="3a")
    lab.finish()
    execution = lab.instances[0].execution
    assert execution is not None

    execution.fail_one(1, InvalidArg("no such region"))

    assert [each.id for each in execution.requests] == ["", "", "3a"]
    assert [each.is_null for each in execution.requests] == [True, True, False]
    lab.finish_all()
    assert broken.error.message == "no such region"
    assert follower.error.message == "sequence 2 could not be started"
    assert last.answers == [None]
    with pytest.raises(InvalidArg, match="must specify the START flag"):
        lab.send(2)


def test_what_one_instance_takes_of_the_requests_held_back_counts_on_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "4")
    lab = Simulation(config(max_batch_size=2), instance_count=2)
    for sequence in (1, 2, 3):
        lab.send(sequence, start=True)
    assert lab.batches == []

    lab.send(4, start=True)

    assert sorted(names for _, names in lab.batches) == [[1, 3], [2, 4]]


def test_the_environment_may_hold_batches_back_until_so_many_requests_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    monkeypatch.setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "1")
    lab = Simulation(config(max_batch_size=2))
    for sequence in (1, 2):
        lab.send(sequence, start=True)
    lab.send(1, id="1b")
    assert lab.batches == []

    lab.send(3, start=True)
    lab.finish_all()
    lab.send(2, id="2b")

    assert [names for _, names in lab.batches] == [[1, 2], ["1b"], [None, "2b"]]
