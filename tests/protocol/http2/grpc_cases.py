"""gRPC over HTTP/2, rule by rule: what a call may look like, and what it ends with."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tritonclient.grpc import service_pb2

from .raw import (
    EMPTY_MESSAGE,
    END_HEADERS,
    END_STREAM,
    PADDED,
    SERVICE,
    call,
    data,
    headers,
    message,
    request_headers,
)

OK, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = "status 0", "status 3", "status 4", "status 5"
RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = "status 8", "status 12", "status 13"
MEDIA_TYPE, METHOD = "HTTP 415", "HTTP 405"
ANYTHING_ELSE = "RST_STREAM PROTOCOL_ERROR"

MOST_HELD = 8_000_000
"""Bytes of requests that the server holds at once, which is also the largest message."""


@dataclass(frozen=True)
class Case:
    """A call, and what it may end with: `status <number>`, `HTTP <number>`, `RST_STREAM <error>`."""

    name: str
    sent: bytes
    allowed: tuple[str, ...]


def infer(model: str = "echo", contents: bytes = b"abc", id: str = "") -> bytes:
    """A serialized request of inference."""
    request = service_pb2.ModelInferRequest(model_name=model, id=id, raw_input_contents=[contents])
    request.inputs.add(name="INPUT0", datatype="UINT8", shape=[len(contents)])
    text: bytes = request.SerializeToString()
    return text


def asked(*pieces: bytes, method: str = "ModelInfer", **more: str) -> bytes:
    """A call whose DATA comes in these pieces."""
    frames = [data(1, piece) for piece in pieces[:-1]]
    return headers(1, request_headers(method, **more)) + b"".join(frames) + data(1, pieces[-1], END_STREAM)


WHOLE = message(infer())
METADATA = request_headers()


def requests() -> Iterator[Case]:
    """What the headers of a call may say."""
    yield Case(
        "pseudo-headers in any order",
        headers(1, METADATA[3::-1] + METADATA[:3:-1]) + data(1, EMPTY_MESSAGE, 1),
        (OK,),
    )
    yield Case("no te", call(te=""), (OK,))
    yield Case(
        "a user agent and an encoding that is not used", call(user_agent="x/1", grpc_encoding="gzip"), (OK,)
    )
    for method in ("GET", "PUT", "OPTIONS"):
        yield Case(
            f"the method {method}",
            headers(1, [(":method", method), *METADATA[1:]]) + data(1, EMPTY_MESSAGE, END_STREAM),
            (METHOD, ANYTHING_ELSE),
        )
    for media_type in ("application/grpc+proto", "application/grpc;charset=utf-8", "application/grpc+json"):
        yield Case(f"content-type {media_type}", call(content_type=media_type), (OK,))
    yield Case("content-type left out", call(content_type=""), (OK,))
    for media_type in ("text/plain", "application/grpc-web", "application/json"):
        yield Case(f"content-type {media_type}", call(content_type=media_type), (MEDIA_TYPE,))
    for path in (
        SERVICE + "Nothing",
        SERVICE + "serverlive",
        "/inference.grpcinferenceservice/ServerLive",
        "/",
        "/x/y/z",
        SERVICE + "ServerLive/",
        SERVICE + "ServerLive?x=1",
    ):
        yield Case(f"the path {path}", call(path=path), (UNIMPLEMENTED,))
    for name, value in {
        "x-with.dots_and-9": "a",
        "x-empty": "",
        "x-spaces": "a b  c",
        "x-latin": "é",
        "x-long": "v" * 4000,
    }.items():
        yield Case(
            f"metadata {name}",
            headers(1, [*METADATA, (name, value)]) + data(1, EMPTY_MESSAGE, END_STREAM),
            (OK,),
        )
    for value in ("AAE", "AAE=", "AAE,AAE=", ""):
        yield Case(
            f"binary metadata {value or 'of nothing'}",
            headers(1, [*METADATA, ("x-bin", value)]) + data(1, EMPTY_MESSAGE, END_STREAM),
            (OK,),
        )
    yield Case(
        "binary metadata that is no base64",
        headers(1, [*METADATA, ("x-bin", "\xff!")]) + data(1, EMPTY_MESSAGE, END_STREAM),
        (OK, INVALID_ARGUMENT, INTERNAL, ANYTHING_ELSE),
    )
    yield Case(
        "more metadata than 16 KiB",
        headers(1, [*METADATA, *((f"x-{n}", "v" * 1000) for n in range(16))])
        + data(1, EMPTY_MESSAGE, END_STREAM),
        (RESOURCE_EXHAUSTED, "RST_STREAM ENHANCE_YOUR_CALM", "HTTP 431"),
    )


def timeouts() -> Iterator[Case]:
    """How long a call may take, as `grpc-timeout` says."""
    for value in ("1H", "99999999H", "10M", "50S", "50000m", "50000000u", "99999999u", "0099S"):
        yield Case(f"grpc-timeout {value}", call(grpc_timeout=value), (OK,))
    for value in ("1n", "0m"):
        yield Case(
            f"grpc-timeout {value}",
            asked(WHOLE, grpc_timeout=value),
            (DEADLINE_EXCEEDED, "RST_STREAM CANCEL", OK),
        )
    for value in ("100000000S", "1", "S", "1s", "-1S", "1.5S", " 1S", "1 S", "１S"):
        yield Case(
            f"grpc-timeout {value!r}, which is none",
            call(grpc_timeout=value),
            (OK, INTERNAL, INVALID_ARGUMENT, ANYTHING_ELSE),
        )


def framing() -> Iterator[Case]:
    """How messages lie in DATA frames."""
    yield Case("a message in one frame", asked(WHOLE), (OK,))
    yield Case(
        "a message in frames of one byte", asked(*(WHOLE[at : at + 1] for at in range(len(WHOLE)))), (OK,)
    )
    yield Case("a prefix in two frames", asked(WHOLE[:3], WHOLE[3:]), (OK,))
    yield Case("END_STREAM on an empty frame", asked(WHOLE, b""), (OK,))
    yield Case(
        "END_STREAM on trailers",
        asked(WHOLE)[: -len(data(1, WHOLE))]
        + data(1, WHOLE)
        + headers(1, [("x-end", "1")], END_HEADERS | END_STREAM),
        (OK,),
    )
    yield Case(
        "a padded message",
        headers(1, request_headers("ModelInfer")) + data(1, b"\x20" + WHOLE + bytes(32), PADDED | END_STREAM),
        (OK,),
    )
    yield Case("an end within the prefix", asked(WHOLE[:3]), (INTERNAL,))
    yield Case("an end within the message", asked(WHOLE[:-1]), (INTERNAL,))
    yield Case("an end within the second message", asked(WHOLE + WHOLE[:9]), (INTERNAL, UNIMPLEMENTED))
    yield Case("no message", asked(b""), (UNIMPLEMENTED, INTERNAL))
    yield Case(
        "no message, and the end on HEADERS",
        headers(1, request_headers("ModelInfer"), END_HEADERS | END_STREAM),
        (UNIMPLEMENTED, INTERNAL),
    )
    yield Case(
        "no message to a described call",
        headers(1, request_headers(), END_HEADERS | END_STREAM),
        (UNIMPLEMENTED, INTERNAL),
    )
    yield Case("two messages in one frame", asked(WHOLE + WHOLE), (UNIMPLEMENTED, INTERNAL))
    yield Case("two messages in two frames", asked(WHOLE, WHOLE), (UNIMPLEMENTED, INTERNAL))
    yield Case("two messages to a described call", call(body=2 * EMPTY_MESSAGE), (UNIMPLEMENTED, INTERNAL))
    yield Case("no message in a stream", asked(b"", method="ModelStreamInfer"), (OK,))
    yield Case("three messages of a stream in one frame", asked(3 * WHOLE, method="ModelStreamInfer"), (OK,))
    yield Case(
        "three messages of a stream in frames of 7 bytes",
        asked(*((3 * WHOLE)[at : at + 7] for at in range(0, 3 * len(WHOLE), 7)), method="ModelStreamInfer"),
        (OK,),
    )
    yield Case(
        "an end within a stream's message", asked(WHOLE + WHOLE[:-1], method="ModelStreamInfer"), (INTERNAL,)
    )
    yield Case("an empty message of inference", asked(EMPTY_MESSAGE), (INVALID_ARGUMENT, NOT_FOUND))


def bodies() -> Iterator[Case]:
    """What messages may be, and how they may be compressed."""
    text = infer()
    for coding, packed in (("gzip", gzip.compress(text)), ("deflate", zlib.compress(text))):
        yield Case(f"a message in {coding}", asked(message(packed, 1), grpc_encoding=coding), (OK,))
        yield Case(
            f"a message as it is, though {coding} was announced", asked(WHOLE, grpc_encoding=coding), (OK,)
        )
        yield Case(
            f"one message of a stream in {coding}, one not",
            asked(message(packed, 1) + WHOLE, method="ModelStreamInfer", grpc_encoding=coding),
            (OK,),
        )
        yield Case(
            f"a message in {coding} that is cut",
            asked(message(packed[:-5], 1), grpc_encoding=coding),
            (INTERNAL, INVALID_ARGUMENT),
        )
        yield Case(
            f"a message in {coding} that is broken",
            asked(message(packed[:-12] + bytes(12), 1), grpc_encoding=coding),
            (INTERNAL, INVALID_ARGUMENT),
        )
    yield Case(
        "a message that is no gzip",
        asked(message(text, 1), grpc_encoding="gzip"),
        (INTERNAL, INVALID_ARGUMENT),
    )
    yield Case(
        "a compressed empty message",
        call(body=message(b"", 1), grpc_encoding="gzip"),
        (OK, INTERNAL, INVALID_ARGUMENT),
    )
    yield Case("the coding identity", asked(WHOLE, grpc_encoding="identity"), (OK,))
    yield Case("a coding nobody knows", asked(message(text, 1), grpc_encoding="br"), (UNIMPLEMENTED,))
    yield Case("a compressed message without a coding", asked(message(gzip.compress(text), 1)), (INTERNAL,))
    yield Case(
        "a compressed message with the coding identity",
        asked(message(gzip.compress(text), 1), grpc_encoding="identity"),
        (INTERNAL,),
    )
    yield Case("a flag nobody knows", asked(message(text, 2)), (INTERNAL,))
    yield Case("a message that is no protobuf", asked(message(b"\xff\xff\xff")), (INTERNAL,))
    yield Case(
        "a message to a described call that is no protobuf",
        call(method="ModelReady", body=message(b"\x0a\x09m")),
        (INTERNAL,),
    )
    yield Case(
        "a length above the limit",
        headers(1, request_headers("ModelInfer")) + data(1, message(b"x", length=MOST_HELD + 1)),
        (RESOURCE_EXHAUSTED,),
    )
    yield Case(
        "the longest length there is",
        headers(1, request_headers("ModelInfer")) + data(1, message(b"x", length=2**32 - 1)),
        (RESOURCE_EXHAUSTED,),
    )
    yield Case(
        "the longest length there is, in a stream",
        headers(1, request_headers("ModelStreamInfer")) + data(1, message(b"x", length=2**32 - 1)),
        (RESOURCE_EXHAUSTED,),
    )
    yield Case(
        "the longest length there is, of a described call",
        headers(1, request_headers()) + data(1, message(b"x", length=2**32 - 1)),
        (RESOURCE_EXHAUSTED,),
    )
    bomb = gzip.compress(bytes(MOST_HELD + 1))
    yield Case(
        "what becomes larger than the limit",
        asked(message(bomb, 1), grpc_encoding="gzip"),
        (RESOURCE_EXHAUSTED, INVALID_ARGUMENT, "status 14"),
    )


CASES = [*requests(), *timeouts(), *framing(), *bodies()]
