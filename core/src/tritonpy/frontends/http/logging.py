"""The logging extension over HTTP: `/v2/logging`."""

from __future__ import annotations

from tritonpy.errors import Internal, TritonError, Unavailable
from tritonpy.frontends.http.codec.json_body import Json, parse_json
from tritonpy.frontends.http.infer import Body
from tritonpy.frontends.log_settings import LogSetting, SettingValue, change_settings, shown_settings

_KINDS = {bool: "boolean", int: "unsigned-integer", str: "string"}


def show_log_settings() -> Json:
    """What the log writes."""
    return {setting.name: value for setting, value in shown_settings()}


def change_log_settings(body: Body) -> Json:
    """Change what the log writes, and show all of it; a body that is no object changes nothing, as in Triton.

    Raises:
        TritonError: the body is not JSON, or a setting is wrong.
    """
    document = parse_json(body)
    if isinstance(document, dict):
        wanted = {name: value for name, value in document.items() if value is not None}
        change_settings(wanted, _JsonReader())
    return show_log_settings()


class _JsonReader:
    """Satisfies `SettingReader`; the codes and words are Triton's."""

    def read(self, setting: LogSetting, value: Json) -> SettingValue:
        is_right = type(value) is setting.kind  # not `isinstance`: True is an int as well
        if not is_right or (setting.kind is int and not 0 <= value < 2**64):
            name = _KINDS[setting.kind]
            raise Internal(f"attempt to access JSON non-{name} as {name}")
        result: SettingValue = value
        return result

    def unknown_format(self, name: str) -> TritonError:
        return Unavailable(f"invalid argument for --log_format, got: {name}")
