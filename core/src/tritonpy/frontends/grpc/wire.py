"""The few bytes of protobuf encoding that are read and written by hand.

Tensors are most of a large message, and protobuf copies them: once into its arena and once more into the
`bytes` it hands out, and a message that holds 1 MiB takes milliseconds to serialize. So raw contents are cut
out of a received message before it is parsed, and are put behind a serialized one. Both are legal: fields of
a message may come in any order, and a message is the concatenation of its fields.
"""

from __future__ import annotations

RAW_INPUT_CONTENTS = 7
"""The field of `ModelInferRequest` that holds tensors."""

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_NAMING_FIELDS = (5, 6)  # inputs and outputs
_SHAPE = 3  # of an input
_MOST_FIELDS = 1024
_MOST_VARINT_BITS = 63


def encode_varint(value: int) -> bytes:
    """A non-negative integer, seven bits to a byte, lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field_head(number: int, byte_size: int) -> bytes:
    """The tag and length before `byte_size` bytes of a string, bytes or message field (numbers below 16)."""
    if byte_size < 0x80:
        return bytes((number << 3 | _LENGTH_DELIMITED, byte_size))
    return bytes((number << 3 | _LENGTH_DELIMITED,)) + encode_varint(byte_size)


def split_field(message: bytes | memoryview, number: int) -> tuple[bytes, list[memoryview]] | None:
    """Cut a bytes field out of a serialized message without copying what is in it.

    Args:
        message: serialized.
        number: the field, below 16.

    Returns:
        The message without the field, and the field's values in order, as views of `message`. None for bytes
        that are no message, have many fields or use what proto3 never writes: those are left to protobuf,
        which is quick where this loop would be slow, and says what is wrong.
    """
    wanted = number << 3 | _LENGTH_DELIMITED
    view = memoryview(message)
    end = len(message)
    rest: list[memoryview] = []
    values: list[memoryview] = []
    position = kept = count = 0
    try:
        while position < end:
            count += 1
            if count > _MOST_FIELDS:
                return None
            start = position
            tag, position = _decode_varint(message, position)
            kind = tag & 7
            if kind == _LENGTH_DELIMITED:
                size, position = _decode_varint(message, position)
                begin = position
                position += size
                if tag == wanted and position <= end:
                    values.append(view[begin:position])
                    rest.append(view[kept:start])
                    kept = position
            elif kind == _VARINT:
                _, position = _decode_varint(message, position)
            elif kind == _FIXED32:
                position += 4
            elif kind == _FIXED64:
                position += 8
            else:
                return None
    except IndexError:
        return None
    if position != end:
        return None
    rest.append(view[kept:])
    return b"".join(rest), values


def has_more_fields(message: bytes | memoryview, most: int) -> bool:
    """True if a serialized `ModelInferRequest` with its inputs and outputs has more fields than `most`.

    An empty input takes two bytes here and about ninety when it is parsed. Elements of typed contents are not
    counted; packed dimensions are. Bytes that are no message have as many as protobuf would come to.
    """
    count = 0
    parts: list[tuple[int, int, tuple[int, ...]]] = [(0, len(message), _NAMING_FIELDS)]
    try:
        while parts:
            position, end, looked_into = parts.pop()
            while position < end:
                tag, position = _decode_varint(message, position)
                count += 1
                kind = tag & 7
                if kind == _LENGTH_DELIMITED:
                    size, position = _decode_varint(message, position)
                    if looked_into and tag >> 3 in looked_into:
                        parts.append((position, min(position + size, end), ()))
                    elif not looked_into and tag >> 3 == _SHAPE:
                        count += size
                    position += size
                elif kind == _VARINT:
                    _, position = _decode_varint(message, position)
                elif kind in _FIXED_SIZES:
                    position += _FIXED_SIZES[kind]
                else:
                    return False
                if count > most:
                    return True
    except IndexError:
        pass
    return False


def _decode_varint(message: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read an integer; returns it and the position behind it."""
    byte = message[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift > _MOST_VARINT_BITS:
            raise IndexError("a varint has at most ten bytes")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, position
