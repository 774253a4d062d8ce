"""Who has which slot, whatever sequences and instances do: the book alone, driven by hand."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.scheduler.sequences.sequence import Sequence, SlotRow
from tritonpy.scheduler.sequences.slots import SequenceBook

US = 1000
IDLE_US = 1000

IDS = st.integers(1, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), IDS, st.sampled_from([0, 0, 500])),
        st.tuples(st.just("begin anew"), IDS, st.sampled_from([0, 500])),
        st.tuples(st.just("see through"), st.integers(0, 2), st.just(0)),
        st.tuples(st.sampled_from(["go on", "end"]), IDS, st.just(0)),
        st.tuples(st.sampled_from(["run", "finish", "put back", "cancel"]), st.integers(0, 9), st.just(0)),
        st.tuples(st.sampled_from(["lose", "regain"]), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 800), st.just(0)),
    ),
    max_size=80,
)


class Lab:
    """A book of two instances, of two slots and of one."""

    def __init__(self) -> None:
        self.book = SequenceBook("model", IDLE_US)
        self.rows = [SlotRow(0, 2), SlotRow(1, 1)]
        self.book.use(self.rows)
        self.now_ns = 1
        self.requests: list[InferRequest] = []
        self.running: list[Sequence] = []
        self.done: list[InferRequest] = []

    @property
    def seated(self) -> list[Sequence]:
        slots = [slot for row in self.rows for slot in row.slots]
        return [slot.sequence for slot in slots if slot.sequence is not None]

    @property
    def line(self) -> list[Sequence]:
        """Sequences that get the next free slots, in this order."""
        return [sequence for sequence in self.book._backlog if sequence.before is None]

    @property
    def free(self) -> list[tuple[int, int]]:
        """Slots that a sequence may have now: index and instance."""
        return sorted(
            (index, row.number) for row in self.rows if row.takes_sequences for index in row.free_indexes
        )

    def do(self, step: str, what: int, timeout_us: int) -> None:
        book = self.book
        match step:
            case "start":
                self._add(what, SEQUENCE_START, timeout_us)
            case "begin anew":  # whether or not the one before is over
                self.do("end", what, 0)
                self._add(what, SEQUENCE_START, timeout_us)
            case "see through" if self.seated:
                sequence = self.seated[what % len(self.seated)]
                self.do("end", int(sequence.correlation_id), 0)
                while sequence.slot is not None and not sequence.slot.row.is_lost:
                    if sequence.running is None:
                        self._run(sequence)
                    self._finish(sequence)
            case "go on" if book.is_open(what):
                self._add(what, 0, 0)
            case "end" if book.is_open(what):
                self._add(what, SEQUENCE_END, 0)
            case "run":
                ready = [slot for row in self.rows for slot in row.ready]
                if ready:
                    sequence = ready[what % len(ready)].sequence
                    assert sequence is not None
                    self._run(sequence)
            case "finish" if self.running:
                self._finish(self.running[what % len(self.running)])
            case "put back" if batched := [each for each in self.running if each.slot is not None]:
                sequence = batched[what % len(batched)]
                self.running.remove(sequence)
                assert sequence.running is not None
                book.put_back(sequence.running)
            case "cancel" if self.requests:
                request = self.requests[what % len(self.requests)]
                if book.cancel(request):
                    self.done.append(request)
            case "lose" if not self.rows[what].is_lost:
                book.lose(self.rows[what], "it died")
            case "regain" if self.rows[what].is_lost:
                book.regain(self.rows[what])
            case "wait":
                self.now_ns += what * US
                book.expire(self.now_ns)
        self.done += [request for request, _, _ in book.refused]
        book.refused.clear()

    def _run(self, sequence: Sequence) -> None:
        sequence.has_run = True
        self.book.begin_running(sequence)
        self.running.append(sequence)

    def _finish(self, sequence: Sequence) -> None:
        assert sequence.running is not None
        self.running.remove(sequence)
        self.done.append(sequence.running)
        self.book.finish_running(sequence)

    def check(self) -> None:
        seated = self.seated
        ids = [sequence.correlation_id for sequence in seated]
        assert len(ids) == len(set(ids)), "two sequences with one id are in slots"
        assert len(seated) == len(set(map(id, seated))), "a sequence has two slots"
        for row in self.rows:
            assert len(row.slots) <= row.count
            for slot in row.slots:
                sequence = slot.sequence
                assert sequence is None or sequence.slot is slot
                has_work = sequence is not None and bool(sequence.requests) and sequence.running is None
                assert (slot in row.ready) is (has_work and not row.is_lost)
        assert {(index, number) for index, number, _ in self.book._free} == set(self.free), "a slot is lost"
        assert not (self.line and self.free), "a slot is free, and a sequence waits for one"
        for sequence in self.book._backlog:
            assert sequence.slot is None, "a sequence waits for a slot and has one"

    def _add(self, correlation_id: int, flags: int, timeout_us: int) -> None:
        request = InferRequest("model", {}, correlation_id=correlation_id, flags=flags, timeout_us=timeout_us)
        request.queue_start_ns = self.now_ns
        self.requests.append(request)
        self.book.add(request)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_slots_go_round_and_those_who_came_first_get_them_first(steps: list[tuple[str, int, int]]) -> None:
    lab = Lab()
    for step in steps:
        line, free, seated = lab.line, lab.free, {id(sequence) for sequence in lab.seated}
        lab.do(*step)
        lab.check()

        waits_on = [sequence for sequence in line if sequence in lab.book._backlog]
        moved_up = [sequence for sequence in line if sequence.slot is not None]
        if step[0] != "lose":  # which puts those who had a slot before all others
            assert all(line.index(first) < line.index(then) for first in moved_up for then in waits_on), (
                "one who came later was seated first"
            )
        new = [sequence for sequence in lab.seated if id(sequence) not in seated and sequence not in line]
        if step[0] == "start" and new and free:
            [sequence] = new
            assert sequence.slot is not None
            assert (sequence.slot.index, sequence.slot.row.number) == free[0], "not the smallest free slot"

    for index in (0, 1):
        lab.do("regain", index, 0)
    for _ in range(3 * len(steps) + 3):  # nobody goes on with any sequence
        lab.do("run", 0, 0)
        lab.do("finish", 0, 0)
        lab.do("wait", 2 * IDLE_US, 0)
        lab.check()

    assert lab.seated == []
    assert lab.book.open_count == lab.book.waiting_count == lab.book.backlog_count == 0
    assert sorted(map(id, lab.done)) == sorted(map(id, lab.requests))  # each once
    for correlation_id in range(100, 103):  # each slot can be had again
        lab.do("start", correlation_id, 0)
    assert len(lab.seated) == 3
    lab.do("start", 103, 0)
    assert len(lab.line) == 1
