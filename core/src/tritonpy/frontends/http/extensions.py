"""Extensions over HTTP: logging, traces, and regions of shared memory, shown and changed in JSON."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from tritonpy.errors import Internal, InvalidArg, TritonError, Unavailable
from tritonpy.frontends.http.codec.json_body import Json, parse_json
from tritonpy.frontends.http.infer import Body
from tritonpy.frontends.log_settings import LogSetting, SettingValue, change_settings, shown_settings
from tritonpy.frontends.trace_settings import TraceSettings
from tritonpy.shared_memory.cuda import HANDLE_BYTE_SIZE
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.tracing.tracing import Shown

_KINDS = {bool: "boolean", int: "unsigned-integer", str: "string"}
_MOST_UNSIGNED = 2**64 - 1


def show_log_settings() -> Json:
    """The settings of the log."""
    return {setting.name: value for setting, value in shown_settings()}


def change_log_settings(body: Body) -> Json:
    """Change what the log writes, and show all of it; a body that is no object changes nothing, as in Triton.

    Raises:
        TritonError: the body is not JSON, or a setting is wrong.
    """
    document = parse_json(body)
    if isinstance(document, dict):
        wanted = {name: value for name, value in document.items() if value is not None}
        change_settings(wanted, _LogReader())
    return show_log_settings()


class _LogReader:
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


class TraceCalls:
    """Answers both methods of both paths.

    Args:
        settings: shows and changes them.
    """

    def __init__(self, settings: TraceSettings) -> None:
        self._settings = settings

    def show(self, model: str = "") -> Json:
        """The settings of a model, or of the server."""
        return _as_json(self._settings.show(model))

    def change(self, body: Body, model: str = "") -> Json:
        """Change settings, and show all; a body that is no object changes nothing, as in Triton.

        Raises:
            TritonError: the body is not JSON, or a setting is wrong.
        """
        document = parse_json(body)
        wanted = document if isinstance(document, dict) else {}
        return _as_json(self._settings.change(wanted, _TraceReader(), model))


def _as_json(shown: Shown) -> Json:
    return {name: value if isinstance(value, str) else list(value) for name, value in shown}


class _TraceReader:
    """Satisfies `TraceSettingReader`; the codes and words are Triton's."""

    separator = ""

    def levels(self, value: Json) -> Sequence[str] | None:
        if value is None:
            return None
        if not isinstance(value, list):
            raise Internal("attempt to access JSON non-array as array")
        return [_string(element) for element in value]

    def text(self, name: str, value: Json) -> str | None:
        return None if value is None else _string(value)


class SharedMemoryCalls:
    """Calls of the paths under `/v2/systemsharedmemory` and `/v2/cudasharedmemory`; "" names no region."""

    def __init__(self, regions: SharedMemoryRegions) -> None:
        self._regions = regions

    def system_status(self, region: str) -> Json:
        """Show one region of system memory, or all of them."""
        return self._regions.system_status(region)

    def cuda_status(self, region: str) -> Json:
        """Show one region of GPU memory, or all of them."""
        return self._regions.cuda_status(region)

    def register_system(self, body: Body, region: str) -> None:
        """Open a region of POSIX shared memory."""
        self._regions.require_allowed()
        if not region:
            raise InvalidArg("'region name' is necessary to register system shared memory region")
        document = parse_json(body)
        key = _string(_required(document, "key"))
        offset = _unsigned(document["offset"]) if "offset" in document else 0
        byte_size = _unsigned(_required(document, "byte_size"))
        self._regions.register_system(region, key, offset, byte_size)

    async def register_cuda(self, body: Body, region: str) -> None:
        """Open a region of GPU memory."""
        self._regions.require_allowed()
        if not region:
            raise InvalidArg("'region name' is necessary to register cuda shared memory region")
        document = parse_json(body)
        handle = _string(_member(_required(document, "raw_handle"), "b64"))
        byte_size = _unsigned(_member(document, "byte_size"))
        device_id = _unsigned(_member(document, "device_id"))
        await self._regions.register_cuda(region, _decoded(handle), device_id, byte_size)

    def unregister_system(self, body: Body, region: str) -> None:
        """Forget one region of system memory, or all of them."""
        self._regions.unregister_system(region)

    def unregister_cuda(self, body: Body, region: str) -> None:
        """Forget one region of GPU memory, or all of them."""
        self._regions.unregister_cuda(region)


def _required(document: Json, key: str) -> Json:
    if not isinstance(document, dict) or key not in document:
        raise InvalidArg(f"Shared memory register request has no '{key}' field")
    return document[key]


def _member(document: Json, key: str) -> Json:
    if not isinstance(document, dict) or key not in document:
        raise Internal(f"attempt to access non-existing object member '{key}'")
    return document[key]


def _string(value: Json) -> str:
    if not isinstance(value, str):
        raise Internal("attempt to access JSON non-string as string")
    return value


def _unsigned(value: Json) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_UNSIGNED:
        raise Internal("attempt to access JSON non-unsigned-integer as unsigned-integer")
    return value


def _decoded(handle: str) -> bytes:
    try:
        decoded = base64.b64decode(handle, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != HANDLE_BYTE_SIZE:
        raise InvalidArg("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return decoded
