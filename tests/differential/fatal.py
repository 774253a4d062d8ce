"""What ends the real server, 2.51, or makes it hang: never sent to it, but answered by ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import prod
from typing import Any

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from .bodies import PAIR, body, grpc_case, http_case, infer, message, strings, tensor, unary
from .comparison import Case
from .servers import Grpc, Http, Request

MOST_ELEMENTS = 2**24
"""The real server asks for the memory of an input before it looks at the data; much more is too much."""


def is_fatal(request: Request) -> bool:
    """Whether a request may end the real server, or keep it from answering."""
    if isinstance(request, Http):
        try:
            document, _ = json.JSONDecoder().raw_decode(request.body.decode("utf-8", "replace").strip())
        except ValueError:
            # Its parser stops at a broken place, or takes what ours does not; a shape may stand before it.
            return re.search(rb"[0-9]{8}", request.body) is not None
        return any(map(_is_fatal_object, _objects(document)))
    if isinstance(request, Grpc) and request.call in ("ModelInfer", "ModelStreamInfer"):
        try:
            messages = [service_pb2.ModelInferRequest.FromString(sent) for sent in request.messages]
        except DecodeError:
            return False
        return any(map(_is_fatal_message, messages))
    return False


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _objects(inner)


def _is_fatal_object(value: dict[str, Any]) -> bool:
    shape = value.get("shape")
    if isinstance(shape, list):
        dims = [dim for dim in shape if type(dim) is int]
        if prod(max(abs(dim), 1) for dim in dims) > MOST_ELEMENTS or (dims[:1] == [0] and len(dims) > 1):
            return True
    return False


def _is_fatal_message(made: Any) -> bool:
    for one in made.inputs:
        dims = list(one.shape)
        if prod(max(abs(dim), 1) for dim in dims) > MOST_ELEMENTS:
            return True
        if dims[:1] == [0] and len(dims) > 1:  # an empty batch whose rows are empty, too, is never answered
            return True
    return False


_HUGE = "causes total element count to exceed maximum size of 9223372036854775807"
_NO_CLASSES = "class result not available for output due to unsupported type 'BYTES'"
_TOO_LARGE = "exceeds the maximum allowed value"
_TWO = [{"name": "OUT0", "parameters": {"classification": 2}}]
_FEW = [{"name": "OUT_FP32", "parameters": {"classification": 2}}]
_STRINGS = tensor("IN0", "BYTES", [1, 2], ["a", "b"])
_ROWS = "inference request batch-size must be >= 1 for 'vector'"


def _types(shape: list[int], data: Any = (1, 2), **more: Any) -> Http:
    return infer("types", body(tensor("IN_FP32", "FP32", shape, list(data)), **more))


def _variable(shape: tuple[int, ...], data: bytes) -> Grpc:
    return unary(message("variable", ("IN0", "INT32", shape), raw=(data,)))


ANSWERS: tuple[tuple[Case, object, str], ...] = (
    (http_case("a shape of 2^62 by 2^62", _types([2**62, 2**62])), 400, _HUGE),
    (http_case("a shape of 2^63", _types([2**63])), 400, _HUGE),
    (http_case("a shape of 2^60", _types([2**60])), 400, _TOO_LARGE),
    (http_case("a shape of 2^32", _types([2**32])), 400, _TOO_LARGE),
    (http_case("a shape of 2^60 and no data", _types([2**60], data=[])), 400, _TOO_LARGE),
    (http_case("classes of strings", infer("strings", body(_STRINGS, outputs=_TWO))), 400, _NO_CLASSES),
    (http_case("classes of nothing", _types([0], data=[], outputs=_FEW)), 200, ""),
    (
        http_case("an empty batch of nothing", infer("vector", body(tensor(shape=[0, 0], data=[])))),
        400,
        _ROWS,
    ),
    (http_case("nested 100000 deep", infer("nob", b"[" * 100_000)), 400, "nest"),
    (grpc_case("a shape of 2^62 by 2 by 2^62", _variable((2**62, 2, 2**62), b"")), "INVALID_ARGUMENT", _HUGE),
    (grpc_case("a shape of 2^62 by 2 by 2", _variable((2**62, 2, 2), PAIR)), "INVALID_ARGUMENT", _HUGE),
    (
        grpc_case(
            "classes of strings",
            unary(
                message(
                    *("strings", ("IN0", "BYTES", (1, 2))),
                    raw=(strings(b"a", b"b"),),
                    outputs=(("OUT0", {"classification": {"int64_param": 2}}),),
                )
            ),
        ),
        "INVALID_ARGUMENT",
        _NO_CLASSES,
    ),
    (
        grpc_case("an empty batch of nothing", unary(message("vector", ("IN0", "FP32", (0, 0)), raw=(b"",)))),
        "INVALID_ARGUMENT",
        _ROWS,
    ),
)
"""Cases, and the status and a part of the error that ours answers."""
