from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest
from tritonpy.metrics.loop_watch import LoopWatch


async def test_a_blocked_loop_is_seen_as_lag() -> None:
    lags: list[float] = []
    seen = asyncio.Event()

    def observe(lag_s: float) -> None:
        lags.append(lag_s)
        if lag_s >= 0.05:
            seen.set()

    watch = LoopWatch(observe, interval_s=0.01)
    watch.start()
    asyncio.get_running_loop().call_soon(time.sleep, 0.1)
    await seen.wait()
    watch.stop()

    assert min(lags) >= 0


async def test_a_silent_loop_is_named_with_the_line_it_stands_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    named, again = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "silent" in record.getMessage():
                named.set()
            else:
                loop.call_soon_threadsafe(again.set)

    def stand_still() -> None:
        watch.start()
        assert named.wait(30)

    logging.getLogger("tritonpy.metrics").addHandler(handler := Heard())
    watch = LoopWatch(lambda lag_s: None, interval_s=0.01, silence_s=0.05)
    stand_still()
    await again.wait()
    watch.stop()
    logging.getLogger("tritonpy.metrics").removeHandler(handler)

    silent, over = caplog.records[:2]
    assert "the event loop has been silent for" in silent.getMessage()
    assert "stand_still" in silent.table  # type: ignore[attr-defined]
    assert "the event loop runs again after" in over.getMessage()


async def test_stop_ends_timer_and_thread() -> None:
    beats: list[float] = []
    beaten = asyncio.Event()

    def observe(lag_s: float) -> None:
        beats.append(lag_s)
        beaten.set()

    before = {*threading.enumerate()}  # of servers that other tests keep, too
    watch = LoopWatch(observe, interval_s=0.001)
    watch.start()
    [thread] = {*threading.enumerate()} - before
    await beaten.wait()

    watch.stop()
    count = len(beats)
    await asyncio.sleep(0.02)

    assert len(beats) == count
    assert thread.name == "tritonpy-loop-watch"
    assert not thread.is_alive()
