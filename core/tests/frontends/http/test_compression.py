"""Compressed bodies: what is read, what is refused and at which cost, and which coding an answer gets."""

from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.admission import Admission
from tritonpy.errors import InvalidArg, TritonError, Unsupported
from tritonpy.frontends.http.compression import (
    accepted_coding,
    compressed,
    content_coding,
)
from tritonpy.frontends.inflation import MOST_MEMBERS, Inflater, inflated

LIMIT = 1024 * 1024
FLAG = "--http-max-input-size"


async def decompressed(body: bytes, coding: bytes, limit: int) -> memoryview:
    admission = Admission(0)
    try:
        return await inflated(body, coding, limit, FLAG, admission)
    finally:
        assert admission.held == 0


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


@pytest.mark.parametrize("size", [1, 1000, 50_000, LIMIT])
@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        (b"gzip", gzip.compress),
        (b"deflate", zlib.compress),
        (b"deflate", raw_deflate),
        (b"deflate", gzip.compress),
        (b"gzip", zlib.compress),
    ],
)
async def test_what_was_compressed_comes_out_as_it_was(coding: bytes, pack: object, size: int) -> None:
    body = (b'{"a": [1, 2, 3]}' * (size // 16 + 1))[:size]

    assert await decompressed(pack(body), coding, LIMIT) == body  # type: ignore[operator]


@pytest.mark.parametrize("size", [262_144, 262_145, 262_244, 262_400, 524_295])
async def test_the_end_of_a_step_within_the_last_repetition_is_not_the_end_of_the_data(size: int) -> None:
    body = bytes(size)
    deflater = zlib.compressobj(9, wbits=-15)  # nothing follows the repetition: no sum to be checked

    assert await decompressed(deflater.compress(body) + deflater.flush(), b"deflate", LIMIT) == body


async def test_gzip_may_come_in_members() -> None:
    assert await decompressed(gzip.compress(b"one") + gzip.compress(b"two"), b"gzip", LIMIT) == b"onetwo"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "nothing to be decompressed"),
        (b'{"inputs": []}', "the request's body is not valid gzip: .*incorrect header check"),
        (
            gzip.compress(b"x" * 100, mtime=0)[:-9],
            "the request's body is incomplete: its gzip data ends after 100 bytes",
        ),
        (
            gzip.compress(b"x" * 100, mtime=0)[:11],
            "the request's body is incomplete: its gzip data ends after 0 bytes",
        ),
        (gzip.compress(b"x" * 100, mtime=0)[:-6] + b"sumsum", "not valid gzip: .*incorrect data check"),
        (gzip.compress(b"x", mtime=0) + b"more", "the request's body has 4 bytes behind its gzip data"),
    ],
)
async def test_a_broken_body_is_refused_with_what_is_wrong(body: bytes, words: str) -> None:
    with pytest.raises(InvalidArg, match=words):
        await decompressed(body, b"gzip", LIMIT)


async def test_the_limit_itself_is_allowed_and_a_byte_more_is_not() -> None:
    assert len(await decompressed(gzip.compress(bytes(LIMIT)), b"gzip", LIMIT)) == LIMIT
    with pytest.raises(InvalidArg) as caught:
        await decompressed(gzip.compress(bytes(LIMIT + 1)), b"gzip", LIMIT)

    assert caught.value.message == (
        "the request's decompressed size exceeds the maximum allowed value of 1048576 bytes. "
        "Use --http-max-input-size to increase the limit."
    )


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, raw_deflate])
async def test_a_bomb_costs_no_more_than_the_limit(pack: object) -> None:
    bomb: bytes = pack(bytes(50 * 1024 * 1024))  # type: ignore[operator]
    tracemalloc.start()
    with pytest.raises(InvalidArg, match="exceeds the maximum allowed value"):
        await decompressed(bomb, b"deflate", LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 3 * LIMIT


async def test_many_members_cost_what_they_hold_and_not_the_square_of_it() -> None:
    most = MOST_MEMBERS - 1
    begun = time.thread_time()
    inflater = Inflater(gzip.compress(b"") * most + gzip.compress(b"end"), b"gzip", LIMIT, FLAG)
    assert inflater.inflate(None)

    assert inflater.result == b"end"
    assert time.thread_time() - begun < 5  # 0.3 s; a minute when each member copies all that follow


async def test_a_body_of_too_many_members_is_refused() -> None:
    with pytest.raises(InvalidArg, match="has more than 65536 members of gzip data, the maximum allowed"):
        await decompressed(gzip.compress(b"") * (MOST_MEMBERS + 1), b"gzip", LIMIT)


async def test_many_small_members_of_a_bomb_are_bounded_together() -> None:
    with pytest.raises(InvalidArg, match="exceeds the maximum allowed value"):
        await decompressed(gzip.compress(bytes(LIMIT // 2)) * 3, b"gzip", LIMIT)


@given(st.binary(max_size=200), st.sampled_from([b"gzip", b"deflate"]))
async def test_any_body_comes_out_or_is_refused(body: bytes, coding: bytes) -> None:
    try:
        await decompressed(body, coding, 10_000)
    except TritonError as error:
        assert isinstance(error, InvalidArg)  # noqa: PT017


@given(st.binary(min_size=1, max_size=300), st.integers(0, 400), st.integers(0, 255))
async def test_a_body_with_one_byte_changed_comes_out_or_is_refused(
    data: bytes, index: int, value: int
) -> None:
    body = bytearray(gzip.compress(data))
    body[index % len(body)] = value
    try:
        await decompressed(bytes(body), b"gzip", 10_000)
    except TritonError as error:
        assert isinstance(error, InvalidArg)  # noqa: PT017


@pytest.mark.parametrize("value", [b"br", b"GZIP", b"", b"gzip, deflate", b"x-gzip", b"zstd"])
def test_other_codings_are_refused(value: bytes) -> None:
    with pytest.raises(Unsupported, match=r"^Unsupported compression type$"):
        content_coding(value)


def test_a_body_that_is_not_compressed_may_say_so() -> None:
    assert content_coding(b"identity") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"gzip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"gzip, deflate", b"gzip"),
        (b"deflate, gzip", b"deflate"),
        (b"gzip;q=0.5, deflate;q=0.8", b"deflate"),
        (b"deflate;q=0.5 , gzip;q=0.6", b"gzip"),
        (b"deflate;q=1.0, gzip;q=1.0", b"deflate"),
        (b"gzip;q=0", None),
        (b"identity;q=0, gzip;q=0", None),
        (b"identity;q=0.5, gzip;q=0.4", None),
        (b"identity, gzip", None),
        (b"identity;q=1, deflate;q=1", None),
        (b"gzip, identity", b"gzip"),
        (b"*", None),
        (b"br", None),
        (b"br, gzip", b"gzip"),
        (b"br;q=1, gzip;q=0.5", b"gzip"),
        (b"*;q=1, gzip;q=0.5", b"gzip"),
        (b"GZIP", None),
        (b"gzip;q=abc", None),
        (b"gzip;foo=1", None),
        (b"gzip;q=2", b"gzip"),
        (b"gzip;q=0.5;x, deflate;q=0.4", b"gzip"),
        (b"gzip; q=0.5", b"gzip"),
        (b"gzip,", b"gzip"),
        (b"", None),
        (b"identity;q=0", None),
        (b"gzip;q=nan", None),
    ],
)
def test_the_heaviest_coding_that_is_known_wins_and_the_first_of_equal_ones(
    value: bytes, expected: bytes | None
) -> None:
    assert accepted_coding(value) == expected


@given(st.binary(max_size=40))
def test_any_header_names_a_known_coding_or_none(value: bytes) -> None:
    assert accepted_coding(value) in (None, b"gzip", b"deflate")


@pytest.mark.parametrize("size", [0, 100, 100_000])
@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
async def test_an_answer_is_compressed_piece_by_piece(coding: bytes, size: int) -> None:
    chunks = [b"head", memoryview(bytes(size)), bytearray(b"tail")]

    body = b"".join(await compressed(chunks, size + 8, coding))

    unpack = gzip.decompress if coding == b"gzip" else zlib.decompress
    assert unpack(body) == b"head" + bytes(size) + b"tail"
