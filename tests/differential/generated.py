"""Requests that nobody thought of: good ones with something dropped, replaced, doubled or moved.

What is known to end the real server, or to make it ask for more memory than there is, is never made here; see
`fatal.py`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from .bodies import LENGTH, ONE, PAIR, message, strings, tensor
from .fatal import is_fatal
from .servers import Grpc, Http

_FIX = (tensor(shape=[1, 2]), tensor("IN1", "INT32", [1, 1], [1]))
_BINARY = {"binary_data_size": 8}
SEEDS: tuple[tuple[str, dict[str, Any], bytes], ...] = (
    ("nob", {"inputs": [tensor()]}, b""),
    (
        "nob",
        {"id": "7", "inputs": [tensor()], "outputs": [{"name": "OUT0"}], "parameters": {"priority": 1}},
        b"",
    ),
    ("fix", {"inputs": list(_FIX), "outputs": [{"name": "OUT1", "parameters": {"binary_data": True}}]}, b""),
    ("fix", {"inputs": list(_FIX), "parameters": {"binary_data_output": True, "mine": "x"}}, b""),
    ("nob", {"inputs": [tensor(data=None, parameters=_BINARY)]}, PAIR),
    ("strings", {"inputs": [tensor("IN0", "BYTES", [1, 2], ["a", "bc"])]}, b""),
    ("one_string", {"inputs": [tensor("IN0", "BYTES", [1], None, parameters=_BINARY)]}, strings(b"abcd")),
    ("optional", {"inputs": [tensor(name, shape=[1, 1], data=[1]) for name in ("IN0", "IN1")]}, b""),
    ("variable", {"inputs": [tensor("IN0", "INT32", [1, 2, 3], [[[1, 2, 3], [4, 5, 6]]])]}, b""),
    (
        "types",
        {"inputs": [tensor("IN_BOOL", "BOOL", [1], [True]), tensor("IN_UINT8", "UINT8", [1], [255])]},
        b"",
    ),
    (
        "types",
        {"inputs": [tensor("IN_INT64", "INT64", [1], [-5]), tensor("IN_FP64", "FP64", [1], [0.5])]},
        b"",
    ),
    (
        "told",
        {"inputs": [tensor("IN0", "INT32", [1], [1])], "parameters": {"sequence_id": 5, "a": True}},
        b"",
    ),
)
WORDS = (
    "IN0",
    "IN1",
    "OUT0",
    "OUT1",
    "ZZ",
    "",
    "FP32",
    "INT32",
    "BYTES",
    "BOOL",
    "UINT8",
    "a",
    "ä",
    "7",
    "x" * 40,
)
KEYS = (
    *("inputs", "outputs", "parameters", "id", "name", "datatype", "shape", "data", "binary_data", "other"),
    *("binary_data_size", "binary_data_output", "sequence_id", "sequence_start", "priority", "timeout"),
)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, 3, -1, 255, 256, 1000, 2**31, -(2**31) - 1, 2**63, 2**64]),
    st.sampled_from([0.0, 1.0, 1.5, -0.0, 1e22, 1e-7]),
    st.sampled_from(WORDS),
)
VALUES = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=4,
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of an object and element of an array, as the container and the key or index."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _change(draw: st.DrawFn, document: dict[str, Any]) -> None:
    places = list(_places(document))
    assume(places)
    container, key = draw(st.sampled_from(places))
    how = draw(st.sampled_from(["drop", "replace", "replace", "double", "add", "swap"]))
    if how == "drop":
        del container[key]
    elif how == "replace":
        container[key] = draw(VALUES)
    elif how == "add":
        holder = container[key] if isinstance(container[key], dict) else document
        holder[draw(st.sampled_from(KEYS))] = draw(VALUES)
    elif isinstance(container, list):
        other = draw(st.integers(0, len(container) - 1))
        if how == "double":
            container.insert(other, copy.deepcopy(container[key]))
        else:
            container[key], container[other] = container[other], container[key]
    else:
        other_key = draw(st.sampled_from(list(container)))
        container[key], container[other_key] = container[other_key], container[key]


@st.composite
def http_requests(draw: st.DrawFn) -> Http:
    """An inference request over HTTP."""
    model, seed, tail = draw(st.sampled_from(SEEDS))
    document = copy.deepcopy(seed)
    for _ in range(draw(st.integers(0, 3))):
        _change(draw, document)
    body = json.dumps(document, ensure_ascii=draw(st.booleans())).encode()
    if tail or draw(st.integers(0, 9)) == 0:
        tail = draw(st.sampled_from([tail, tail[:-1], tail + b"\1", b"", tail * 2]))
    headers: tuple[tuple[str, str], ...] = ()
    if tail:
        off = draw(st.sampled_from([0, 0, 0, 0, 0, -1, 1]))
        headers = ((LENGTH, str(len(body) + off)),)
    if draw(st.integers(0, 9)) == 0:
        model = draw(st.sampled_from([model for model, _, _ in SEEDS]))
    request = Http("POST", f"/v2/models/{model}/infer", body + tail, headers)
    assume(not is_fatal(request))
    return request


@st.composite
def http_texts(draw: st.DrawFn) -> Http:
    """An inference request over HTTP whose JSON is broken, or odd."""
    model, seed, _ = draw(st.sampled_from(SEEDS))
    text = json.dumps(seed)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(text)))
        until = draw(st.sampled_from([at, at, at + 1, at + 1, at + 2, at + 9, len(text)]))
        put = draw(
            st.sampled_from(
                [
                    "",
                    "",
                    *'{}[]:,"0-.eE+ \\\n\t',
                    "NaN",
                    "-Infinity",
                    "null",
                    "1e5",
                    "\\u0041",
                    "é",
                    "\\n",
                    "/",
                ]
            )
        )
        text = text[:at] + put + text[until:]
    request = Http("POST", f"/v2/models/{model}/infer", text.encode())
    assume(not is_fatal(request))
    return request


_MESSAGES = (
    message("nob", ("IN0", "FP32", (2,)), raw=(PAIR,), id="7"),
    message("fix", ("IN0", "FP32", (1, 2)), ("IN1", "INT32", (1, 1)), raw=(PAIR, ONE), outputs=("OUT1",)),
    message(
        *("fix", ("IN0", "FP32", (1, 2)), ("IN1", "INT32", (1, 1))),
        contents=({"fp32_contents": [1, 2]}, {"int_contents": [1]}),
    ),
    message("strings", ("IN0", "BYTES", (1, 2)), raw=(strings(b"a", b"bc"),)),
    message("strings", ("IN0", "BYTES", (1, 2)), contents=({"bytes_contents": [b"a", b"bc"]},)),
    message("optional", ("IN0", "FP32", (1, 1)), ("IN1", "FP32", (1, 1)), raw=(ONE, ONE)),
    message("variable", ("IN0", "INT32", (1, 2, 3)), raw=(bytes(range(24)),)),
    message("types", ("IN_UINT8", "UINT8", (2,)), contents=({"uint_contents": [1, 255]},)),
    message("told", ("IN0", "INT32", (1,)), raw=(ONE,), parameters={"sequence_id": {"int64_param": 5}}),
)
_DIMS = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 9, -1, -2])
_RAW = st.sampled_from(
    [b"", PAIR, ONE, PAIR[:5], PAIR * 2, strings(b"a"), strings(b"a", b""), b"\1\0\0\0", bytes(24)]
)
_TYPES = ("FP32", "INT32", "BYTES", "INT8", "UINT8", "BOOL", "FP16", "FP64", "", "fp32", "XX")
_FIELDS = {
    "bool_contents": True,
    "int_contents": -300,
    "int64_contents": 5,
    "uint_contents": 300,
    "uint64_contents": 5,
    "fp32_contents": 1.5,
    "fp64_contents": 2.5,
    "bytes_contents": b"\xff",
}
_PARAMETERS = (
    {"bool_param": True},
    {"int64_param": 3},
    {"int64_param": -3},
    {"string_param": "x"},
    {"double_param": 0.5},
    {"uint64_param": 3},
    {},
)


def _change_message(draw: st.DrawFn, made: Any) -> None:
    how = draw(
        st.sampled_from(
            ["model", "input", "input", "input", "contents", "raw", "output", "parameter", "version"]
        )
    )
    if how == "model":
        made.model_name = draw(st.sampled_from([other.model_name for other in _MESSAGES]))
    elif how == "version":
        made.model_version = draw(st.sampled_from(["1", "2", "x", "-1", "0"]))
    elif how == "raw":
        raw = made.raw_input_contents
        what = draw(st.sampled_from(["drop", "add", "replace"]))
        if what == "add" or not raw:
            raw.append(draw(_RAW))
        elif what == "drop":
            del raw[draw(st.integers(0, len(raw) - 1))]
        else:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(_RAW)
    elif how == "output":
        made.outputs.add(name=draw(st.sampled_from(WORDS)))
    elif how == "parameter":
        key = draw(st.sampled_from([*KEYS[-4:], "sequence_end", "triton_x", "mine"]))
        made.parameters[key].CopyFrom(service_pb2.InferParameter(**draw(st.sampled_from(_PARAMETERS))))
    elif made.inputs:
        _change_input(draw, made, how)


def _change_input(draw: st.DrawFn, made: Any, how: str) -> None:
    index = draw(st.integers(0, len(made.inputs) - 1))
    one = made.inputs[index]
    if how == "contents":
        field = draw(st.sampled_from(list(_FIELDS)))
        values = [_FIELDS[field]] * draw(st.integers(0, 3))
        getattr(one.contents, field).extend(values)
        return
    what = draw(st.sampled_from(["drop", "double", "name", "datatype", "shape", "shape"]))
    if what == "drop":
        del made.inputs[index]
    elif what == "double":
        made.inputs.add().CopyFrom(one)
    elif what == "name":
        one.name = draw(st.sampled_from(WORDS))
    elif what == "datatype":
        one.datatype = draw(st.sampled_from(_TYPES))
    else:
        del one.shape[:]
        one.shape.extend(draw(st.lists(_DIMS, max_size=3)))


@st.composite
def grpc_requests(draw: st.DrawFn) -> Grpc:
    """An inference request over gRPC, alone or in a stream."""
    made = service_pb2.ModelInferRequest()
    made.CopyFrom(draw(st.sampled_from(_MESSAGES)))
    for _ in range(draw(st.integers(0, 3))):
        _change_message(draw, made)
    request = Grpc(
        draw(st.sampled_from(["ModelInfer", "ModelInfer", "ModelStreamInfer"])), (made.SerializeToString(),)
    )
    assume(not is_fatal(request))
    return request
