"""What differs between looks at the repositories: which models are new, changed or gone.

A difference counts when two looks in a row agree on it. A model that is still being copied, an editor that
still writes and a directory that is exchanged for another one are left alone until they are done, and yet
each change is told of at the second look after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tritonpy.fingerprint import Fingerprint
from tritonpy.repository.key import ModelKey
from tritonpy.repository.repositories import Look

_Mark = tuple[str, Fingerprint]  # the repository that a model lies in, and its files

_TAKEN_TWICE: _Mark = ("", frozenset())
_ANY_FILES: Fingerprint = frozenset({("", 0, 0)})  # no model's files: whatever is seen differs from them


@dataclass(frozen=True, slots=True)
class Changes:
    """What one look tells.

    Attributes:
        changed: models that are new, or other than they were when they were last told of.
        gone: models that lie in no repository any more.
        refused: models that cannot be told from another one of their name any more, with the reason.
    """

    changed: tuple[ModelKey, ...]
    gone: tuple[ModelKey, ...]
    refused: Mapping[ModelKey, str]


class ChangeDetector:
    """Compares each look with what it has told of before.

    Nothing is told of models whose repository could not be read: they are what they were.

    Args:
        first: the look that changes are told from.
    """

    def __init__(self, first: Look) -> None:
        self._told: dict[ModelKey, _Mark] = _marks(first)
        self._latest: dict[ModelKey, _Mark | None] = dict(self._told)

    def changes(self, look: Look) -> Changes:
        """What has come to rest since the last look, and is other than before."""
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

    def tell_again(self, key: ModelKey) -> None:
        """Tell of a model at the next look, though it has not changed; or that it is gone, once it is."""
        told = self._told.get(key)
        if told is not None and told is not _TAKEN_TWICE:
            self._told[key] = told[0], _ANY_FILES


class ReadErrors:
    """Tells once, not at each look, that a repository cannot be read, and that it can be again."""

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
