"""Calls of a client that may block, given up when the server stops.

A client cannot be interrupted: a store that hangs holds its caller until a time limit has passed. So each
call is made on a thread of its own that nobody has to wait for, neither a stopping server nor the end of the
interpreter.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from typing import TypeVar

from tritonpy.errors import Unavailable

STOPPING = "the server stops"

Result = TypeVar("Result")


class StoppableCalls:
    """The calls of one store that are under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both below
        self._waiting: set[Future[object]] = set()
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether calls are refused."""
        return self._is_stopped

    def make(self, call: Callable[[], Result]) -> Result:
        """Make a call and wait for it, on a thread that blocks.

        Raises:
            Unavailable: the server stops; the call may still go on.
        """
        future: Future[Result] = Future()
        with self._lock:
            if self._is_stopped:
                raise Unavailable(STOPPING)
            self._waiting.add(future)  # type: ignore[arg-type]  # nothing but an exception is put into it
        try:
            threading.Thread(target=_fulfil, args=(future, call), name="model-store", daemon=True).start()
            return future.result()
        finally:
            with self._lock:
                self._waiting.discard(future)

    def stop(self) -> None:
        """Let nobody wait any longer, and refuse all later calls."""
        with self._lock:
            self._is_stopped = True
            waiting = list(self._waiting)
        for future in waiting:
            with contextlib.suppress(InvalidStateError):  # it has just been fulfilled
                future.set_exception(Unavailable(STOPPING))


def make_all(calls: Iterable[Callable[[], None]], at_once: int) -> None:
    """Make the calls on some threads, and wait for all; after the first that fails no other is begun."""
    left = deque(calls)
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            try:
                call = left.popleft()
            except IndexError:
                return
            try:
                call()
            except BaseException as exc:
                errors.append(exc)

    threads = [
        threading.Thread(target=work, name="model-download", daemon=True)
        for _ in range(min(at_once, len(left)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _fulfil(future: Future[Result], call: Callable[[], Result]) -> None:
    try:
        result = call()
    except BaseException as exc:
        with contextlib.suppress(InvalidStateError):  # nobody waits any longer
            future.set_exception(exc)
    else:
        with contextlib.suppress(InvalidStateError):
            future.set_result(result)
