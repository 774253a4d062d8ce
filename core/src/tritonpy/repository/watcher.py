"""Notices that the files of models change, for `--reload`: on a thread, by looking at them again and again.

Looking again is slower than being told by the system, but works on every file system, also in containers and
on network drives. A change counts when two looks in a row show the same, so that a model is not loaded while
it is being copied or an editor still writes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from tritonpy.repository.fingerprint import Fingerprint
from tritonpy.repository.key import ModelKey

_log = logging.getLogger("tritonpy.repository")

_INTERVAL_S = 1.0

Fingerprints = Mapping[ModelKey, Fingerprint]
"""The files of every model, as one look sees them."""


class ChangeDetector:
    """Tells from one look to the next which models have changed and come to rest.

    Args:
        before: the look that changes are told from.
    """

    def __init__(self, before: Fingerprints) -> None:
        self._settled = dict(before)
        self._latest = dict(before)

    def changed(self, seen: Fingerprints) -> list[ModelKey]:
        """The models that differ from when they were last told of, and not from the look before."""
        found = [
            key
            for key, fingerprint in seen.items()
            if fingerprint != self._settled.get(key) and fingerprint == self._latest.get(key)
        ]
        # A model that has gone is forgotten, and new when it comes back.
        self._settled = {key: old for key, old in self._settled.items() if key in seen}
        self._settled.update((key, seen[key]) for key in found)
        self._latest = dict(seen)
        return found


class ModelWatcher:
    """Calls back when the files of a model have changed.

    Args:
        look: sees the files of all models.
        on_change: takes the model; on the watcher's thread.
        interval_s: how long to wait between two looks.
        wait: waits for that long, or until the watcher is to stop, and says whether it is; for tests.
    """

    def __init__(
        self,
        look: Callable[[], Fingerprints],
        on_change: Callable[[ModelKey], None],
        *,
        interval_s: float = _INTERVAL_S,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._look = look
        self._on_change = on_change
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._wait = wait or self._stop.wait
        self._thread = threading.Thread(target=self._run, name="model-watcher", daemon=True)
        self._detector: ChangeDetector | None = None

    def start(self) -> None:
        """Take a first look, from which changes are told, and watch from now on; the look blocks."""
        self._detector = ChangeDetector(self._look())
        self._thread.start()

    def stop(self) -> None:
        """Call back no more; returns when the thread has ended."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        assert self._detector is not None  # started
        while not self._wait(self._interval_s):
            try:
                changed = self._detector.changed(self._look())
            except Exception:  # a look that fails must not be the last one
                _log.exception("looking for changed models failed")
                continue
            for key in changed:
                self._on_change(key)
