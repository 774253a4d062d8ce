"""Serving until a signal ends it, which may come while it still starts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_LOOK_S = 0.2
_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
"""What Python has at its start; Any: a function or a number."""


def serve_until_told(
    start: Callable[[], Callable[[], bool]], give_up: Callable[[], object], stop: Callable[[], object]
) -> None:
    """Start, serve until SIGINT or SIGTERM, and stop; on the main thread.

    Elsewhere there are no signals. A second one raises KeyboardInterrupt where the first has not ended a
    start, and one that comes while it stops does what it did before.

    Args:
        start: returns when it serves, with a question that is asked now and then: whether it still does.
        give_up: has `start` raise soon; called within it, in a handler of signals, so it does not wait.
        stop: does nothing where nothing runs.

    Raises:
        Exception: of `start` that was not given up, or of its question.
    """
    over = threading.Event()
    starts = True

    def end(number: int, _: FrameType | None) -> None:
        if starts and over.is_set():
            raise KeyboardInterrupt
        over.set()
        if starts:
            give_up()

    before: dict[signal.Signals, Any] = {}  # Any: whatever handled it
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.getsignal(number)
                signal.signal(number, end)
        serves = start()
        starts = False
        while serves() and not over.wait(_LOOK_S):
            pass
    except Exception:
        if not (starts and over.is_set()):
            raise
    finally:
        starts = False
        try:
            for each, handler in before.items():
                # None was installed from C, which Python cannot bring back: it handles the signal then.
                signal.signal(each, _HANDLERS[each] if handler is None else handler)
        finally:
            stop()
