"""The oldest strategy: one request of each sequence at a time, in a dynamic batcher for each instance."""

from __future__ import annotations

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.scheduler.decision import Closed

from .simulation import MS, Sent, Simulation, config


def test_a_batch_holds_the_oldest_request_of_each_sequence_and_no_null_requests() -> None:
    lab = Simulation(config(oldest={}))
    lab.send(1, start=True, id="1a")
    lab.send(2, start=True, id="2a")
    lab.send(2, id="2b")
    lab.send(3, start=True, end=True, id="3")
    lab.send(1, end=True, id="1b")
    lab.finish_all()

    assert [names for _, names in lab.batches] == [["1a"], ["2a", "3", "1b"], ["2b"]]


def test_the_next_request_of_a_sequence_waits_for_the_one_before() -> None:
    lab = Simulation(config(oldest={}))
    lab.send(1, start=True, id="a")
    lab.send(1, id="b")
    assert lab.batches == [("i0", ["a"])]

    lab.finish()

    assert lab.batches[1:] == [("i0", ["b"])]


def test_no_more_sequences_than_candidates_are_taken() -> None:
    lab = Simulation(config(oldest={"max_candidate_sequences": 2}))
    lab.send(1, start=True, id="1")
    for sequence in (2, 3):
        lab.send(sequence, start=True, end=True)
    lab.finish()
    assert lab.batches[1:] == [("i0", [2])]

    lab.finish()

    assert lab.batches[2:] == [("i0", [3])]


def test_a_preferred_size_leaves_at_once_and_others_wait_for_the_delay() -> None:
    oldest = {"preferred_batch_size": [2], "max_queue_delay_microseconds": 100_000}
    lab = Simulation(config(oldest=oldest))
    lab.send(1, start=True)
    assert (lab.batches, lab.wakes_ns) == ([], 1 + 100 * MS)

    lab.send(2, start=True)
    lab.finish()
    lab.send(1, id="late")
    lab.wait(100 * MS)

    assert lab.batches == [("i0", [1, 2]), ("i0", ["late"])]
    assert lab.closed == [Closed.PREFERRED, Closed.DELAY]


def test_the_delay_counts_from_when_the_one_before_was_done() -> None:
    lab = Simulation(config(oldest={"max_queue_delay_microseconds": 100_000}))
    lab.send(1, start=True, id="a")
    lab.send(1, id="b")
    lab.wait(100 * MS)
    assert lab.batches == [("i0", ["a"])]
    lab.wait(50 * MS)
    lab.finish()

    assert lab.wakes_ns == lab.now_ns + 100 * MS
    lab.wait(100 * MS)
    assert lab.batches[1:] == [("i0", ["b"])]


def test_responses_keep_the_order_in_which_requests_came_to_an_instance() -> None:
    lab = Simulation(
        config(max_batch_size=1, oldest={"max_candidate_sequences": 2, "preserve_ordering": True})
    )
    answered: list[str] = []

    def send(sequence: int, id: str, **flags: bool) -> Sent:
        sent = lab.send(sequence, id=id, **flags)
        sent.answers = Recorder(id, answered)
        return sent

    send(1, "1a", start=True)
    send(1, "1b")
    send(2, "2a", start=True)
    send(3, "3a", start=True, end=True)  # waits for a slot, and nobody for it
    lab.finish()
    lab.finish()
    lab.finish()
    assert answered == ["1a", "2a", "1b"]

    send(2, "2b", end=True)
    lab.finish_all()

    assert answered == ["1a", "2a", "1b", "2b", "3a"]


class Recorder(list):  # type: ignore[type-arg]
    """Writes down whose answers come."""

    def __init__(self, id: str, into: list[str]) -> None:
        super().__init__()
        self._id = id
        self._into = into

    def append(self, answer: object) -> None:
        super().append(answer)
        self._into.append(self._id)


def test_cancelling_a_request_that_waits_for_its_batch_ends_its_sequence_when_nothing_of_it_runs() -> None:
    lab = Simulation(config(max_batch_size=1, oldest={"max_candidate_sequences": 2}))
    lab.send(1, start=True, id="1a")
    waiting, next_one = lab.send(2, start=True, id="2a"), lab.send(2, id="2b")
    other = lab.send(3, start=True, end=True, id="3")

    lab.cancel(waiting)

    assert (waiting.error.message, next_one.error.message) == (
        "cancelled",
        "another request of sequence 2 was cancelled",
    )
    lab.finish_all()
    assert other.answers == [None]
    with pytest.raises(InvalidArg, match=r"START flag .*; .* a request of it was cancelled"):
        lab.send(2)


def test_a_cancelled_request_leaves_the_one_that_runs_alone() -> None:
    lab = Simulation(config(max_batch_size=1, oldest={}))
    running, waiting = lab.send(1, start=True, id="a"), lab.send(1, id="b")
    third = lab.send(2, start=True, end=True)

    lab.cancel(waiting)
    assert running.answers == []
    assert len(lab.batches) == 1  # the slot is not free yet
    lab.finish_all()

    assert running.answers == third.answers == [None]
