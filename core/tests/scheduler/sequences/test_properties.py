"""Whatever clients, instances and time do: every request is answered once, and sequences stay whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import InvalidArg

from .simulation import MS, Sent, Simulation, config

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 6), st.sampled_from(["start", "", "", "end", "both"])),
        st.tuples(st.just("finish"), st.integers(0, 1)),
        st.tuples(st.just("wait"), st.integers(1, 700)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("die"), st.integers(0, 1)),
        st.tuples(st.just("come back"), st.integers(0, 1)),
        st.tuples(st.just("leave out"), st.integers(0, 1)),
        st.tuples(st.just("use all")),
    ),
    max_size=60,
)
SETTINGS: list[dict[str, Any]] = [
    {"max_batch_size": 1},
    {"max_batch_size": 3},
    {
        "max_batch_size": 3,
        "direct": {"minimum_slot_utilization": 0.6, "max_queue_delay_microseconds": 90_000},
    },
    {"max_batch_size": 2, "oldest": {}},
    {"max_batch_size": 2, "oldest": {"max_candidate_sequences": 3, "preserve_ordering": True}},
    {"max_batch_size": 2, "oldest": {"preferred_batch_size": [2], "max_queue_delay_microseconds": 90_000}},
]


class Watched(Simulation):
    """Checks every batch as it leaves."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.most: int = settings["max_batch_size"]
        self.homes: dict[int, str] = {}
        self.sent: list[Sent] = []
        self.run: list[str] = []
        super().__init__(config(**settings), instance_count=2)

    def _run(self, instance: Any, batch: Any) -> None:
        super()._run(instance, batch)
        real = [request for request in batch.requests if not request.is_null]
        ids = [request.correlation_id for request in real]
        assert len(ids) == len(set(ids)), "two requests of one sequence are in a batch"
        assert len(batch.requests) <= self.most, "a batch is too large"
        for request in real:
            if request.flags & 1:
                self.homes[request.correlation_id] = instance.name
            assert self.homes[request.correlation_id] == instance.name, "a sequence has left its instance"
            self.run.append(request.id)


@pytest.mark.parametrize("settings", SETTINGS)
@given(steps=STEPS)
def test_nothing_is_lost_doubled_or_out_of_order(settings: dict[str, Any], steps: list[Any]) -> None:
    lab = Watched(settings)
    for number, (action, *args) in enumerate(steps):
        act(lab, str(number), action, *args)
    for index in (0, 1):
        lab.come_back(index)
    lab.policy.use(lab.instances)  # type: ignore[arg-type]
    lab.pump()
    for _ in range(len(steps) + 1):  # sequences that nobody goes on with make room after a while
        lab.finish_all()
        lab.wait(1001 * MS)

    assert [len(sent.answers) for sent in lab.sent] == [1] * len(lab.sent)
    assert max(Counter(lab.run).values(), default=1) == 1
    by_sequence: dict[int | str, list[int]] = {}
    for id in lab.run:
        sent = next(each for each in lab.sent if each.request.id == id)
        by_sequence.setdefault(sent.request.correlation_id, []).append(int(id))
    assert all(order == sorted(order) for order in by_sequence.values())
    assert lab.policy.waiting_count == 0
    assert_all_slots_are_free(lab)


def act(lab: Watched, id: str, action: str, *args: Any) -> None:
    match action:
        case "send":
            sequence, flags = args
            is_start = flags in ("start", "both")
            if not is_start and not lab.policy.book.is_open(sequence):
                with pytest.raises(InvalidArg, match="must specify the START flag"):
                    lab.send(sequence)
                return
            sent = lab.send(
                sequence,
                id=id,
                start=is_start,
                end=flags in ("end", "both"),
                timeout_us=200_000 if int(id) % 7 == 0 else 0,
                columns=1 + int(id) % 5 // 4,
            )
            lab.sent.append(sent)
        case "finish":
            if lab.instances[args[0]].execution is not None:
                lab.finish(args[0])
        case "wait":
            lab.wait(args[0] * MS)
        case "cancel":
            if args[0] < len(lab.sent):
                lab.cancel(lab.sent[args[0]])
        case "die":
            lab.die(args[0])
        case "come back":
            lab.come_back(args[0])
        case "leave out":
            lab.policy.use([lab.instances[1 - args[0]]])  # type: ignore[list-item]
            lab.pump()
        case "use all":
            lab.policy.use(lab.instances)  # type: ignore[arg-type]
            lab.pump()


def assert_all_slots_are_free(lab: Simulation) -> None:
    """Each slot can be filled: as many new sequences run as there are slots, and one more does not."""
    slot_count = 2 * lab.policy._slot_count
    for sequence in range(100, 100 + slot_count):
        lab.send(sequence, start=True)
    assert lab.policy.book.backlog_count == 0
    lab.send(99, start=True)
    assert lab.policy.book.backlog_count == 1
