"""The trace extension: what is traced, of the server or of one model, shown and changed while it runs.

The protocols differ in how a value is written and in the words for a wrong one, and agree on everything else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tritonpy.dataplane import Dataplane
from tritonpy.errors import InvalidArg, TritonError, Unsupported
from tritonpy.tracing.settings import LEVELS, TraceLevel
from tritonpy.tracing.tracing import Shown, Tracing

_log = logging.getLogger("tritonpy.frontends")

_NUMBERS = (
    # name, field, least, most
    ("trace_rate", "rate", 0, 2**32 - 1),
    ("trace_count", "count", -1, 2**31 - 1),
    ("log_frequency", "log_frequency", 0, 2**32 - 1),
)


class TraceSettingReader(Protocol):
    """Reads settings as one protocol writes them; its errors are in that protocol's words.

    Attributes:
        separator: stands between a number that is too small and what is said of it.
    """

    separator: str

    def levels(self, value: Any) -> Sequence[str] | None:  # Any: JSON, or a message
        """The names of levels; None takes the level that holds otherwise.

        Raises:
            TritonError: it is of another kind.
        """

    def text(self, name: str, value: Any) -> str | None:  # Any: likewise
        """The one text of a setting; None takes the value that holds otherwise.

        Raises:
            TritonError: it is of another kind.
        """


class TraceSettings:
    """Shows and changes settings; on the loop only.

    Args:
        dataplane: has the models.
        tracing: has the settings.
    """

    def __init__(self, dataplane: Dataplane, tracing: Tracing) -> None:
        self._dataplane = dataplane
        self._tracing = tracing

    def show(self, model: str = "") -> Shown:
        """The settings of a model, or of the server.

        Raises:
            InvalidArg: there is no such model.
        """
        self._check_model(model)
        return self._tracing.shown(model)

    def change(self, wanted: Mapping[str, Any], reader: TraceSettingReader, model: str = "") -> Shown:
        """Change the settings that `wanted` names, all or none; unknown names are ignored, as in Triton.

        Args:
            wanted: values by name, as the protocol writes them. Any: see `TraceSettingReader`.
            reader: of that protocol.
            model: whose settings; "" for the server's.

        Returns:
            All settings as they are now.

        Raises:
            TritonError: there is no such model, a value is wrong, or nothing could be traced with it.
        """
        self._check_model(model)
        if "trace_file" in wanted:
            raise Unsupported("trace file location can not be updated through network protocol")
        changes: dict[str, object] = {}
        if "trace_level" in wanted:
            _read_level(reader.levels(wanted["trace_level"]), changes)
        for name, field, least, most in _NUMBERS:
            if name in wanted:
                text = reader.text(name, wanted[name])
                changes[field] = None if text is None else _number(name, text, least, most, reader.separator)
        self._tracing.change(changes, model)
        shown = self._tracing.shown(model)
        if changes:
            whose = f"of model '{model}'" if model else "of the server"
            _log.info(
                "trace settings %s changed: %s", whose, ", ".join(f"{key} {text}" for key, text in shown)
            )
        return shown

    def _check_model(self, model: str) -> None:
        if not model:
            return
        try:
            self._dataplane.find(model)
        except TritonError:
            raise InvalidArg(f"Request for unknown model : {model}") from None


def _read_level(names: Sequence[str] | None, changes: dict[str, object]) -> None:
    """Note the level that names ask for; unknown names ask for nothing."""
    if names is None:
        changes["level"] = None
        return
    known = [LEVELS[name] for name in names if name in LEVELS]
    if TraceLevel.OFF in known and len(names) > 1:
        raise InvalidArg("Expect only one trace level 'OFF' is specified")
    if known:
        level = TraceLevel.OFF
        for one in known:
            level |= one
        changes["level"] = level


def _number(name: str, text: str, least: int, most: int, separator: str) -> int:
    digits = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]+", digits):
        raise InvalidArg(f"Unable to parse '{name}', got: {text}")
    # No number of a thousand digits is made: that takes its time.
    value = int(digits) if len(digits) <= 20 else most + 1
    if value < least == -1:
        raise InvalidArg(f"Unable to parse '{name}'. Expecting value >= -1, got:{separator}{digits}")
    if not least <= value <= most:
        raise InvalidArg(
            f"Unable to parse '{name}', value is out of range [ {least}, {most} ], got: {digits}"
        )
    return value
