"""What the router has to know of an inference request: read from its bytes, without a look at its tensors.

A serialized `ModelInferRequest` is walked field by field at its top level, where a tensor is one field that
is stepped over by its length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias, overload

import orjson

Body: TypeAlias = bytes | memoryview
Piece: TypeAlias = bytes | bytearray | memoryview

_NAME, _VERSION, _ID, _PARAMETERS = 1, 2, 3, 4
_KEY, _VALUE = 1, 2  # of an entry of a map
_BOOL, _INT64, _STRING, _UINT64 = 1, 2, 3, 5  # of an `InferParameter`
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class Unreadable(ValueError):
    """Bytes that are no request."""


@dataclass(slots=True)
class Asked:
    """The parts of a request that say where it goes.

    Attributes:
        model: its name.
        version: as the client wrote it; "" for none.
        id: of the request, as the client wrote it.
        sequence: the correlation id; 0 or "" for none.
        is_start: it begins its sequence.
        is_end: it ends its sequence.
    """

    model: str = ""
    version: str = ""
    id: str = ""
    sequence: int | str = 0
    is_start: bool = False
    is_end: bool = False


class Pieces:
    """Bytes that came in pieces, as if they were one; for the few places that are looked at.

    Args:
        pieces: at least one, none of them empty.
    """

    __slots__ = ("_ends", "_pieces")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._ends = list(accumulate(map(len, pieces)))

    def __len__(self) -> int:
        return self._ends[-1]

    @overload
    def __getitem__(self, where: int) -> int: ...
    @overload
    def __getitem__(self, where: slice) -> bytes: ...
    def __getitem__(self, where: int | slice) -> int | bytes:
        if isinstance(where, int):
            at = bisect_right(self._ends, where)
            return self._pieces[at][where - self._ends[at]]
        begin, end, _ = where.indices(self._ends[-1])
        parts = []
        while begin < end:
            at = bisect_right(self._ends, begin)
            piece, last = self._pieces[at], self._ends[at]
            part = bytes(memoryview(piece)[begin - last + len(piece) : min(end, last) - last + len(piece)])
            parts.append(part)
            begin += len(part)
        return b"".join(parts)


def scan_message(body: Body | Pieces, position: int = 0) -> Asked:
    """Read a serialized `ModelInferRequest`.

    Args:
        body: holds it.
        position: where it begins; it goes to the end.

    Raises:
        Unreadable: it is none.
    """
    asked = Asked()
    end = len(body)
    while position < end:
        tag = body[position]
        position += 1
        if tag >= 0x80:
            tag, position = _varint(body, position - 1, end)
        field, kind = tag >> 3, tag & 7
        if kind != _LENGTH:
            position = _after(body, position, end, kind)
            continue
        size = body[position] if position < end else 0x80
        position += 1
        if size >= 0x80:
            size, position = _varint(body, position - 1, end)
        begin, position = position, position + size
        if position > end:
            raise Unreadable("a field is longer than the message")
        if field > _PARAMETERS:
            continue
        if field == _NAME:
            asked.model = _text(body[begin:position])
        elif field == _VERSION:
            asked.version = _text(body[begin:position])
        elif field == _ID:
            asked.id = _text(body[begin:position])
        elif field == _PARAMETERS:
            _read_parameter(body[begin:position], asked)
    return asked


def scan_json(body: Body, header_size: int | None, asked: Asked) -> None:
    """Read the sequence of an inference request in JSON, and its flags.

    Args:
        body: of the HTTP request.
        header_size: the part of it that is JSON; None for all.
        asked: is filled.

    Raises:
        Unreadable: it is no JSON object.
    """
    try:
        document = orjson.loads(body if header_size is None else body[:header_size])
    except orjson.JSONDecodeError as exc:
        raise Unreadable(str(exc)) from None
    parameters: Any = document.get("parameters") if isinstance(document, dict) else None  # Any: JSON
    if not isinstance(parameters, dict):
        return
    sequence = parameters.get("sequence_id", 0)
    asked.sequence = sequence if isinstance(sequence, int | str) else 0
    asked.is_start = parameters.get("sequence_start") is True
    asked.is_end = parameters.get("sequence_end") is True


def _read_parameter(entry: Body, asked: Asked) -> None:
    key, value = "", b""
    position, end = 0, len(entry)
    while position < end:
        tag, position = _varint(entry, position, end)
        if tag & 7 != _LENGTH:
            position = _after(entry, position, end, tag & 7)
            continue
        size, position = _varint(entry, position, end)
        part = entry[position : position + size]
        position += size
        if position > end:
            raise Unreadable("a parameter is longer than its entry")
        if tag >> 3 == _KEY:
            key = _text(part)
        elif tag >> 3 == _VALUE:
            value = bytes(part)
    if key == "sequence_id":
        asked.sequence = _parameter_value(value)
    elif key == "sequence_start":
        asked.is_start = bool(_parameter_value(value))
    elif key == "sequence_end":
        asked.is_end = bool(_parameter_value(value))


def _parameter_value(value: bytes) -> int | str:
    found: int | str = 0
    position, end = 0, len(value)
    while position < end:
        tag, position = _varint(value, position, end)
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            number, position = _varint(value, position, end)
            if field in (_BOOL, _INT64, _UINT64):
                found = number
        elif kind == _LENGTH:
            size, position = _varint(value, position, end)
            if field == _STRING:
                found = _text(value[position : position + size])
            position += size
        else:
            position = _after(value, position, end, kind)
    return found


def _after(body: Body | Pieces, position: int, end: int, kind: int) -> int:
    """The position behind a value that is not looked at."""
    if kind == _VARINT:
        return _varint(body, position, end)[1]
    if kind == _FIXED64:
        return position + 8
    if kind == _FIXED32:
        return position + 4
    raise Unreadable(f"a field of the unknown kind {kind}")


def _varint(body: Body | Pieces, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise Unreadable("a number has more than 64 bits")
    raise Unreadable("the message ends within a number")


def _text(data: Body) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise Unreadable("a name is not UTF-8") from None
