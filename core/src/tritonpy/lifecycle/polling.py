"""Loads and unloads that follow changes of files in the repositories: mode *poll* and `--reload`.

A change counts when two looks in a row agree on it. So a model that is still being copied, or a directory
that is being exchanged for another one, is left alone until it is complete. Looking again is slower than
being told by the system, but works on every file system, in containers, on network drives and in object
stores.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from tritonpy.fingerprint import Fingerprint
from tritonpy.lifecycle.manager import ModelManager
from tritonpy.repository.layout import ModelKey
from tritonpy.repository.repositories import Look

_log = logging.getLogger("tritonpy.repository")

_Mark = tuple[str, Fingerprint]  # the repository that a model lies in, and its files

_TAKEN_TWICE: _Mark = ("", frozenset())
_ANY_FILES: Fingerprint = frozenset({("", 0, 0)})  # no model's files: all that are seen differ from them


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that one look shows.

    Attributes:
        changed: models that are new, or other than they were when they were last told of.
        gone: models that lie in no repository any more.
        refused: models that cannot be told from another one of their name any more, with the reason.
    """

    changed: tuple[ModelKey, ...]
    gone: tuple[ModelKey, ...]
    refused: Mapping[ModelKey, str]


class ChangeDetector:
    """Compares each look with the changes reported before.

    Models whose repository could not be read are left out: they stay as they were.

    Args:
        first: the look that later ones are compared with.
    """

    def __init__(self, first: Look) -> None:
        self._told: dict[ModelKey, _Mark] = _marks(first)
        self._latest: dict[ModelKey, _Mark | None] = dict(self._told)

    def changes(self, look: Look) -> Changes:
        """The changes that the last two looks agree on."""
        seen: dict[ModelKey, _Mark | None] = {**dict.fromkeys(self._told), **_marks(look)}
        changed: list[ModelKey] = []
        gone: list[ModelKey] = []
        refused: dict[ModelKey, str] = {}
        for key, mark in seen.items():
            told = self._told.get(key)
            if _is_hidden(told, look):
                seen[key] = told  # also if another repository has its like
            elif mark != told and mark == self._latest.get(key):
                if mark is None:
                    gone.append(key)
                    del self._told[key]
                    continue
                self._told[key] = mark
                if mark is _TAKEN_TWICE:
                    refused[key] = look.refused[key.name]
                else:
                    changed.append(key)
        self._latest = seen
        return Changes(tuple(changed), tuple(gone), refused)

    def report_again(self, key: ModelKey) -> None:
        """Report a model at the next look though it has not changed; or its end, once it is gone."""
        told = self._told.get(key)
        if told is not None and told is not _TAKEN_TWICE:
            self._told[key] = told[0], _ANY_FILES


class ReadErrors:
    """Reports once, not at each look, that a repository cannot be read, and that it can be again."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def news(self, look: Look) -> Iterator[tuple[str, str]]:
        """Repositories by name with what has happened to them; "" for one that can be read again."""
        now = {root: str(error) for root, error in look.unread.items()}
        for root in self._told.keys() - now.keys():
            yield root, ""
        for root, reason in now.items():
            if root not in self._told:
                yield root, reason
        self._told = now


def _marks(look: Look) -> dict[ModelKey, _Mark]:
    marks = {key: (found.store.root, found.fingerprint) for key, found in look.found.items()}
    return marks | {ModelKey(name): _TAKEN_TWICE for name in look.refused}


def _is_hidden(told: _Mark | None, look: Look) -> bool:
    if told is _TAKEN_TWICE:
        return bool(look.unread)  # it may be one of these that has the other one
    return told is not None and told[0] in look.unread


class RepositoryPolling:
    """Acts on looks at the repositories, and waits for nothing it begins; on the loop only.

    What has changed is loaded beside what serves. A load that fails is tried again when any of the model's
    files changes, and not before: it would fail as it did. Only where the files could not be had, perhaps for
    the moment, each look tries again.

    Args:
        manager: loads and unloads.
        first: the look at the start, with which later ones are compared.
        only_wanted: leave models alone that were never asked for.
        unloads: a model that has gone from the repositories, or whose name has been taken twice, is unloaded.
    """

    def __init__(
        self,
        manager: ModelManager,
        first: Look,
        *,
        only_wanted: bool = False,
        unloads: bool = True,
    ) -> None:
        self._manager = manager
        self._detector = ChangeDetector(first)
        self._read_errors = ReadErrors()
        self._only_wanted = only_wanted
        self._unloads = unloads

    def follow(self, look: Look) -> None:
        """Begin what has to be done after a look."""
        for root, reason in self._read_errors.news(look):
            if reason:
                _log.error(
                    "cannot look at model repository '%s'; its models stay as they are: %s", root, reason
                )
            else:
                _log.info("model repository '%s' can be looked at again", root)
        changes = self._detector.changes(look)
        for key, reason in changes.refused.items():
            _log.error("failed to load '%s': %s", key, reason)
            if self._unloads:
                self._manager.remove_soon(key, reason)
        for key in changes.changed:
            reload = self._manager.reload_soon(look.found[key], only_wanted=self._only_wanted)
            reload.add_done_callback(partial(self._reloaded, key))
        for key in changes.gone if self._unloads else ():
            _log.info("model '%s' is in no model repository any more", key)
            self._manager.remove_soon(key)

    def _reloaded(self, key: ModelKey, reload: asyncio.Task[bool]) -> None:
        if not reload.cancelled() and reload.exception() is None and not reload.result():
            self._detector.report_again(key)


_STOP_S = 2.0


class RepositoryWatcher:
    """Looks at the repositories after each interval, on a thread of its own.

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
        """Stop; the result of a look under way is dropped, and it is waited for only a moment."""
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
