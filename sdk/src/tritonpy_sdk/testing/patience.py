"""Waiting until something is so, with one deadline for all tests.

How long a test has to wait says something about the machine, not about the test. So tests bring no deadlines
of their own: all take `DEADLINE_S`, which is generous where nothing is wrong, and a slow machine has more of
it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05

DEADLINE_S = 60.0 * float(os.environ.get("TRITONPY_TEST_PATIENCE", "1"))
"""Seconds that a test waits for anything: a state, an answer, the end of a process.

The environment variable `TRITONPY_TEST_PATIENCE` is a factor for machines that need more; pytest needs a
longer `--timeout` then, too.
"""


def until(condition: Callable[[], T], what: object = "") -> T:
    """Ask again and again until something is so.

    Args:
        condition: what is to become true; errors that it raises are not caught.
        what: is waited for, for the message; a function is called for what to say once it is too late.

    Returns:
        What the condition gave, which is true.

    Raises:
        AssertionError: it was not so within `DEADLINE_S`.
    """
    __tracebackhide__ = True
    give_up, pause_s = time.monotonic() + DEADLINE_S, _FIRST_PAUSE_S
    while not (value := condition()):
        if time.monotonic() > give_up:
            raise AssertionError(_complaint(condition, what, value))
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return value


async def until_async(condition: Callable[[], T | Awaitable[T]], what: object = "") -> T:
    """Do as `until` does while the event loop goes on, in the time of that loop.

    Args:
        condition: as there; it may also return an awaitable.
        what: as there.

    Returns:
        What the condition gave, which is true.

    Raises:
        AssertionError: it was not so within `DEADLINE_S`.
    """
    __tracebackhide__ = True
    now = asyncio.get_running_loop().time
    give_up, pause_s = now() + DEADLINE_S, 0.0  # most of what a loop is waited for comes in its next turns
    while True:
        given = condition()
        value = await given if inspect.isawaitable(given) else given
        if value:
            return value
        if now() > give_up:
            raise AssertionError(_complaint(condition, what, value))
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s + _FIRST_PAUSE_S / 4, _LONGEST_PAUSE_S)


def _complaint(condition: Callable[..., object], what: object, value: object) -> str:
    said = what() if callable(what) else what
    if not said:
        code = getattr(condition, "__code__", None)
        said = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(condition)
    return f"not so within {DEADLINE_S:g} s: {said}; the last value was {value!r}"
