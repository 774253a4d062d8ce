"""Checkpoints: trials as lines of JSON, each written whole before the next begins, to go on from later."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tritonpy.errors import InvalidArg

from tritonpy_analyze.space import Choice, Value

JsonObject = dict[str, Any]  # Any: JSON

_FORM = 1
_TOLD = frozenset({"settled"})
"""What the first line has for its readers; a search is the same one where it differs."""


class Checkpoint:
    """A file of trials.

    The first line says what is searched; a file of another search is refused rather than mixed up. What a
    cut-off line at its end has is tried again.

    Args:
        path: made if it is not there.
        subject: what is searched, as JSON: models with their configurations, goal, and how it is measured.

    Raises:
        InvalidArg: the file is of another search, or is none.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, subject: Mapping[str, object]) -> None:
        self.path = path
        head = json.loads(json.dumps({"form": _FORM, **subject}))
        self.trials: list[JsonObject] = []
        length = self._read(head) if path.exists() else 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._file, length)
        if not length:
            self._write(head)

    def _read(self, head: JsonObject) -> int:
        """Take the trials in; returns the bytes of whole lines."""
        content = self.path.read_bytes()
        length = content.rfind(b"\n") + 1
        try:
            found = [json.loads(line) for line in content[:length].splitlines()]
            if not all(isinstance(each, dict) for each in found):
                raise ValueError
        except ValueError as exc:
            raise InvalidArg(f"'{self.path}' is no checkpoint: expected a JSON object on each line") from exc
        if not found:
            return 0
        keys = {**head, **found[0]}.keys() - _TOLD
        if differing := [key for key in keys if head.get(key) != found[0].get(key)]:
            raise InvalidArg(
                f"checkpoint '{self.path}' is of another search: {', '.join(sorted(differing))} differ. Give "
                f"another folder with --work-dir, or begin anew with --fresh"
            )
        self.trials = found[1:]
        return length

    def add(self, trial: JsonObject) -> None:
        """Write a trial, on the disk when this returns."""
        self.trials.append(trial)
        self._write(trial)

    def _write(self, entry: JsonObject) -> None:
        line = json.dumps(_plain(entry), separators=(",", ":")) + "\n"
        os.write(self._file, line.encode())
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _plain(value: Any) -> Any:  # Any: JSON, in which there is no NaN
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def choice_json(choice: Choice) -> JsonObject:
    """A choice as JSON."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in choice.items()}


def choice_of(found: JsonObject) -> dict[str, Value]:
    """What `choice_json` has made."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
