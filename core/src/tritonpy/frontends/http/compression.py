"""Compressed bodies of inference requests and responses: gzip, and deflate in both of its meanings."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable

from tritonpy.errors import Unsupported
from tritonpy.frontends.http.connection.message import Chunk

CODINGS = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
"""The codings for both directions, with the `wbits` of `zlib`."""

ACCEPT_ENCODING = b"Accept-Encoding: gzip, deflate\r\n"
"""Goes with the refusal of any other coding."""

_HERE = 16 * 1024


def content_coding(value: bytes) -> bytes | None:
    """The compression of a body, from its Content-Encoding; None for none.

    Raises:
        Unsupported: in a way that is not understood.
    """
    if value == b"identity":
        return None
    if value not in CODINGS:
        raise Unsupported("Unsupported compression type")
    return value


def accepted_coding(value: bytes) -> bytes | None:
    """The coding that a client wants its answer in, from its Accept-Encoding; None for none.

    The greatest weight wins, of equal ones the first; `*` and what is unknown count for nothing.
    """
    best, best_weight = None, 0.0
    for item in value.split(b","):
        name, _, weight_text = item.partition(b";")
        name = name.strip()
        if name == b"identity" or name in CODINGS:
            weight = _weight(weight_text.strip())
            if weight > best_weight:
                best, best_weight = name, weight
    return best if best != b"identity" else None


def _weight(text: bytes) -> float:
    if not text:
        return 1.0
    name, _, number = text.partition(b"=")
    if name != b"q":
        return 0.0
    try:
        return float(number.partition(b";")[0])
    except ValueError:
        return 0.0


async def compressed(chunks: Iterable[Chunk], byte_size: int, coding: bytes) -> list[bytes]:
    """A body in a client's coding; a large one is worked on by a thread."""
    if byte_size <= _HERE:
        return compress(chunks, coding)
    return await asyncio.to_thread(compress, chunks, coding)


def is_quick(byte_size: int) -> bool:
    """True if compressing `byte_size` bytes takes less time than handing them to a thread."""
    return byte_size <= _HERE


def compress(chunks: Iterable[Chunk], coding: bytes) -> list[bytes]:
    """The pieces of a body in a client's coding."""
    deflater = zlib.compressobj(wbits=CODINGS[coding])
    pieces = [deflater.compress(chunk) for chunk in chunks]
    pieces.append(deflater.flush())
    return [piece for piece in pieces if piece]
