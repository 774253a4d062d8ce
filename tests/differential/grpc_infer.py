"""gRPC inference requests, alone and in streams."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from .bodies import ONE, PAIR, call, grpc_case, message, stream, strings, unary
from .servers import Grpc

NOB = ("IN0", "FP32", (2,))
FIX = (("IN0", "FP32", (1, 2)), ("IN1", "INT32", (1, 1)))
TOLD = ("IN0", "INT32", (1,))
ZERO = struct.pack("<i", 0)
_CONTENTS: dict[str, list[Any]] = {
    "bool_contents": [True, False],
    "int_contents": [1, -2],
    "int64_contents": [1, -(2**63)],
    "uint_contents": [1, 2**32 - 1],
    "uint64_contents": [1, 2**64 - 1],
    "fp32_contents": [1.5, float("inf")],
    "fp64_contents": [0.1, 1e300],
    "bytes_contents": [b"a", b"\xff"],
}
_DATATYPES = (
    *(
        "BOOL",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "FP16",
        "FP32",
        "FP64",
    ),
    "BYTES",
)
_PARAMETERS: dict[str, Mapping[str, Any]] = {
    "bool": {"bool_param": True},
    "int64": {"int64_param": 5},
    "negative": {"int64_param": -5},
    "zero": {"int64_param": 0},
    "string": {"string_param": "x"},
    "empty string": {"string_param": ""},
    "double": {"double_param": 1.5},
    "uint64": {"uint64_param": 7},
    "nothing": {},
}
_KEYS = (
    *(
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
    ),
    *("triton_enable_empty_final_response", "triton_mine", "mine"),
)
_SIGNED = {
    "INT8": (127, 128, -128, -129),
    "INT16": (32767, 32768, -32768, -32769),
    "INT32": (2**31 - 1, -(2**31)),
}
_UNSIGNED = {"UINT8": (255, 256), "UINT16": (65535, 65536), "UINT32": (2**32 - 1,)}
SIZES = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "FP32": 4,
    "FP64": 8,
}


def _nob(
    name: str = "IN0", datatype: str = "FP32", shape: Any = (2,), raw: Any = (PAIR,), **more: Any
) -> Grpc:
    return unary(message("nob", (name, datatype, shape), raw=raw, **more))


def _fix(shape0: Any = (1, 2), shape1: Any = (1, 1), raw: Any = (PAIR, ONE), **more: Any) -> Grpc:
    return unary(message("fix", ("IN0", "FP32", shape0), ("IN1", "INT32", shape1), raw=raw, **more))


def _typed(datatype: str, contents: Any, count: int = 2) -> Grpc:
    name = "STRING" if datatype == "BYTES" else datatype
    return unary(message("types", (f"IN_{name}", datatype, (count,)), contents=(contents,)))


def _raw(datatype: str, data: bytes, count: int = 2) -> Grpc:
    name = "STRING" if datatype == "BYTES" else datatype
    return unary(message("types", (f"IN_{name}", datatype, (count,)), raw=(data,)))


def _told(parameters: Any, **more: Any) -> Grpc:
    return unary(message("told", TOLD, raw=(ZERO,), parameters=parameters, **more))


def _output(parameters: Any, model: str = "nob", name: str = "OUT0") -> Grpc:
    return unary(message(model, NOB, raw=(PAIR,), outputs=((name, parameters),)))


def _classified(parameter: Any, count: int = 1) -> Grpc:
    data = struct.pack("<4f", 1, 4, 2, 3) * count
    wanted = (("OUT0", {"classification": parameter}),)
    return unary(message("labelled", ("IN0", "FP32", (count, 4)), raw=(data,), outputs=wanted))


def _region(**parameters: Any) -> Grpc:
    made = message("nob", NOB)
    for key, value in parameters.items():
        made.inputs[0].parameters[key].MergeFrom(type(made.inputs[0].parameters[key])(**value))
    return unary(made)


def _streamed(*elements: int, **more: Any) -> Any:
    data = struct.pack(f"<{len(elements)}i", *elements)
    return message("streams", ("IN0", "INT32", (len(elements),)), raw=(data,), **more)


def _unary_failure(kind: int, id: str = "") -> Any:
    return message("fails", TOLD, raw=(struct.pack("<i", kind),), id=id)


_FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}
_GOOD = message("nob", NOB, raw=(PAIR,), id="1")
_REGION = {"shared_memory_region": {"string_param": "nope"}, "shared_memory_byte_size": {"int64_param": 8}}

CASES = [
    grpc_case("a good request", _nob(), _nob(id="7"), _nob(version="1"), _nob(version="01")),
    grpc_case("a good request with a batch", _fix()),
    grpc_case("a good request in another order", unary(message("fix", *reversed(FIX), raw=(ONE, PAIR)))),
    grpc_case("no model", unary(message(""))),
    grpc_case("an unknown model", unary(message("nope", NOB, raw=(PAIR,)))),
    *(
        grpc_case(f"version {version!r}", _nob(version=version))
        for version in ("9", "0", "x", "-1", " 1", "1 ", "1x", "+1", "9" * 20, "1.0", "0x1")
    ),
    grpc_case("a decoupled model", unary(_streamed(1))),
    grpc_case("an empty message", Grpc("ModelInfer", (b"",))),
    grpc_case("no message", Grpc("ModelInfer", (b"\xff\xff\xff",))),
    grpc_case(
        "an unknown call",
        Grpc("/inference.GRPCInferenceService/Nothing"),
        Grpc("/inference.Nothing/ModelInfer"),
    ),
    *(
        grpc_case(f"datatype {name!r}", _nob(datatype=name))
        for name in ("INT32", "FP64", "BYTES", "FP16", "BF16", "fp32", "", "TYPE_FP32", "FP8")
    ),
    *(
        grpc_case(f"a shape of {shape}", _nob(shape=shape))
        for shape in ((), (0,), (1,), (3,), (-1,), (-2,), (2, 1), (1, 2))
    ),
    *(
        grpc_case(f"{len(data)} bytes of data", _nob(raw=(data,)))
        for data in (b"", PAIR[:4], PAIR[:7], PAIR + ONE)
    ),
    grpc_case("no data", _nob(raw=())),
    grpc_case("more raw contents than inputs", _nob(raw=(PAIR, PAIR))),
    grpc_case("fewer raw contents than inputs", _fix(raw=(PAIR,))),
    grpc_case("raw and typed contents", _nob(contents=({"fp32_contents": [1, 2]},))),
    grpc_case(
        "raw and typed contents of two inputs",
        unary(message("fix", *FIX, raw=(PAIR,), contents=(None, {"int_contents": [1]}))),
    ),
    grpc_case(
        "typed contents of one of two inputs",
        unary(message("fix", *FIX, contents=({"fp32_contents": [1, 2]},))),
    ),
    grpc_case(
        "typed contents of both inputs",
        unary(message("fix", *FIX, contents=({"fp32_contents": [1, 2]}, {"int_contents": [1]}))),
    ),
    *(
        grpc_case(f"{field} for {datatype}", _typed(datatype, {field: values}))
        for datatype in _DATATYPES
        for field, values in _CONTENTS.items()
    ),
    grpc_case(
        "no typed contents",
        _typed("FP32", {}),
        _typed("FP32", {}, 0),
        _typed("BYTES", {}),
        _typed("BYTES", {}, 0),
    ),
    grpc_case(
        "two typed contents",
        _typed("FP32", {"fp32_contents": [1, 2], "int_contents": [1, 2]}),
        _typed("INT32", {"fp32_contents": [1, 2], "int_contents": [1, 2]}),
    ),
    grpc_case("too few typed elements", _typed("FP32", {"fp32_contents": [1]})),
    grpc_case("too many typed elements", _typed("FP32", {"fp32_contents": [1, 2, 3]})),
    grpc_case("too few typed strings", _typed("BYTES", {"bytes_contents": [b"a"]})),
    grpc_case("too many typed strings", _typed("BYTES", {"bytes_contents": [b"a", b"b", b"c"]})),
    *(
        grpc_case(f"{value} for {datatype}", _typed(datatype, {"int_contents": [value]}, 1))
        for datatype, values in _SIGNED.items()
        for value in values
    ),
    *(
        grpc_case(f"{value} for {datatype}", _typed(datatype, {"uint_contents": [value]}, 1))
        for datatype, values in _UNSIGNED.items()
        for value in values
    ),
    *(
        grpc_case(f"raw {datatype}", _raw(datatype, bytes(range(2 * size))))
        for datatype, size in SIZES.items()
    ),
    grpc_case("raw NaN", _raw("FP32", b"\x01\x00\xc0\x7f\xff\xff\xff\xff")),
    grpc_case("raw strings", _raw("BYTES", strings(b"a", b"\xff\0"))),
    grpc_case("raw strings, one too few", _raw("BYTES", strings(b"a"))),
    grpc_case("raw strings, one too many", _raw("BYTES", strings(b"a", b"b", b"c"))),
    grpc_case("raw strings, none", _raw("BYTES", b"")),
    grpc_case("raw strings, none for none", _raw("BYTES", b"", 0)),
    grpc_case("raw strings, some for none", _raw("BYTES", strings(b"a"), 0)),
    grpc_case("a raw string longer than the data", _raw("BYTES", struct.pack("<I", 5) + b"ab", 1)),
    grpc_case("a raw string's length cut short", _raw("BYTES", b"ab", 1)),
    grpc_case("a raw string and half a length", _raw("BYTES", strings(b"a") + b"\0", 1)),
    grpc_case("a missing input", unary(message("fix", FIX[0], raw=(PAIR,)))),
    grpc_case("no inputs", unary(message("fix")), unary(message("nob")), unary(message("types"))),
    grpc_case("too many inputs", unary(message("nob", NOB, ("ZZ", "FP32", (2,)), raw=(PAIR, PAIR)))),
    grpc_case("an input of another name", _nob(name="ZZ")),
    grpc_case("an input without a name", _nob(name="")),
    grpc_case("the same input twice", unary(message("fix", FIX[0], FIX[0], raw=(PAIR, PAIR)))),
    grpc_case("an unknown output", _nob(outputs=("ZZ",))),
    grpc_case(
        "a wanted output",
        _fix(outputs=("OUT1",)),
        _fix(outputs=("OUT1", "OUT0")),
        _fix(outputs=("OUT1", "OUT1")),
    ),
    grpc_case("a bad output and a bad input", _nob(datatype="INT8", outputs=("ZZ",))),
    grpc_case("a bad parameter and no data", _nob(raw=(), parameters={"timeout": {"bool_param": True}})),
    grpc_case(
        "a bad parameter and an unknown model",
        unary(message("nope", parameters={"timeout": {"bool_param": True}})),
    ),
    grpc_case("a batch too large", _fix((5, 2), (5, 1), (PAIR * 5, ONE * 5))),
    grpc_case("a batch of 0", _fix((0, 2), (0, 1), (b"", b""))),
    grpc_case("a batch of 0 with data", _fix((0, 2), (0, 1))),
    grpc_case("batches that differ", _fix((2, 2), (1, 1), (PAIR * 2, ONE))),
    grpc_case("no batch dimension", _fix((), (1, 1), (PAIR, ONE))),
    grpc_case("a wrong shape behind the batch", _fix((1, 3))),
    grpc_case("an optional input left out", unary(message("optional", ("IN0", "FP32", (1, 1)), raw=(ONE,)))),
    grpc_case("only the optional input", unary(message("optional", ("IN1", "FP32", (1, 1)), raw=(ONE,)))),
    grpc_case("no input where one is optional", unary(message("optional"))),
    grpc_case(
        "outputs that the model makes in another order",
        unary(message("reversed", TOLD, ("IN1", "INT32", (1,)), raw=(ONE, ZERO))),
    ),
    *(
        grpc_case(f"parameter {key}: {kind}", _told({key: value}))
        for key in _KEYS
        for kind, value in _PARAMETERS.items()
    ),
    grpc_case("parameters of all kinds", _told({key: {"string_param": key} for key in ("b", "a", "ä", "")})),
    *(
        grpc_case(
            f"parameters of wrong types {number}", _told({f"mine{number}{key}": {} for key in "abcdefgh"})
        )
        for number in range(8)  # each server takes them in an order of its own, anew in each process
    ),
    grpc_case("an id with parameters", _told({"a": {"int64_param": -1}}, id="7")),
    grpc_case(
        "response parameters",
        unary(message("told", TOLD, raw=(ONE,))),
        unary(message("told", TOLD, raw=(ONE,), id="7")),
    ),
    *(grpc_case(f"classification {kind}", _classified(value)) for kind, value in _PARAMETERS.items()),
    *(
        grpc_case(f"classification of {count}", _classified({"int64_param": count}))
        for count in (1, 2, 4, 2**31, 2**32, 2**62)
    ),
    grpc_case("classification of a batch", _classified({"int64_param": 2}, 2)),
    grpc_case(
        "binary_data of an output", _output({"binary_data": {"bool_param": False}}), _output({"mine": {}})
    ),
    grpc_case("input in an unknown region", _region(**_REGION)),
    *(
        grpc_case(f"input in a region, {key}: {kind}", _region(**{**_REGION, key: value}))
        for key in (*_REGION, "shared_memory_offset")
        for kind, value in _PARAMETERS.items()
    ),
    *(
        grpc_case(
            f"input in a region without {key}",
            _region(**{name: value for name, value in _REGION.items() if name != key}),
        )
        for key in _REGION
    ),
    grpc_case("output in an unknown region", _output(_REGION)),
    *(
        grpc_case(f"output in a region, {key}: {kind}", _output({**_REGION, key: value}))
        for key in (*_REGION, "shared_memory_offset")
        for kind, value in _PARAMETERS.items()
    ),
    *(
        grpc_case(f"error {kind} of a model", unary(_unary_failure(kind)))
        for kind in (*range(8), 100, 101, 102, 103, 104, 105)
    ),
    grpc_case("stream of nothing", stream()),
    grpc_case("stream of one", stream(_GOOD)),
    grpc_case("stream of a decoupled model", stream(_streamed(5, 6, id="7"))),
    grpc_case(
        "stream of a decoupled model with a final response",
        stream(_streamed(5, 6, id="7", parameters=_FINAL)),
    ),
    grpc_case(
        "stream of no responses", stream(_streamed(id="7")), stream(_streamed(id="7", parameters=_FINAL))
    ),
    grpc_case(
        "stream of an error among responses",
        stream(_streamed(5, -1, 6, id="7")),
        stream(_streamed(5, -1, 6, id="7", parameters=_FINAL)),
    ),
    grpc_case("stream of a version", stream(_streamed(5, id="7", version="1", parameters=_FINAL))),
    grpc_case(
        "stream of one response with a final one",
        stream(message("nob", NOB, raw=(PAIR,), id="1", parameters=_FINAL)),
    ),
    *(
        grpc_case(f"stream of error {kind}", stream(_unary_failure(kind, "7")), stream(_unary_failure(kind)))
        for kind in (0, 2, 100)
    ),
    *(
        grpc_case(f"stream of {name}", stream(made))
        for name, made in {
            "an unknown model": message("nope", NOB, raw=(PAIR,), id="1"),
            "an unknown version": message("nob", NOB, raw=(PAIR,), id="1", version="9"),
            "a bad version": message("nob", NOB, raw=(PAIR,), id="1", version="x"),
            "a bad datatype": message("nob", ("IN0", "INT8", (2,)), raw=(PAIR,), id="1"),
            "no data": message("nob", NOB, id="1"),
            "a bad parameter": message(
                "nob", NOB, raw=(PAIR,), parameters={"timeout": {"bool_param": True}}, id="1"
            ),
            "a reserved parameter": message(
                "nob", NOB, raw=(PAIR,), parameters={"triton_x": {"bool_param": True}}, id="1"
            ),
            "an unknown output": message("nob", NOB, raw=(PAIR,), outputs=("ZZ",), id="1"),
        }.items()
    ),
    grpc_case("stream of what is no message", Grpc("ModelStreamInfer", (b"\xff\xff",))),
    grpc_case("ServerLive and ServerReady", call("ServerLive"), call("ServerReady")),
]
