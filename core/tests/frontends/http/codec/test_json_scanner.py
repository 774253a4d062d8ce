"""JSON that the quick parser refuses: the words, offsets and leniency below were seen on the real server."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import Internal, InvalidArg, TritonError
from tritonpy.frontends.http.codec.json_body import parse_json
from tritonpy.frontends.http.codec.json_scanner import MOST_LEVELS, WrongText, parse_laxly

INVALID = "Invalid value."
COMMA = "Missing a comma or ']' after an array element."
MEMBER_COMMA = "Missing a comma or '}' after an object member."
NAME = "Missing a name for object member."
COLON = "Missing a colon after a name of object member."
QUOTE = "Missing a closing quotation mark in string."
ESCAPE = "Invalid escape character in string."
HEX = "Incorrect hex digit after \\u escape in string."
PAIR = "The surrogate pair in string is invalid."
ROOT = "The document root must not be followed by other values."
EMPTY = "The document is empty."
TOO_BIG = "Number too big to be stored in double."


@pytest.mark.parametrize(
    ("text", "reason", "offset"),
    [
        (b"[nan]", INVALID, 2),
        (b"[inf]", INVALID, 1),
        (b"[+1]", INVALID, 1),
        (b"[.5]", INVALID, 1),
        (b"[--1]", INVALID, 2),
        (b"[tru]", INVALID, 4),
        (b"[True]", INVALID, 1),
        (b"[Infinit]", INVALID, 8),
        (b"[NaN1]", COMMA, 4),
        (b"[01]", COMMA, 2),
        (b"[0x10]", COMMA, 2),
        (b"[1 2]", COMMA, 3),
        (b"[1", COMMA, 2),
        (b"[1.]", "Miss fraction part in number.", 3),
        (b"[1e]", "Miss exponent in number.", 3),
        (b"[1e+]", "Miss exponent in number.", 4),
        (b"[1,]", INVALID, 3),
        (b"[,1]", INVALID, 1),
        (b"[1e400]", TOO_BIG, 1),
        (b"[-1e400]", TOO_BIG, 1),
        (b"[" + b"1" * 400 + b"]", TOO_BIG, 1),
        (b"[1e1000000000000]", TOO_BIG, 1),
        (b'["\\ud800"]', PAIR, 2),
        (b'["\\ud83dx"]', PAIR, 2),
        (b'["\\uD83D\\u0041"]', PAIR, 2),
        (b'["\\u12g4"]', HEX, 2),
        (b'["\\x"]', ESCAPE, 2),
        (b'["a\nb"]', ESCAPE, 3),
        (b'["a\0b"]', QUOTE, 3),
        (b'["abc]', QUOTE, 6),
        (b"{", NAME, 1),
        (b"{a:1}", NAME, 1),
        (b'{"a":1,}', NAME, 7),
        (b'{"a"', COLON, 4),
        (b'{"a" 1}', COLON, 5),
        (b'{"a":', INVALID, 5),
        (b'{"a":1', MEMBER_COMMA, 6),
        (b'{"a":1 "b":2}', MEMBER_COMMA, 7),
        (b"{} x", ROOT, 3),
        (b" ", EMPTY, 1),
        (b"", EMPTY, 0),
        (b"\0{}", EMPTY, 0),
        (b"/* c */{}", INVALID, 0),
    ],
)
def test_wrong_text_is_refused_in_tritons_words_where_triton_stops(
    text: bytes, reason: str, offset: int
) -> None:
    with pytest.raises(Internal) as caught:
        parse_json(text)

    assert caught.value.message == f"failed to parse the request JSON buffer: {reason} at {offset}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[Infinity,-Infinity,Inf,-Inf]", [math.inf, -math.inf, math.inf, -math.inf]),
        (b'["\xff\xfe"]', ["\udcff\udcfe"]),
        (b'["\\ude00"]', ["\ude00"]),
        (b"\xef\xbb\xbf[1]", [1]),
        (b"[1]\0 anything", [1]),
        (b'{"a":[Inf,{"b":-Inf}],"c":"\\"Inf"}', {"a": [math.inf, {"b": -math.inf}], "c": '"Inf'}),
        (b"[1e-400]", [0.0]),
    ],
)
def test_what_triton_takes_beyond_the_standard_is_taken(text: bytes, expected: Any) -> None:
    assert parse_json(text) == expected


def test_nan_is_a_number_with_and_without_a_minus() -> None:
    assert [math.isnan(value) for value in parse_json(b"[NaN,-NaN, NaN ]")] == [True, True, True]


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"[[],", b'{"b":{},"a":'])
def test_a_deeply_nested_text_is_refused_and_costs_next_to_nothing(opening: bytes) -> None:
    text = opening * (4_000_000 // len(opening))
    tracemalloc.start()
    with pytest.raises(InvalidArg, match=r"JSON nesting depth exceeds maximum allowed limit \(1024\)"):
        parse_laxly(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 100_000


def test_the_deepest_text_that_is_taken_is_as_deep_as_the_quick_parsers() -> None:
    assert parse_laxly(b"[" * 900 + b"NaN" + b"]" * 900)
    assert orjson.loads(b"[" * MOST_LEVELS + b"]" * MOST_LEVELS)
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(b"[" * (MOST_LEVELS + 1) + b"]" * (MOST_LEVELS + 1))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(json_values, st.sampled_from([None, 1]), st.booleans())
def test_the_slow_way_reads_what_the_standard_allows(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return
    if "\\ud" in text.decode():  # half of a pair, which Triton refuses in part
        return

    assert parse_laxly(text) == json.loads(text)


alphabet = st.sampled_from([b"[", b"]", b"{", b"}", b",", b":", b'"', b"1", b"-", b".", b"e", b"NaN", b"Inf",
                            b"true", b"nul", b" ", b"\\u", b"d8", b"00", b"\xff", b"\0", b"a"])  # fmt: skip


@given(st.lists(alphabet, max_size=30).map(b"".join))
def test_any_text_is_parsed_or_refused_and_never_refused_when_it_is_standard(text: bytes) -> None:
    try:
        expected = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            parse_json(text)
        except TritonError as error:
            assert error.message  # noqa: PT017
    else:
        assert parse_laxly(text) == expected


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused_within_their_length(text: bytes) -> None:
    try:
        parse_laxly(text)
    except WrongText as wrong:
        assert 0 <= wrong.offset <= len(text)  # noqa: PT017
