"""Requests wait for a replica that is less busy, in their order and not for ever; each is told once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.errors import TritonError
from tritonpy_router.dispatcher import Dispatcher, QueueLimits
from tritonpy_router.replica import Replica
from tritonpy_router.scan import Asked

from .test_view import Clock, make_view, sequence


class Wish:
    """A request, and what it was told."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.told: list[Replica | str] = []

    def go(self, replica: Replica) -> None:
        self.told.append(replica)

    def no_replica(self, error: TritonError) -> None:
        self.told.append(error.message)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


def on(loop: asyncio.AbstractEventLoop, work) -> None:  # type: ignore[no-untyped-def]
    async def run() -> None:
        work()

    loop.run_until_complete(run())


def test_above_the_limit_requests_wait_in_their_order(loop: asyncio.AbstractEventLoop) -> None:
    view = make_view("a", "b")
    dispatcher = Dispatcher(view, QueueLimits(1))
    wishes = [Wish(str(n)) for n in range(5)]

    def send() -> None:
        for wish in wishes:
            dispatcher.take(Asked("echo"), wish)

    on(loop, send)
    first = [len(wish.told) for wish in wishes]
    on(loop, lambda: dispatcher.release(view.replicas["b"]))

    assert (first, dispatcher.queued) == ([1, 1, 0, 0, 0], 2)
    assert [len(wish.told) for wish in wishes] == [1, 1, 1, 0, 0]
    assert wishes[2].told == [view.replicas["b"]]


def test_a_request_that_is_over_as_soon_as_it_is_placed_makes_way_for_the_next(
    loop: asyncio.AbstractEventLoop,
) -> None:
    view = make_view("a")
    dispatcher = Dispatcher(view, QueueLimits(1))

    class Brief(Wish):
        def go(self, replica: Replica) -> None:
            super().go(replica)
            dispatcher.release(replica)

    first, waiting = Wish(), [Brief() for _ in range(3)]
    on(loop, lambda: [dispatcher.take(Asked("echo"), wish) for wish in (first, *waiting)])

    on(loop, lambda: dispatcher.release(view.replicas["a"]))
    on(loop, dispatcher.retry)

    assert [len(wish.told) for wish in waiting] == [1, 1, 1]
    assert (dispatcher.queued, view.replicas["a"].inflight) == (0, 0)
    on(loop, dispatcher.close)


def test_a_full_queue_refuses_and_names_the_options(loop: asyncio.AbstractEventLoop) -> None:
    dispatcher = Dispatcher(make_view("a"), QueueLimits(1, 1))
    wishes = [Wish() for _ in range(3)]

    on(loop, lambda: [dispatcher.take(Asked("echo"), wish) for wish in wishes])

    assert [len(wish.told) for wish in wishes] == [1, 0, 1]
    [refused] = wishes[2].told
    assert "see --max-replica-inflight and --max-queued" in str(refused)


def test_what_waits_too_long_is_refused(loop: asyncio.AbstractEventLoop) -> None:
    clock = Clock()
    dispatcher = Dispatcher(make_view("a", clock=clock), QueueLimits(1, wait_s=3))
    early, late = Wish(), Wish()

    on(loop, lambda: [dispatcher.take(Asked("echo"), wish) for wish in (Wish(), early)])
    clock.now_s += 2
    on(loop, lambda: dispatcher.take(Asked("echo"), late))
    clock.now_s += 1
    on(loop, dispatcher._expire)

    assert [len(wish.told) for wish in (early, late)] == [1, 0]
    assert "became less busy within 3 s: see" in str(early.told[0])
    on(loop, dispatcher.close)
    assert late.told == ["the router is stopping"]


def test_what_is_withdrawn_hears_nothing(loop: asyncio.AbstractEventLoop) -> None:
    view = make_view("a")
    dispatcher = Dispatcher(view, QueueLimits(1))
    gone, stays = Wish(), Wish()
    on(loop, lambda: [dispatcher.take(Asked("echo"), wish) for wish in (Wish(), gone, stays)])

    on(loop, lambda: dispatcher.withdraw(gone))
    on(loop, lambda: dispatcher.release(view.replicas["a"]))

    assert (gone.told, stays.told, dispatcher.queued) == ([], [view.replicas["a"]], 0)
    on(loop, dispatcher.close)


def test_a_sequence_waits_for_its_own_replica(loop: asyncio.AbstractEventLoop) -> None:
    view = make_view("a", "b")
    dispatcher = Dispatcher(view, QueueLimits(1))
    start, follows = Wish(), Wish()
    on(loop, lambda: dispatcher.take(sequence(1, start=True), start))
    [replica] = start.told

    on(loop, lambda: dispatcher.take(sequence(1), follows))
    waits = list(follows.told)
    assert isinstance(replica, Replica)
    on(loop, lambda: dispatcher.release(replica))

    assert (waits, follows.told) == ([], [replica])
    on(loop, dispatcher.close)


def test_what_waits_learns_that_no_replica_is_left(loop: asyncio.AbstractEventLoop) -> None:
    view = make_view("a")
    dispatcher = Dispatcher(view, QueueLimits(1))
    waits = Wish()
    on(loop, lambda: [dispatcher.take(Asked("echo"), wish) for wish in (Wish(), waits)])

    view.gone(view.replicas["a"], "does not answer")
    on(loop, dispatcher.retry)

    assert waits.told == ["no replica is ready: 'a' does not answer"]
    on(loop, dispatcher.close)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["echo", "seq", "release", "withdraw", "time", "lose"]), max_size=60),
    st.integers(1, 3),
)
def test_each_request_is_told_once_and_the_count_holds(steps: list[str], most: int) -> None:
    clock = Clock()
    view = make_view("a", "b", clock=clock)
    wishes: list[Wish] = []
    withdrawn: list[Wish] = []

    async def run() -> None:
        dispatcher = Dispatcher(view, QueueLimits(most, 5, 2))
        for number, step in enumerate(steps):
            if step in ("echo", "seq"):
                wishes.append(Wish())
                asked = Asked("echo") if step == "echo" else sequence(number % 3 + 1, start=True)
                dispatcher.take(asked, wishes[-1])
            elif step == "release" and (busy := [each for each in view if each.inflight]):
                dispatcher.release(busy[0])
            elif step == "withdraw" and (waiting := [wish for wish in wishes if not wish.told]):
                withdrawn.append(waiting[0])
                wishes.remove(waiting[0])
                dispatcher.withdraw(waiting[0])
            elif step == "time":
                clock.now_s += 1.5
                dispatcher._expire()
            elif step == "lose":
                view.gone(view.replicas["a"], "gone")
                dispatcher.retry()
            assert all(replica.inflight <= most for replica in view)
            assert dispatcher.queued == sum(not wish.told for wish in wishes)
        dispatcher.close()

    asyncio.run(run())
    assert [len(wish.told) for wish in wishes] == [1] * len(wishes)
    assert not any(wish.told for wish in withdrawn)
