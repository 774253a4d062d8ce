"""The logging extension over gRPC: `LogSettings`."""

from __future__ import annotations

from google.protobuf.message import Message

from tritonpy import protos
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.frontends.log_settings import LogSetting, SettingValue, change_settings, shown_settings

# what each kind of value is in a message, and what Triton calls it
_FIELDS = {bool: "bool_param", int: "uint32_param", str: "string_param"}
_NAMES = {bool: "boolean", int: "int32", str: "string"}


def log_settings(request: protos.LogSettingsRequest) -> Message:
    """Change what the log writes, and show all of it.

    Raises:
        TritonError: a setting is wrong.
    """
    change_settings(request.settings, _MessageReader())
    response = protos.LogSettingsResponse()
    for setting, value in shown_settings():
        setattr(response.settings[setting.name], _FIELDS[setting.kind], value)
    return response


class _MessageReader:
    """Satisfies `SettingReader`; the codes and words are Triton's."""

    def read(self, setting: LogSetting, value: protos.LogSettingsRequest.SettingValue) -> SettingValue:
        field = _FIELDS[setting.kind]
        if value.WhichOneof("parameter_choice") != field:
            raise InvalidArg(f"expect {_NAMES[setting.kind]} for '{setting.name}'")
        result: SettingValue = getattr(value, field)
        return result

    def unknown_format(self, name: str) -> TritonError:
        return InvalidArg(f"invalid argument for log_format, got: {name}")
