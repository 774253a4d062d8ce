from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest
from tritonpy.own_thread import on_own_thread


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
