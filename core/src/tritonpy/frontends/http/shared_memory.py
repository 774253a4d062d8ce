"""The shared memory extensions over HTTP: registering regions, showing and forgetting them."""

from __future__ import annotations

import base64
import binascii

from tritonpy.errors import Internal, InvalidArg
from tritonpy.frontends.http.codec.json_body import Json, parse_json
from tritonpy.frontends.http.infer import Body
from tritonpy.shared_memory.cuda import HANDLE_BYTE_SIZE
from tritonpy.shared_memory.registry import SharedMemoryRegions

_MOST_UNSIGNED = 2**64 - 1


class SharedMemoryCalls:
    """What the paths under `/v2/systemsharedmemory` and `/v2/cudasharedmemory` do; "" names no region."""

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
