"""Looks at the repositories again and again, on a thread of its own.

Looking again is slower than being told by the system, but works on every file system, in containers, on
network drives and in object stores. A look may take long: whoever else needs a thread does not wait for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tritonpy.repository.repositories import Look

_log = logging.getLogger("tritonpy.repository")

_STOP_S = 2.0


class RepositoryWatcher:
    """Looks after each interval, which begins when the look before has ended.

    Args:
        look: sees all models; blocking.
        on_look: takes what was seen; on the watcher's thread.
        interval_s: how long to wait between two looks.
        wait: waits for that long, or until the watcher is to stop, and says whether it is; for tests.
    """

    def __init__(
        self,
        look: Callable[[], Look],
        on_look: Callable[[Look], None],
        interval_s: float,
        *,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._look = look
        self._on_look = on_look
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._wait = wait or self._stop.wait
        self._thread = threading.Thread(target=self._run, name="repository-watcher", daemon=True)

    def start(self) -> None:
        """Begin to wait for the first look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a look that is under way is told to nobody, and waited for only a moment."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._wait(self._interval_s):
            try:
                look = self._look()
                if not self._stop.is_set():
                    self._on_look(look)
            except Exception:  # a look that fails must not be the last one
                _log.exception("looking for changed models failed")
