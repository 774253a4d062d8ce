"""From headers to parameters."""

from __future__ import annotations

import sys
import time

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.frontends.header_forwarding import HeaderForwarding, forwarded_parameters

FLAG = "--http-header-forward-pattern"


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("x-foo", b"X-Foo"),
        ("X-FOO", b"x-foo"),
        ("foo", b"my-x-foo-y"),
        ("^x-(foo|bar)$", b"X-Bar"),
        (r"foo\z", b"x-foo"),
        (r"^x-[[:digit:]]+$", b"x-12"),
        (r"[^[:alpha:]-]", b"x-1"),
        (r"^\Qx.y\E", b"x.y-z"),
        ("x-(?i)foo", b"X-Foo"),
        ("(?P<kind>foo)", b"x-foo"),
        ("(?<kind>foo)", b"x-foo"),
        (".*", b""),
        ("(?-i)foo", b"x-foo"),
        ("x-(?-i:Foo)", b"X-Foo"),
    ],
)
def test_a_name_is_found_anywhere_and_in_any_case(pattern: str, name: bytes) -> None:
    assert HeaderForwarding(pattern, FLAG).finds(name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("(?-i)foo", b"x-Foo"),
        ("x-(?-i:Foo)", b"x-foo"),
        ("^foo", b"x-foo"),
        (r"^\Qx.y\E", b"x-y"),
        (r"foo\z", b"foo-x"),
        (r"^x-[[:digit:]]+$", b"x-a"),
    ],
)
def test_another_name_is_not(pattern: str, name: bytes) -> None:
    assert not HeaderForwarding(pattern, FLAG).finds(name)


@pytest.mark.parametrize(
    "pattern", ["[", "*", "(", "(?=x)", "(?!x)", "(?<=x)y", r"(x)\1", "(?P<x>a)(?P=x)", "\\"]
)
def test_what_is_no_pattern_is_refused_by_the_name_of_its_flag(pattern: str) -> None:
    with pytest.raises(InvalidArg) as raised:
        HeaderForwarding(pattern, FLAG)

    assert str(raised.value).startswith(f"{FLAG}: '{pattern}' is not a regular expression: ")


def test_what_clients_send_fills_no_memory() -> None:
    forwarding = HeaderForwarding("x", FLAG)
    for number in range(3 * HeaderForwarding.MOST_REMEMBERED):
        forwarding.finds(b"x-%d" % number)

    assert len(forwarding._known) <= HeaderForwarding.MOST_REMEMBERED
    assert not forwarding.finds(b"x" * (HeaderForwarding.LONGEST_NAME + 1))
    assert forwarding.finds(b"x" * HeaderForwarding.LONGEST_NAME)


def test_parameters_keep_the_spelling_of_the_client() -> None:
    headers = [(b"X-Foo", b"a"), (b"x-foo", b"b"), (b"X-Text", "é".encode()), (b"Priority", b"u=1")]

    assert forwarded_parameters(headers) == {"X-Foo": "a", "x-foo": "b", "X-Text": "é", "Priority": "u=1"}


@pytest.mark.parametrize("value", [b"gr\xfc\xdf", b"\xff\xfe", b"\xed\xb2\x80", "é".encode()[:1]])
def test_a_header_that_is_not_utf_8_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidArg, match=r"^Header 'X-Foo' cannot be forwarded: its value is not UTF-8"):
        forwarded_parameters([(b"x", b"1"), (b"X-Foo", value)])


@pytest.mark.parametrize(
    "name",
    [
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
        "triton_enable_empty_final_response",
        "triton_",
    ],
)
def test_a_header_cannot_say_what_only_parameters_may(name: str) -> None:
    with pytest.raises(InvalidArg) as raised:
        forwarded_parameters([(b"x", b"1"), (name.encode(), b"1")])

    assert str(raised.value) == f"Header '{name}' is reserved for Triton usage and cannot be forwarded."


@pytest.mark.parametrize("pattern", [r"^x(-?\w+)*-id$", "(a*)*b$", "^(a|a)*$x", "(.*.*.*.*)*!"])
def test_no_name_costs_more_than_its_length(pattern: str) -> None:
    forwarding = HeaderForwarding(pattern, FLAG)
    begun = time.thread_time()
    for length in range(1, HeaderForwarding.LONGEST_NAME):
        assert not forwarding.finds(b"x" + b"a" * length)

    assert time.thread_time() - begun < 1  # of work; 28 bytes took a backtracking engine 13 s


def test_without_the_engine_a_pattern_is_refused_and_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(InvalidArg, match="google-re2"):
        HeaderForwarding("x", FLAG)
