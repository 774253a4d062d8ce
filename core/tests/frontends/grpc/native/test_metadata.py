"""Headers of calls: what they ask for, and what is refused of them."""

from __future__ import annotations

import base64
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.frontends.grpc.native.metadata import RequestHead, RequestHeads, percent_encoded, status_headers
from tritonpy.frontends.grpc.status import Status

PLAIN = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/service/Call"),
    (b":authority", b"here"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)


def head(*more: tuple[bytes, bytes], **replaced: bytes) -> RequestHead:
    named = {b":" + name.encode(): value for name, value in replaced.items()}
    return RequestHead((*((name, named.get(name, value)) for name, value in PLAIN), *more))


def test_a_plain_call_asks_for_its_path_and_nothing_else() -> None:
    plain = head()

    assert (plain.path, plain.http_status, plain.refusal) == ("/service/Call", b"", None)
    assert (plain.timeout_s, plain.coding, plain.accepts_gzip) == (None, b"", False)
    assert plain.metadata == ()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1H", 3600),
        (b"2M", 120),
        (b"3S", 3),
        (b"4m", 0.004),
        (b"5u", 5e-6),
        (b"6n", 6e-9),
        (b"99999999S", 99999999),
    ],
)
def test_timeouts_are_seconds(value: bytes, seconds: float) -> None:
    assert head((b"grpc-timeout", value)).timeout_s == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"1", b"S", b"1s", b"-1S", b"1.5S", b" 1S", b"1S\n", b"\xb9S"])
def test_what_is_no_timeout_is_refused(value: bytes) -> None:
    refusal = head((b"grpc-timeout", value)).refusal

    assert refusal is not None
    assert refusal[0] is Status.INTERNAL


@given(st.binary(max_size=60))
def test_binary_metadata_is_base64_padded_or_not(value: bytes) -> None:
    padded = base64.b64encode(value)
    sent = head((b"x-bin", padded), (b"y-bin", padded.rstrip(b"=")))

    assert sent.metadata == (("x-bin", value), ("y-bin", value))


def test_binary_metadata_may_be_a_list() -> None:
    assert head((b"x-bin", b"YQ==, Yg,")).metadata == (("x-bin", b"a"), ("x-bin", b"b"), ("x-bin", b""))


def test_metadata_keeps_order_and_duplicates_and_leaves_out_what_is_gRPCs_own() -> None:
    sent = head(
        (b"b", b"1"), (b"grpc-timeout", b"1S"), (b"a", b"\xe9"), (b"b", b"2"), (b"grpc-encoding", b"gzip")
    )

    assert sent.metadata == (("b", "1"), ("a", "é"), ("b", "2"))


@pytest.mark.parametrize("kind", [b"application/grpc", b"application/grpc+proto", b"Application/GRPC; x=y"])
def test_calls_of_gRPC_are_known_by_their_content_type(kind: bytes) -> None:
    assert RequestHead((*PLAIN[:4], (b"content-type", kind))).http_status == b""


def test_a_call_without_a_content_type_is_taken_for_one_of_gRPC() -> None:
    assert RequestHead(PLAIN[:4]).http_status == b""


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"grpc-encoding", "Compression algorithm '" + 40 * "é" + "...' is disabled."),
        (b"grpc-timeout", "Invalid grpc-timeout: '" + 40 * "é" + "...'"),
    ],
)
def test_of_a_long_wrong_header_only_the_beginning_is_sent_back(header: bytes, text: str) -> None:
    refusal = head((header, b"\xe9" * 10_000)).refusal

    assert refusal is not None
    assert refusal[1] == text


@pytest.mark.parametrize("kind", [b"text/plain", b"application/grpc-web", b"application/grpcx"])
def test_what_is_no_call_of_gRPC_is_told_so_in_HTTP(kind: bytes) -> None:
    assert RequestHead((*PLAIN[:4], (b"content-type", kind))).http_status == b"415"
    assert head(method=b"GET").http_status == b"405"


def test_the_same_headers_are_read_once_but_not_those_with_a_deadline() -> None:
    heads = RequestHeads()
    hurried = (*PLAIN, (b"grpc-timeout", b"5S"))

    assert heads.read(PLAIN) is heads.read(PLAIN)
    assert heads.read(hurried) is not heads.read(hurried)


def test_headers_of_many_clients_are_not_all_remembered() -> None:
    heads = RequestHeads()
    first = heads.read(PLAIN)
    for number in range(2000):
        assert heads.read((*PLAIN, (b"x-id", b"%d" % number))).metadata == (("x-id", str(number)),)

    again = heads.read(PLAIN)
    assert again is not first
    assert again.path == first.path


@given(st.text())
def test_texts_of_statuses_arrive_as_they_were(text: str) -> None:
    encoded = percent_encoded(text)

    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote_to_bytes(encoded) == text.encode("utf-8", "replace")


def test_a_status_without_a_text_has_no_message() -> None:
    assert status_headers(5, "") == [(b"grpc-status", b"5")]
    assert status_headers(5, "100 %") == [(b"grpc-status", b"5"), (b"grpc-message", b"100 %25")]
