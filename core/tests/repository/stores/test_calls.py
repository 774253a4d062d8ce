from __future__ import annotations

import queue
import threading

import pytest
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.repository.stores.calls import StoppableCalls, make_all


def fail(text: str) -> None:
    raise InvalidArg(text)


def test_a_call_gives_what_it_gives() -> None:
    calls = StoppableCalls()

    assert calls.make(lambda: 5) == 5
    with pytest.raises(InvalidArg, match="as it is"):
        calls.make(lambda: fail("as it is"))


def test_whoever_waits_for_a_call_that_hangs_is_let_go_when_the_server_stops() -> None:
    calls = StoppableCalls()
    is_called, go_on = threading.Event(), threading.Event()
    errors: list[Unavailable] = []

    def wait() -> None:
        try:
            calls.make(lambda: (is_called.set(), go_on.wait(20)))
        except Unavailable as exc:
            errors.append(exc)

    waiting = threading.Thread(target=wait)
    waiting.start()
    is_called.wait(20)
    calls.stop()
    waiting.join(20)
    go_on.set()

    assert [error.message for error in errors] == ["the server stops"]
    assert calls.is_stopped


def test_a_stopped_store_begins_no_call() -> None:
    calls = StoppableCalls()
    calls.stop()

    with pytest.raises(Unavailable):
        calls.make(lambda: pytest.fail("begun"))


def test_many_calls_are_made_some_at_once() -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    made: list[int] = []
    four = threading.Barrier(4)

    def call(number: int) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        if number < 4:
            four.wait(20)
        with lock:
            at_once -= 1
            made.append(number)

    make_all([lambda number=number: call(number) for number in range(50)], 4)  # type: ignore[misc]  # mypy#15459

    assert sorted(made) == list(range(50))
    assert most == 4


def test_after_the_first_that_fails_no_call_is_begun() -> None:
    begun: list[int] = []
    failing: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()

    def call(number: int) -> None:
        begun.append(number)
        if number == 3:
            for _ in range(3):  # one for each of the others
                failing.put(threading.current_thread())
            fail("the third")
        elif number > 3:
            failing.get(timeout=20).join(20)  # it ends when its failure is known

    with pytest.raises(InvalidArg, match="the third"):
        make_all([lambda number=number: call(number) for number in range(1000)], 4)  # type: ignore[misc]  # the same

    assert len(begun) <= 7


def test_no_calls_are_made_of_none() -> None:
    make_all([], 4)
