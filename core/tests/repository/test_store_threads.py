from __future__ import annotations

import asyncio
import threading

import pytest
from tritonpy.errors import Unavailable
from tritonpy.repository.store_threads import SharedCall, StoreThreads


class Store:
    """Answers when it may, and counts."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.begun = threading.Semaphore(0)
        self.count = 0

    def ask(self) -> int:
        self.count += 1
        count = self.count
        self.begun.release()
        assert self.may_answer.wait(20)
        return count


async def begun(store: Store) -> None:
    assert await asyncio.to_thread(store.begun.acquire, timeout=20)


async def test_so_many_calls_are_made_at_once_and_the_others_after_them() -> None:
    store, threads = Store(), StoreThreads(3)
    calls = [asyncio.create_task(threads.call(store.ask)) for _ in range(10)]
    for _ in range(3):
        await begun(store)
    await asyncio.sleep(0.01)
    at_once = store.count
    store.may_answer.set()

    assert sorted(await asyncio.gather(*calls)) == list(range(1, 11))
    assert at_once == 3


async def test_calls_that_hang_take_no_thread_of_others() -> None:
    store, threads = Store(), StoreThreads(100)
    calls = [asyncio.create_task(threads.call(store.ask)) for _ in range(100)]
    for _ in calls:
        await begun(store)  # on one of the threads that everybody uses

    store.may_answer.set()
    await asyncio.gather(*calls)


async def test_what_a_call_raises_reaches_who_asked() -> None:
    def fail() -> None:
        raise Unavailable("no answer")

    with pytest.raises(Unavailable, match="no answer"):
        await StoreThreads().call(fail)
    with pytest.raises(Unavailable, match="no answer"):
        await SharedCall(fail).get()


async def test_all_who_ask_during_a_call_share_the_next_one() -> None:
    store = Store()
    shared = SharedCall(store.ask)
    first = asyncio.create_task(shared.get())
    await begun(store)
    others = [asyncio.create_task(shared.get()) for _ in range(50)]
    await asyncio.sleep(0.01)
    during = store.count
    store.may_answer.set()

    assert (await first, set(await asyncio.gather(*others))) == (1, {2})
    assert during == 1
    assert await shared.get() == 3


async def test_who_asks_and_goes_away_leaves_the_call_to_the_others() -> None:
    store = Store()
    shared = SharedCall(store.ask)
    gone, stays = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
    await begun(store)
    gone.cancel()
    store.may_answer.set()

    assert await stays == 1
    assert gone.cancelled()
