"""The way from model threads to the loop: order, fairness, and a limit to what may wait."""

from __future__ import annotations

import asyncio
import threading

from tritonpy.model.bridge import _MOST_WAITING, LoopBridge
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse


async def test_calls_run_in_the_order_they_were_posted_by_each_thread() -> None:
    bridge = LoopBridge(asyncio.get_running_loop())
    seen: list[tuple[int, int]] = []
    finished: list[int] = []
    all_done = asyncio.Event()

    def finish(worker: int) -> None:
        finished.append(worker)
        if len(finished) == 3:
            all_done.set()

    def work(worker: int) -> None:
        for index in range(2000):
            bridge.call(seen.append, (worker, index))
        bridge.call(finish, worker)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(30):
        await all_done.wait()
    for thread in threads:
        thread.join()

    for worker in range(3):
        assert [index for who, index in seen if who == worker] == list(range(2000))


async def test_a_flood_of_answers_is_held_back_and_the_loop_serves_others_meanwhile() -> None:
    bridge = LoopBridge(asyncio.get_running_loop())
    received = 0
    most_waiting = 0
    stop = threading.Event()

    class Sink:
        def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
            nonlocal received, most_waiting
            received += 1
            most_waiting = max(most_waiting, len(bridge._calls))

    request = InferRequest("m", {})

    request.ticket.sink = Sink()

    def flood() -> None:
        while not stop.is_set():
            bridge.post(request, InferResponse(), False)

    thread = threading.Thread(target=flood)
    thread.start()
    turns = 0
    async with asyncio.timeout(30):
        while received < 20_000:
            await asyncio.sleep(0)
            turns += 1
    stop.set()
    await asyncio.to_thread(thread.join)

    assert turns > 100
    assert most_waiting <= _MOST_WAITING + 1
