"""Keeps what is served like what lies in the repositories: mode *poll*, and `--reload` for development."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from tritonpy.lifecycle.following.changes import ChangeDetector, ReadErrors
from tritonpy.lifecycle.manager import ModelManager
from tritonpy.repository.key import ModelKey
from tritonpy.repository.repositories import Look

_log = logging.getLogger("tritonpy.repository")


class RepositoryPolling:
    """Acts on looks at the repositories, and waits for nothing it begins; on the loop only.

    What has changed is loaded beside what serves. A load that fails is tried again when any of the model's
    files changes, and not before: it would fail as it did. Only where the files could not be had, perhaps for
    the moment, each look tries again.

    Args:
        manager: loads and unloads.
        first: the look at the start, from which changes are told.
        only_wanted: leave models alone that nobody has asked for.
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
            self._detector.tell_again(key)
