"""What requests and answers look like: what the list of differences is written in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError
from tritonclient.grpc.service_pb2 import ModelInferRequest

from .servers import Grpc, Http, Request

Parts = Mapping[str, Any]
"""An answer; see `answers.comparable`."""


def always(request: Request) -> bool:
    return True


def line(parts: Parts) -> str:
    error = parts.get("error")
    if error is None and isinstance(parts["body"], list):
        error = next((text for text in map(_error_in, parts["body"]) if text), None)
    return f"{parts['status']}" if error is None else f"{parts['status']} {error}"


def _error_in(message: Any) -> str | None:
    """The error in a message of a stream, gRPC's or SSE's."""
    if not isinstance(message, tuple):
        return None
    return next((value for name, value in message if name in ("error_message", "error")), None)


def http(request: Request) -> bytes | None:
    return request.body if isinstance(request, Http) else None


def messages(request: Request) -> tuple[bytes, ...]:
    return request.messages if isinstance(request, Grpc) else ()


def has_header(name: str) -> Callable[[Request], bool]:
    return lambda request: isinstance(request, Http) and any(key == name for key, _ in request.headers)


def accepts(encodings: str) -> Callable[[Request], bool]:
    return lambda request: isinstance(request, Http) and ("Accept-Encoding", encodings) in request.headers


def calls(*names: str) -> Callable[[Request], bool]:
    return lambda request: isinstance(request, Grpc) and request.call in names


def gets(path: str) -> Callable[[Request], bool]:
    return lambda request: isinstance(request, Http) and request.path.split("?")[0] == path


def repeats_a_key(request: Request) -> bool:
    body = http(request)
    if body is None:
        return False
    found = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len({key for key, _ in pairs}) < len(pairs)

    with suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=look)
    return found


def without(*names: str) -> Callable[[Parts], object]:
    """All of an answer but these members of its document, or fields of its messages."""

    def rest(value: Any) -> Any:
        if (
            isinstance(value, tuple)
            and value
            and all(isinstance(one, tuple) and len(one) == 2 for one in value)
        ):
            return tuple((key, rest(one)) for key, one in value if key not in names)
        return [rest(one) for one in value] if isinstance(value, list) else value

    return lambda parts: {name: rest(value) for name, value in parts.items()}


def rounded(parts: Parts) -> object:
    """An answer with numbers of 14 digits."""

    def rounded(value: Any) -> Any:
        if isinstance(value, tuple) and len(value) == 2 and value[0] == "float":
            return f"{float(value[1]):.13e}"
        if isinstance(value, list | tuple):
            return [rounded(one) for one in value]
        return value

    return {name: rounded(value) for name, value in parts.items()}


def says_more(real: Parts, ours: Parts) -> bool:
    """Whether ours says all that the real server says, and then, behind a colon, why."""
    theirs = real.get("error")
    return (
        theirs is not None
        and real["status"] == ours["status"]
        and str(ours.get("error")).startswith(f"{theirs}: ")
    )


def without_parts(*names: str) -> Callable[[Parts], object]:
    return lambda parts: {name: value for name, value in parts.items() if name not in names}


def has_nul(request: Request) -> bool:
    body = http(request)
    return body is not None and b"\\u0000" in body


def id_up_to_nul(parts: Parts) -> object:
    def shortened(body: Any) -> Any:
        return tuple((key, value.split("\0")[0] if key == "id" else value) for key, value in body)

    return {**parts, "body": shortened(parts["body"])} if isinstance(parts.get("body"), tuple) else parts


def has_no_elements(request: Request) -> bool:
    body = http(request)
    return body is not None and re.search(rb'"shape": \[[^]]*\b0\b', body) is not None


def _infer_requests(request: Request) -> list[ModelInferRequest]:
    if not calls("ModelInfer", "ModelStreamInfer")(request):
        return []
    with suppress(DecodeError):
        return [ModelInferRequest.FromString(message) for message in messages(request)]
    return []


def has_several_inputs(request: Request) -> bool:
    body = http(request)
    if body is not None:
        return body.count(b'"name"') > 1
    return any(len(message.inputs) > 1 for message in _infer_requests(request))


def has_several_parameters(request: Request) -> bool:
    return any(len(message.parameters) > 1 for message in _infer_requests(request))


OF_AN_INPUT = (
    r"(400|INVALID_ARGUMENT|OK) (\[request id: .*\] )?("
    "input '.*' batch size does not match|input '.*' has no shape|inference input '.*' data-type is|"
    "unexpected shape for input|unexpected inference input|input byte size mismatch|"
    "All input dimensions should be specified|expected number of inputs|expected .* inputs but got|"
    "inference request batch-size must be|unexpected number of string elements|incomplete string|"
    "expected .* string elements).*"
)
OF_A_PARAMETER = "(INVALID_ARGUMENT|OK) (invalid value (type )?for '|parameter keys starting with).*"
