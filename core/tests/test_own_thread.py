from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest
from tritonpy.errors import Unavailable
from tritonpy.own_thread import SharedCall, StoreThreads, on_own_thread


async def test_the_work_is_done_elsewhere_while_the_loop_turns() -> None:
    gate = threading.Event()
    work = asyncio.create_task(on_own_thread(lambda: gate.wait(40) and threading.current_thread(), "own"))

    await asyncio.sleep(0)
    gate.set()

    thread = await work
    assert isinstance(thread, threading.Thread)
    assert (thread.name, thread.daemon) == ("own", True)
    assert thread is not threading.main_thread()


async def test_what_the_work_raises_reaches_whoever_waits() -> None:
    def fail() -> None:
        raise LookupError("no such licence")

    with pytest.raises(LookupError, match="no such licence"):
        await on_own_thread(fail, "own")


@pytest.mark.parametrize("kind", [SystemExit, StopIteration, asyncio.CancelledError])
async def test_what_would_end_the_loop_or_the_task_comes_as_an_error(kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind("enough")

    with pytest.raises(RuntimeError, match=f"^{kind.__name__}: enough$"):
        await on_own_thread(fail, "own")


async def test_the_work_sees_the_context_of_whoever_asks_for_it() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("seen")

    assert await on_own_thread(variable.get, "own") == "seen"


async def test_many_that_block_do_not_wait_for_each_other() -> None:
    barrier = threading.Barrier(50)

    turns = await asyncio.gather(*(on_own_thread(lambda: barrier.wait(20), "own") for _ in range(50)))

    assert sorted(turns) == list(range(50))


async def test_a_caller_who_is_cancelled_leaves_the_work_to_its_end() -> None:
    gate, ended = threading.Event(), threading.Event()
    work = asyncio.create_task(on_own_thread(lambda: gate.wait(40) and ended.set(), "own"))
    await asyncio.sleep(0)

    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    gate.set()

    assert await asyncio.to_thread(ended.wait, 20)


def test_work_that_ends_after_the_loop_disturbs_nobody() -> None:
    begun, gate = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def block() -> None:
        threads.append(threading.current_thread())
        begun.set()
        gate.wait(40)

    async def begin() -> None:
        work = asyncio.create_task(on_own_thread(block, "own"))
        await asyncio.to_thread(begun.wait, 20)
        work.cancel()

    asyncio.run(begin())
    gate.set()
    threads[0].join(20)

    assert not threads[0].is_alive()


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
