"""Cache entries: the outputs and parameters of a response as one piece of bytes.

    magic 3 · layout 1 · checksum 8 · digest of the key 16 · length of the header 4 · header · tensors

The header is JSON: `[[[name, datatype, shape, byte size], …], parameters]`. Tensors are in wire form, each at
a multiple of 16 bytes, so that they can be read where they lie. The checksum covers everything behind it: an
entry that a cache has cut, mixed up or damaged, or that another layout has written, is recognized and
counts as a miss.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping

import xxhash

from tritonpy.buffers import MemoryType
from tritonpy.datatypes import DATATYPES
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.tensor import Tensor

LAYOUT = 1
"""Counts up when the layout changes; entries of another one are no entries."""

_MAGIC = b"TPC" + bytes((LAYOUT,))
_CHECKSUM = struct.Struct("<Q")
_CHECKED_FROM = len(_MAGIC) + _CHECKSUM.size
_HEAD = struct.Struct("<16sI")
_HEADER_FROM = _CHECKED_FROM + _HEAD.size
_ALIGNMENT = 16
_PADDING = bytes(_ALIGNMENT)
# Not orjson: it writes NaN as null, and a parameter may be NaN. Dimensions may be numpy's integers.
_write = json.JSONEncoder(separators=(",", ":"), default=int).encode


class BadEntry(ValueError):
    """Bytes that are no entry for this key; the text says why."""


def encode_entry(
    digest: bytes, outputs: Iterable[Tensor], parameters: Mapping[str, ParameterValue]
) -> bytes | None:
    """Write a successful response; None when one of its outputs lies on a device.

    Args:
        digest: of the key, 16 bytes.
        outputs: their bytes are copied.
        parameters: of the response.
    """
    described: list[tuple[str, str, tuple[int, ...], int]] = []
    tensors: list[bytes | bytearray | memoryview] = []
    for tensor in outputs:
        if tensor.memory_type is MemoryType.GPU:
            return None
        size = tensor.byte_size
        described.append((tensor.name, tensor.datatype, tensor.shape, size))
        tensors += (tensor.wire(), _PADDING[: -size % _ALIGNMENT])
    header = _write((described, parameters)).encode()
    header += b" " * (-(_HEADER_FROM + len(header)) % _ALIGNMENT)
    head = _HEAD.pack(digest, len(header))
    hasher = xxhash.xxh3_64(head)
    for part in (header, *tensors):
        hasher.update(part)
    return b"".join((_MAGIC, _CHECKSUM.pack(hasher.intdigest()), head, header, *tensors))


def decode_entry(digest: bytes, entry: bytes | memoryview) -> InferResponse:
    """Read what `encode_entry` wrote; the outputs are views of `entry`.

    Args:
        digest: of the key it was found under.
        entry: bytes from a cache; anything may be in them.

    Raises:
        BadEntry: it cannot be used.
    """
    if len(entry) < _HEADER_FROM:
        raise BadEntry(f"it has {len(entry)} bytes, expected at least {_HEADER_FROM}")
    if entry[: len(_MAGIC)] != _MAGIC:
        raise BadEntry(f"it begins with {bytes(entry[: len(_MAGIC)])!r}, expected {_MAGIC!r}")
    view = memoryview(entry)
    (checksum,) = _CHECKSUM.unpack_from(entry, len(_MAGIC))
    if xxhash.xxh3_64_intdigest(view[_CHECKED_FROM:]) != checksum:
        raise BadEntry("its checksum is wrong")
    written_for, header_size = _HEAD.unpack_from(entry, _CHECKED_FROM)
    if written_for != digest:
        raise BadEntry(f"it was written for the key {written_for.hex()}")
    offset = _HEADER_FROM + header_size
    try:
        described, parameters = json.loads(str(view[_HEADER_FROM:offset], "utf-8"))
        outputs: list[Tensor] = []
        for name, datatype, shape, size in described:
            if datatype not in DATATYPES or not 0 <= size <= len(entry) - offset:
                raise BadEntry(f"output '{name}' is {datatype} with {size} bytes")
            outputs.append(Tensor(name, datatype, shape, view[offset : offset + size]))
            offset += size + -size % _ALIGNMENT
    except (ValueError, TypeError, RecursionError) as exc:
        raise exc if isinstance(exc, BadEntry) else BadEntry(f"its header cannot be read: {exc}") from exc
    return InferResponse(outputs, parameters=parameters)
