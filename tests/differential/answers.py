"""Answers in a form in which two servers can be compared.

What differs between two runs of one server is taken out: times, durations, and the order in which a server
that keeps names in a hash table lists them. Numbers keep their kind (1 is not 1.0) and objects the order of
their keys.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from google.protobuf.message import Message
from tritonclient.grpc import service_pb2

from .servers import Answer, Grpc, GrpcAnswer, Http, HttpAnswer, Request

COMPARED_HEADERS = ("content-type", "inference-header-content-length", "content-encoding", "allow")
_TIMES = ("ns", "last_inference")
_NAMES = re.compile(r"(Got input\(s\) |missing required input\(s\) )\[([^]]*)\]")


def comparable(request: Request, answer: Answer) -> dict[str, Any]:
    """The parts of an answer that must be equal, by name.

    Names are `status`, `error` (the text of a failure), `body`, and for HTTP each header that clients read.
    """
    if isinstance(answer, HttpAnswer):
        assert isinstance(request, Http)
        return _comparable_http(answer)
    assert isinstance(request, Grpc)
    return _comparable_grpc(request, answer)


def _comparable_http(answer: HttpAnswer) -> dict[str, Any]:
    parts: dict[str, Any] = {"status": answer.status}
    body = answer.body
    encoding = answer.headers.get("content-encoding", "")
    if encoding == "gzip":
        body = zlib.decompress(body, 16 + zlib.MAX_WBITS)
    elif encoding == "deflate":
        body = zlib.decompress(body)
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        events = body.removesuffix(b"\n\n").split(b"\n\n")
        parts["content-type"] = answer.headers["content-type"]
        parts["body"] = [parse_json(event.removeprefix(b"data: ")) for event in events]
        return parts
    if answer.status >= 400:
        parts["error"] = _error_text(body)
        return parts
    for name in COMPARED_HEADERS:
        if name in answer.headers and body:  # nobody asks for the type of nothing
            parts[name] = answer.headers[name]
    length = answer.headers.get("inference-header-content-length")
    if length is not None and length.isdigit():
        document, tail = body[: int(length)], body[int(length) :]
        # Both write the same document, but not always with as many digits.
        parts["inference-header-content-length"] = "length of the document"
        parts["body"] = parse_json(document)
        parts["tensors"] = tail
    else:
        parts["body"] = parse_json(body)
    return parts


def _error_text(body: bytes) -> str:
    """The text of the usual object; anything else as it is."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and list(document) == ["error"] and isinstance(document["error"], str):
        return _sorted_names(document["error"])
    return body.decode(errors="surrogateescape")


def _sorted_names(text: str) -> str:
    def in_order(found: re.Match[str]) -> str:
        return found[1] + "[" + ",".join(sorted(found[2].split(","))) + "]"

    return _NAMES.sub(in_order, text)


def parse_json(body: bytes) -> Any:
    """JSON with kinds of numbers and orders of keys kept, and times taken out; other text as it is."""
    try:
        return json.loads(
            body.decode("utf-8", "surrogateescape"),
            parse_float=lambda text: ("float", repr(float(text))),
            parse_constant=lambda text: ("float", text),
            object_pairs_hook=lambda pairs: tuple(
                (key, 0 if key in _TIMES else value) for key, value in pairs
            ),
        )
    except (ValueError, RecursionError):
        return body


def _comparable_grpc(request: Grpc, answer: GrpcAnswer) -> dict[str, Any]:
    parts: dict[str, Any] = {"status": answer.code}
    if answer.details:
        parts["error"] = _sorted_names(answer.details)
    kind = getattr(service_pb2, RESPONSES.get(request.call, ""), None)
    if kind is None:
        parts["body"] = answer.messages
    else:
        parts["body"] = [_plain(kind.FromString(message)) for message in answer.messages]
    return parts


RESPONSES = {
    "ModelInfer": "ModelInferResponse",
    "ModelStreamInfer": "ModelStreamInferResponse",
    **{
        call: f"{call}Response"
        for call in (
            *("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelConfig"),
            *("ModelStatistics", "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"),
            *("SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister"),
            *("CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister"),
            *("TraceSetting", "LogSettings"),
        )
    },
}
"""The response's message by the call's name."""


def _plain(message: Message) -> Any:
    """A message as tuples of the fields that are set; unlike protobuf's JSON it keeps bytes and NaN apart."""
    fields = []
    for descriptor, value in message.ListFields():
        name = descriptor.name
        if name in _TIMES:
            value = 0
        elif descriptor.message_type is None:
            value = list(value) if _is_repeated(value) else value
        elif descriptor.message_type.GetOptions().map_entry:
            value = sorted((key, _plain_value(entry)) for key, entry in value.items())
        elif _is_repeated(value):
            value = [_plain(entry) for entry in value]
        else:
            value = _plain(value)
        if name == "error_message":
            value = _sorted_names(value)
        fields.append((name, value))
    return tuple(fields)


def _plain_value(value: Any) -> Any:
    return _plain(value) if isinstance(value, Message) else value


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Message)
