"""The logging extension: what the log writes, shown and changed while the server runs.

The protocols differ in how a value is written and in the words for a wrong one, and agree on everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, get_args

from tritonpy import logs
from tritonpy.errors import InvalidArg, TritonError, Unsupported
from tritonpy.logs import LogSettings
from tritonpy.options import LogFormat

_log = logging.getLogger("tritonpy.frontends")

SettingValue = bool | int | str

MAX_VERBOSE_LEVEL = 2**32 - 1  # what gRPC's field holds


@dataclass(frozen=True, slots=True)
class LogSetting:
    """One setting of the log, as clients know it.

    Attributes:
        name: in requests and answers.
        kind: of its value.
        field: of `LogSettings`.
    """

    name: str
    kind: type[SettingValue]
    field: str


SETTINGS = (
    LogSetting("log_file", str, "log_file"),
    LogSetting("log_info", bool, "log_info"),
    LogSetting("log_warning", bool, "log_warning"),
    LogSetting("log_error", bool, "log_error"),
    LogSetting("log_verbose_level", int, "log_verbose"),
    LogSetting("log_format", str, "log_format"),
)
"""All settings, in the order in which they are shown and checked."""


class SettingReader(Protocol):
    """Reads settings as one protocol writes them; its errors are in that protocol's words."""

    def read(self, setting: LogSetting, value: Any) -> SettingValue:  # Any: JSON, or a message
        """The value of `setting`.

        Raises:
            TritonError: it is of another kind.
        """

    def unknown_format(self, name: str) -> TritonError:
        """The error for a format that does not exist."""


def shown_settings() -> Iterable[tuple[LogSetting, SettingValue]]:
    """Each setting with its value now."""
    settings = _current()
    return [(setting, getattr(settings, setting.field)) for setting in SETTINGS]


def change_settings(wanted: Mapping[str, Any], reader: SettingReader) -> None:
    """Change the settings that `wanted` names, all or none; unknown names are ignored, as in Triton.

    A line of information tells what became different.

    Args:
        wanted: values by name, as the protocol writes them.
        reader: of that protocol.

    Raises:
        TritonError: a value is wrong, or the settings are not the server's to change.
    """
    changes: dict[str, Any] = {}  # Any: by field
    for setting in SETTINGS:
        if setting.name not in wanted:
            continue
        if setting.name == "log_file":
            raise Unsupported("log file location can not be updated through network protocol")
        value = reader.read(setting, wanted[setting.name])
        if setting.name == "log_format" and value not in get_args(LogFormat):
            raise reader.unknown_format(str(value))
        if setting.kind is int and int(value) > MAX_VERBOSE_LEVEL:
            raise InvalidArg(
                f"{setting.name} is out of range: got {value}, expected 0 to {MAX_VERBOSE_LEVEL}"
            )
        changes[setting.field] = value
    if not changes:
        return
    log = logs.running()
    if log is None:
        raise Unsupported(
            "log settings cannot be changed: the program that this server is part of writes the log itself"
        )
    before, after = log.settings, replace(log.settings, **changes)
    text = _differences(before, after)
    if text and before.log_info:  # also when this is the change that ends such lines
        _log.info("log settings changed: %s", text)
    log.change(after)
    if text and not before.log_info:
        _log.info("log settings changed: %s", text)


def _differences(before: LogSettings, after: LogSettings) -> str:
    texts = []
    for setting in SETTINGS:
        old, new = (_shown(getattr(settings, setting.field)) for settings in (before, after))
        if old != new:
            texts.append(f"{setting.name} from {old} to {new}")
    return ", ".join(texts)


def _shown(value: SettingValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _current() -> LogSettings:
    """Of the running log; without one, what the loggers of the embedding program let through."""
    log = logs.running()
    if log is not None:
        return log.settings
    logger = logging.getLogger("tritonpy")
    return LogSettings(
        log_verbose=max(0, logs.verbose(1) + 1 - logger.getEffectiveLevel()),
        log_info=logger.isEnabledFor(logging.INFO),
        log_warning=logger.isEnabledFor(logging.WARNING),
        log_error=logger.isEnabledFor(logging.ERROR),
    )
