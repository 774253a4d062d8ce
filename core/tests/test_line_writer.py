from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.line_writer import LineWriter
from tritonpy_sdk.testing import DEADLINE_S, until


class Sink:
    """Keeps what it is given, each item when it is let."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.said: list[object] = []
        self.sizes: list[int] = []
        self.may_write = threading.Semaphore(1000 if is_open else 0)
        self.entered = threading.Event()

    def writer(self, most_held: int = 1000, **options: int) -> LineWriter[object]:
        return LineWriter("test-lines", self.write, self.dropped, self.end, most_held, **options)

    def write(self, items: Sequence[object]) -> None:
        self.entered.set()
        self.sizes.append(len(items))
        for item in items:
            assert self.may_write.acquire(timeout=DEADLINE_S)
            self.said.append(item)

    def dropped(self, count: int) -> None:
        self.said.append(f"{count} dropped")

    def end(self) -> None:
        self.said.append("end")

    def let_go(self) -> None:
        self.may_write.release(1000)


@pytest.fixture
def held() -> Iterator[Sink]:
    sink = Sink(is_open=False)
    yield sink
    sink.let_go()


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_items_are_written_in_order_by_a_thread_that_begins_with_the_first_and_ends_with_the_last() -> None:
    sink = Sink()
    writer = sink.writer(most_at_once=7)
    assert (writer.has_begun, "tritonpy-test-lines" in threads()) == (False, False)

    assert all(writer.put(number) for number in range(100))
    assert (writer.has_begun, "tritonpy-test-lines" in threads()) == (True, True)

    assert writer.close()
    assert sink.said == [*range(100), "end"]
    assert max(sink.sizes) <= 7
    assert writer.held == 0
    assert "tritonpy-test-lines" not in threads()


def test_nothing_that_was_put_is_only_ended() -> None:
    sink = Sink()

    assert sink.writer().close()

    assert sink.said == ["end"]


def test_what_comes_after_the_close_is_refused() -> None:
    sink = Sink()
    writer = sink.writer()
    writer.put("a")
    writer.close()

    assert not writer.put("b")
    assert sink.said == ["a", "end"]


def test_what_finds_too_much_waiting_is_dropped_and_counted_behind_what_waits(held: Sink) -> None:
    writer = held.writer(most_held=4)
    writer.put("first")
    assert held.entered.wait(DEADLINE_S)

    assert [writer.put(number) for number in range(6)] == [True] * 3 + [False] * 3
    assert writer.held == 4

    held.let_go()
    until(lambda: "3 dropped" in held.said)
    assert writer.put("there again")
    writer.close()
    assert held.said == ["first", 0, 1, 2, "3 dropped", "there again", "end"]


def test_weights_are_bounded_but_one_item_alone_may_weigh_anything(held: Sink) -> None:
    writer = held.writer(most_held=10)

    assert writer.put("heavy", 1000)
    assert not writer.put("light", 1)
    assert writer.put("nothing", 0)

    held.let_go()
    until(lambda: writer.held == 0)
    assert writer.put("more", 6)
    writer.close()
    assert held.said.count("1 dropped") == 1  # before or after "nothing", as the writer finds them
    assert [line for line in held.said if line != "1 dropped"] == ["heavy", "nothing", "more", "end"]


def test_a_sink_that_fails_costs_what_it_was_given(caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink()

    def write(items: Sequence[object]) -> None:
        if "bad" in items:
            raise RuntimeError("broken")
        sink.write(items)

    writer = LineWriter[object]("test-lines", write, sink.dropped, sink.end, 10, most_at_once=1)
    for item in ("a", "bad", "b"):
        writer.put(item)

    assert writer.close()
    assert sink.said == ["a", "b", "end"]
    assert "1 test-lines could not be written" in caplog.text
    assert "RuntimeError: broken" in caplog.text


def test_close_gives_up_where_nothing_moves(held: Sink) -> None:
    writer = held.writer()
    writer.put("a")

    assert not writer.close(idle_s=0.01)
    assert held.said == []


def test_close_gives_up_in_the_end_where_little_moves(held: Sink) -> None:
    writer = held.writer(most_at_once=1)
    for number in range(9):
        writer.put(number)

    def join(timeout: float) -> None:
        left = writer.held
        held.may_write.release()
        until(lambda: writer.held < left)

    with_turns(writer, join)

    assert not writer.close(idle_s=1.0, most_s=0.25)  # five turns
    assert held.said == [*range(5)]


def test_close_waits_for_as_long_as_something_moves(held: Sink) -> None:
    writer = held.writer(most_at_once=1)
    for number in range(60):  # many more turns than it waits where nothing does
        writer.put(number)
    thread = writer._thread

    def join(timeout: float) -> None:
        """Let the time pass in which one more is written."""
        left = writer.held
        held.may_write.release()
        until(lambda: writer.held < left or not thread.is_alive())

    with_turns(writer, join)

    assert writer.close()
    assert held.said == [*range(60), "end"]


def test_time_in_which_the_machine_stands_still_is_not_the_sinks(held: Sink) -> None:
    writer, waits_s = held.writer(), list[float]()
    thread = writer._thread
    writer.put("the last line")

    def join(timeout: float) -> None:
        """The first time is over before the thread has come to do anything."""
        waits_s.append(timeout)
        if len(waits_s) > 1:
            held.may_write.release()
            thread.join(DEADLINE_S)

    with_turns(writer, join)

    assert writer.close(idle_s=2)
    assert held.said == ["the last line", "end"]
    assert waits_s[0] < 2


def with_turns(writer: LineWriter[object], join: Callable[[float], None]) -> None:
    """Let `close` wait by `join`."""
    thread = writer._thread
    writer._thread = SimpleNamespace(is_alive=thread.is_alive, join=join)  # type: ignore[assignment]


def test_what_comes_just_before_the_end_is_written() -> None:
    sink = Sink()
    writer = sink.writer()
    closing = threading.Thread(target=writer.close)

    class Busy(queue.SimpleQueue[None]):
        def put(self, item: None, block: bool = True, timeout: float | None = None) -> None:
            if not closing.ident:
                closing.start()
                closing.join(0.1)
            super().put(item)

    writer._wakes = Busy()
    writer.put("a")
    closing.join(DEADLINE_S)

    assert sink.said == ["a", "end"]


def test_something_may_be_put_while_the_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector runs where it likes."""
    sink = Sink()
    writer = sink.writer()
    start = writer._thread.start

    def starting() -> None:
        writer.put("collected")
        start()

    monkeypatch.setattr(writer._thread, "start", starting)
    writer.put("first")

    assert writer.close()
    assert sink.said == ["first", "collected", "end"]


def test_the_garbage_collector_may_put_what_it_finds_wherever_it_runs() -> None:
    sink = Sink()
    writer = sink.writer(most_held=10_000)

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            writer.put("collected")

    gc.collect()
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(50):
            Cycle()
            writer.put("put")
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    writer.close()

    assert sorted(map(str, sink.said)) == ["collected"] * 50 + ["end"] + ["put"] * 50


def test_what_the_thread_lets_go_of_may_put_something() -> None:
    """A log's own thread ends things, which may say so in that log."""
    said: list[str] = []

    class Ending:
        def __del__(self) -> None:
            writer.put("ended")

    def write(items: Sequence[object]) -> None:
        said.extend(type(item).__name__ for item in items)

    writer = LineWriter[object]("test-lines", write, lambda count: None, lambda: None, 10)
    writer.put(Ending())
    until(lambda: said == ["Ending", "str"])

    assert writer.close()


@given(st.lists(st.sampled_from(["put", "write"]), max_size=40), st.integers(1, 5), st.integers(1, 3))
def test_every_item_is_written_once_or_counted(steps: list[str], most_held: int, at_once: int) -> None:
    sink = Sink(is_open=False)
    writer = sink.writer(most_held, most_at_once=at_once)
    accepted, refused = [], 0
    for number, step in enumerate(steps):
        if step == "write":
            sink.may_write.release()
        elif writer.put(number):
            accepted.append(number)
        else:
            refused += 1
        assert writer.held <= most_held
    sink.let_go()
    assert writer.close(DEADLINE_S, DEADLINE_S)

    assert [item for item in sink.said if isinstance(item, int)] == accepted
    counts = [int(item.split()[0]) for item in sink.said if isinstance(item, str) and "dropped" in item]
    assert sum(counts) == refused
    assert sink.said[-1] == "end"


def test_many_threads_lose_nothing() -> None:
    sink = Sink()
    sink.let_go()
    sink.may_write = threading.Semaphore(100_000)
    writer = sink.writer(most_held=100_000)

    def put(first: int) -> None:
        for number in range(1000):
            writer.put(first + number)

    putting = [threading.Thread(target=put, args=(1000 * index,)) for index in range(4)]
    for thread in putting:
        thread.start()
    for thread in putting:
        thread.join()

    assert writer.close(DEADLINE_S, DEADLINE_S)
    written = [item for item in sink.said if isinstance(item, int)]
    assert sorted(written) == [*range(4000)]
    for index in range(4):
        mine = [item for item in written if item // 1000 == index]
        assert mine == sorted(mine)
