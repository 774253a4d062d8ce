"""What begins and ends sequences: flags, ids, idleness, the backlog, instances that come and go."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tritonpy.errors import Cancelled, InvalidArg, Unavailable

from .simulation import MS, Simulation, config

STRATEGIES: list[dict[str, Any]] = [{"direct": {}}, {"oldest": {}}]
both = pytest.mark.parametrize("strategy", STRATEGIES, ids=["direct", "oldest"])


@both
def test_a_request_without_a_correlation_id_is_refused(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(**strategy))
    for nothing in (0, ""):
        with pytest.raises(InvalidArg) as refused:
            lab.send(nothing, start=True)
        assert refused.value.message == (
            "inference request to model 'm' must specify a non-zero or non-empty correlation ID"
        )


@both
def test_a_request_of_several_rows_is_refused(strategy: dict[str, Any]) -> None:
    with pytest.raises(InvalidArg) as refused:
        Simulation(config(**strategy)).send(1, start=True, rows=2)
    assert refused.value.message == (
        "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"
    )


@both
def test_a_sequence_that_has_not_started_is_refused_and_so_is_one_that_has_ended(
    strategy: dict[str, Any],
) -> None:
    lab = Simulation(config(**strategy))
    text = (
        "inference request for sequence abc to model 'm' must specify the START flag on the first request of "
        "the sequence"
    )
    with pytest.raises(InvalidArg) as unstarted:
        lab.send("abc")
    lab.send("abc", start=True, end=True)
    with pytest.raises(InvalidArg) as ended:
        lab.send("abc")

    assert unstarted.value.message == ended.value.message == text


@both
def test_an_id_may_begin_again_while_the_sequence_before_still_waits(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy))
    lab.send(1, start=True, id="1")
    for number in range(3):
        lab.send(2, start=True, id=f"2.{number}a")
        lab.send(2, end=True, id=f"2.{number}b")
    lab.send(1, end=True, id="1b")
    lab.finish_all()

    ids = [name for _, names in lab.batches for name in names]
    assert ids == ["1", "1b", "2.0a", "2.0b", "2.1a", "2.1b", "2.2a", "2.2b"]


@both
def test_a_start_in_the_middle_goes_on_in_the_same_slot_with_a_warning(
    strategy: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    lab = Simulation(config(**strategy), instance_count=2)
    lab.send(1, start=True, id="a")
    with caplog.at_level(logging.WARNING, "tritonpy.batching"):
        lab.send(1, start=True, id="b")
    lab.finish_all()

    assert lab.batches == [("i0", ["a"]), ("i0", ["b"])]
    assert caplog.messages == [
        "sequence 1 for model 'm' has a conflict. The previous sequence did not end before this sequence "
        "start. Previous sequence will be terminated early."
    ]


@both
def test_a_number_and_a_text_are_two_ids(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(**strategy))
    lab.send(1, start=True)

    with pytest.raises(InvalidArg, match=r"sequence 1 .* must specify the START flag"):
        lab.send("1")


@both
def test_an_idle_sequence_ends_and_its_slot_goes_to_the_backlog(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy))
    lab.send(1, start=True)
    lab.finish()
    waiting = lab.send(2, start=True)
    assert lab.wakes_ns == 1 + 1000 * MS
    lab.wait(999 * MS)
    assert len(lab.batches) == 1

    lab.wait(1 * MS)
    lab.finish_all()

    assert waiting.answers == [None]
    with pytest.raises(InvalidArg, match=r"START flag .*; .* idle for 1000000 microseconds"):
        lab.send(1)


@both
def test_every_request_makes_the_time_count_anew(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(**strategy))
    lab.send(1, start=True)
    lab.finish()
    for _ in range(3):
        lab.wait(600 * MS)
        lab.send(1)
        lab.finish()

    assert len(lab.batches) == 4


@both
def test_a_sequence_is_not_idle_while_its_request_runs(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(**strategy))
    lab.send(1, start=True)
    lab.wait(5000 * MS)
    lab.finish()
    lab.wait(999 * MS)
    lab.send(1)
    lab.finish()

    assert len(lab.batches) == 2


@both
def test_a_sequence_in_the_backlog_is_not_idle(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy))
    lab.send(1, start=True, id="1")
    lab.send(2, start=True, id="2")
    lab.wait(5000 * MS)
    lab.send(1, end=True)
    lab.finish_all()
    lab.send(2, end=True, id="2b")
    lab.finish_all()

    assert [names for _, names in lab.batches][2:] == [["2"], ["2b"]]


@both
def test_a_timeout_in_the_backlog_ends_the_whole_sequence(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy))
    lab.send(1, start=True)
    patient = lab.send(3, start=True)
    sent = [lab.send(2, start=True), lab.send(2, timeout_us=300_000), lab.send(2, timeout_us=900_000)]
    assert lab.wakes_ns == 1 + 300 * MS

    lab.wait(300 * MS)

    for each in sent:
        assert isinstance(each.error, Unavailable)
        assert each.error.message == "timeout of the corresponding sequence has been expired"
    assert patient.answers == []
    with pytest.raises(InvalidArg, match=r"START flag .*; .* no slot within the timeout"):
        lab.send(2)


@both
def test_a_timeout_counts_for_nothing_in_a_slot(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy))
    lab.send(1, start=True)
    late = lab.send(1, timeout_us=1000)
    waiting = lab.send(2, start=True, timeout_us=400_000)
    lab.wait(300 * MS)
    lab.send(1, end=True)
    lab.finish_all()
    lab.wait(300 * MS)

    assert late.answers == waiting.answers == [None]


@both
def test_cancelling_one_request_cancels_what_waits_of_its_sequence(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy))
    running = lab.send(1, start=True)
    first, second, third = (lab.send(1) for _ in range(3))
    other = lab.send(2, start=True, end=True)

    lab.cancel(second)

    assert isinstance(first.error, Cancelled)
    assert isinstance(third.error, Cancelled)
    lab.finish_all()
    assert running.answers == other.answers == [None]
    with pytest.raises(InvalidArg, match=r"START flag .* was cancelled"):
        lab.send(1)


@both
def test_cancelling_in_the_backlog_ends_the_sequence_there(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy))
    lab.send(1, start=True, end=True)
    first, second = lab.send(2, start=True), lab.send(2)
    last = lab.send(3, start=True, end=True)

    lab.cancel(first)
    lab.finish_all()

    assert isinstance(second.error, Cancelled)
    assert last.answers == [None]


@both
def test_a_request_that_runs_is_not_cancelled_here(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(**strategy))
    sent = lab.send(1, start=True)

    lab.cancel(sent)
    lab.finish()
    lab.send(1)

    assert sent.answers == [None]
    assert len(lab.batches) == 2


@both
def test_a_dead_worker_ends_the_sequences_that_have_run_there(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(**strategy), instance_count=2)
    running, waiting = lab.send(1, start=True), lab.send(1)
    safe = lab.send(2, start=True)
    lab.die(0)

    assert running.error.message == "the worker died"
    assert isinstance(waiting.error, Unavailable)
    assert waiting.error.message == "sequence 1 was ended: the worker died"
    with pytest.raises(InvalidArg, match=r"START flag .*; the one before was ended: the worker died"):
        lab.send(1)
    lab.finish(1)
    assert safe.answers == [None]


@both
def test_a_sequence_that_has_not_run_goes_to_another_instance(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=2, **strategy), instance_count=2)
    lab.send(1, start=True, id="1")
    lab.send(2, start=True, end=True, id="2")
    fresh = lab.send(3, start=True, id="3")  # in the slot beside 1
    lab.die(0)
    lab.finish_all()

    assert fresh.answers == [None]
    assert lab.batches[-1][0] == "i1"
    assert lab.batches[-1][1][-1] == "3"


@both
def test_new_sequences_avoid_a_dead_instance_until_it_is_back(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy), instance_count=2)
    lab.die(0)
    lab.send(1, start=True, id="1")
    waiting = lab.send(2, start=True, id="2")
    lab.finish_all()
    assert lab.batches == [("i1", ["1"])]
    assert waiting.answers == []

    lab.come_back(0)
    lab.finish_all()

    assert lab.batches[1:] == [("i0", ["2"])]


@both
def test_an_instance_that_is_left_out_ends_its_sequences_first(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=2, **strategy), instance_count=2)
    first, second = lab.instances
    lab.send(1, start=True, id="1")
    lab.send(2, start=True, id="2")
    lab.finish_all()

    lab.policy.use([second])  # type: ignore[list-item]

    assert list(lab.policy.instances) == [first, second]
    lab.send(3, start=True, id="3")
    lab.finish_all()
    assert lab.batches[-1][0] == "i1"
    lab.send(1, end=True, id="1b")
    lab.finish_all()
    assert lab.batches[-1] == ("i0", ["1b"])
    assert list(lab.policy.instances) == [second]


@both
def test_an_instance_without_sequences_is_left_out_at_once(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(**strategy), instance_count=2)

    lab.policy.use(lab.instances[:1])  # type: ignore[arg-type]

    assert list(lab.policy.instances) == lab.instances[:1]


@both
def test_emptying_the_batcher_ends_all_sequences(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy))
    running = lab.send(1, start=True)
    waiting = [lab.send(1).request, lab.send(2, start=True).request]

    assert set(lab.policy.take_all()) == set(waiting)
    assert lab.policy.waiting_count == 0
    lab.finish()
    assert running.answers == [None]
    lab.send(3, start=True)
    assert lab.batches[-1] == ("i0", [3])


@both
def test_an_id_that_begins_again_waits_for_all_sequences_that_had_it(strategy: dict[str, Any]) -> None:
    lab = Simulation(config(**strategy), instance_count=2)
    lab.send(1, start=True, end=True, id="a")
    given_up = lab.send(1, start=True, end=True, id="b")
    lab.send(1, start=True, end=True, id="c")

    lab.cancel(given_up)
    lab.send(1, start=True, end=True, id="d")

    assert [names for _, names in lab.batches] == [["a"]]
    lab.finish_all()
    assert [names for _, names in lab.batches] == [["a"], ["c"], ["d"]]
    lab.send(1, start=True, end=True, id="e")
    assert lab.batches[3:] == [("i0", ["e"])]


@both
def test_an_id_whose_last_sequence_ends_in_the_backlog_still_waits_for_the_one_that_runs(
    strategy: dict[str, Any],
) -> None:
    lab = Simulation(config(**strategy), instance_count=2)
    lab.send(1, start=True, end=True, id="a")
    lab.cancel(lab.send(1, start=True, end=True, id="b"))

    again = lab.send(1, start=True, end=True, id="c")  # an instance is free, and must not get it

    assert [names for _, names in lab.batches] == [["a"]]
    lab.finish_all()
    assert [names for _, names in lab.batches] == [["a"], ["c"]]
    assert again.answers == [None]


@both
def test_a_sequence_of_a_used_id_is_passed_over_in_the_middle_of_the_backlog_and_not_lost(
    strategy: dict[str, Any],
) -> None:
    lab = Simulation(config(max_batch_size=1, **strategy), instance_count=2)
    lab.send(1, start=True, id="a")
    lab.send(1, end=True, id="a, end")
    lab.send(2, start=True, end=True, id="b")
    waiting = [
        lab.send(id, start=True, end=True, id=name) for id, name in ((3, "c"), (1, "a again"), (4, "d"))
    ]

    for _ in range(3):  # the first instance has not answered yet
        lab.finish(1)
    assert lab.batches == [("i0", ["a"]), ("i1", ["b"]), ("i1", ["c"]), ("i1", ["d"])]
    assert [each.answers for each in waiting] == [[None], [], [None]]

    lab.finish_all()
    assert [names for _, names in lab.batches[4:]] == [["a, end"], ["a again"]]
    assert waiting[1].answers == [None]
