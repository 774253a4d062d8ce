"""Requests that a server must refuse, and what it says: the same table is sent to ours and to a real server."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository

MIRROR = '''
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers every input under the matching output name."""

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(t.name().replace("IN", "OUT"), t.as_numpy()) for t in request.inputs()]
            )
            for request in requests
        ]
'''

BROKEN = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        kind = requests[0].inputs()[0].as_numpy()[0]
        if kind == 0:
            raise ValueError("boom")
        if kind == 1:
            return []
        if kind == 2:
            return ["nonsense"]
        error = pb_utils.TritonError("not here", pb_utils.TritonError.NOT_FOUND)
        return [pb_utils.InferenceResponse(error=error) for _ in requests]
"""


def _tensor(name: str, datatype: str, dims: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": f"TYPE_{datatype}", "dims": dims, **more}


def build_models(root: Path) -> None:
    """The models that the cases address, for the Python backend of either server."""
    repository = ModelRepository(root)

    def mirror(name: str, max_batch_size: int, *tensors: tuple[str, str, list[int]], **more: Any) -> None:
        config = {
            "backend": "python",
            "max_batch_size": max_batch_size,
            "input": [
                _tensor(f"IN{index}", datatype, dims) for index, (_, datatype, dims) in enumerate(tensors)
            ],
            "output": [
                _tensor(f"OUT{index}", datatype, dims) for index, (_, datatype, dims) in enumerate(tensors)
            ],
            **more,
        }
        repository.python(name, MIRROR, config=config)

    mirror("nob", 0, ("", "FP32", [2]))
    mirror("fix", 4, ("", "FP32", [2]), ("", "INT32", [1]))
    mirror("ints", 0, ("", "INT8", [-1]), ("", "UINT16", [-1]), ("", "BOOL", [-1]))
    mirror("strm", 0, ("", "STRING", [1]))
    mirror("strv", 4, ("", "STRING", [-1]))
    mirror("half", 0, ("", "FP16", [-1]))
    config = {
        "backend": "python",
        "input": [_tensor("IN0", "INT32", [1])],
        "output": [_tensor("OUT0", "INT32", [1])],
    }
    repository.python("broken", BROKEN, config=config)
    repository.python("streams", MIRROR, config={**config, "model_transaction_policy": {"decoupled": True}})


@dataclass(frozen=True)
class Case:
    """One request and the answer to it.

    Attributes:
        name: what is wrong with it.
        path: the path.
        body: what is sent.
        status: the HTTP status expected.
        error: the expected text, or a regular expression when it starts with `^`.
        headers: further headers.
        differs: why the real server answers otherwise, "" when it must answer the same.
    """

    name: str
    path: str
    body: bytes
    status: int
    error: str
    headers: dict[str, str] = field(default_factory=dict)
    differs: str = ""
    method: str = "POST"


def _infer(model: str, version: str = "") -> str:
    return f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"


def _input(
    name: str = "IN0", datatype: str = "FP32", shape: Any = None, data: Any = None, **more: Any
) -> Any:
    made = {"name": name, "datatype": datatype, "shape": [2] if shape is None else shape, **more}
    if data is not ...:
        made["data"] = [1, 2] if data is None else data
    return made


def _body(*inputs: Any, **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def _binary(document: bytes, tail: bytes) -> tuple[bytes, dict[str, str]]:
    return document + tail, {"Inference-Header-Content-Length": str(len(document))}


def _sized(size: int, tail: bytes, datatype: str = "FP32", shape: Any = None) -> tuple[bytes, dict[str, str]]:
    one = _input(datatype=datatype, shape=shape, data=..., parameters={"binary_data_size": size})
    return _binary(_body(one), tail)


FIX = (_input(shape=[1, 2]), _input("IN1", "INT32", [1, 1], [1]))
GOOD = _body(_input())
NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended "
    "to each input shape. If you want to specify the full shape including the batch dim in your input dims "
    "config, try setting max_batch_size to zero. See the model configuration docs for more info on "
    "max_batch_size."
)
ID = "[request id: <id_unknown>] "
EIGHT = struct.pack("<2f", 1, 2)

_short_string, _short_string_headers = _sized(6, struct.pack("<I", 5) + b"ab", "BYTES", [1])
_short_length, _short_length_headers = _sized(2, b"ab", "BYTES", [1])
_two_strings, _two_strings_headers = _sized(10, (struct.pack("<I", 1) + b"a") * 2, "BYTES", [1])
_one_string, _one_string_headers = _sized(5, struct.pack("<I", 1) + b"a", "BYTES", [1, 2])
_short, _short_headers = _sized(8, EIGHT[:4])
_long, _long_headers = _sized(8, EIGHT + b"more")
_wrong_size, _wrong_size_headers = _sized(4, EIGHT[:4])
_bad_size, _bad_size_headers = _sized(-1, EIGHT)

CASES = [
    Case("unknown model", _infer("nope"), GOOD, 404, "Request for unknown model: 'nope' is not found"),
    Case(
        "unknown version",
        _infer("nob", "9"),
        GOOD,
        404,
        "Request for unknown model: 'nob' version 9 is not found",
    ),
    Case("version that is no number", _infer("nob", "x"), GOOD, 404, "Not Found"),
    Case("trailing slash", _infer("nob") + "/", GOOD, 404, "Not Found"),
    Case("wrong method", _infer("nob"), GOOD, 405, "Method Not Allowed", method="PUT"),
    Case(
        "wrong datatype",
        _infer("nob"),
        _body(_input(datatype="INT32")),
        400,
        ID + "inference input 'IN0' data-type is 'INT32', but model 'nob' expects 'FP32'",
    ),
    Case(
        "unknown datatype",
        _infer("nob"),
        _body(_input(datatype="FP99")),
        400,
        "invalid datatype for input IN0",
    ),
    Case(
        "request id in the message",
        _infer("nob"),
        _body(_input(datatype="INT32"), id="7"),
        400,
        "[request id: 7] inference input 'IN0' data-type is 'INT32', but model 'nob' expects 'FP32'",
    ),
    *(
        Case(
            f"no {key}",
            _infer("nob"),
            _body({name: value for name, value in _input().items() if name != key}),
            500,
            f"Unable to parse '{key}': attempt to access non-existing object member '{key}'",
        )
        for key in ("name", "datatype", "shape")
    ),
    Case(
        "wrong shape",
        _infer("nob"),
        _body(_input(shape=[3], data=[1, 2, 3])),
        400,
        ID + "unexpected shape for input 'IN0' for model 'nob'. Expected [2], got [3]. ",
    ),
    Case(
        "wrong shape of a batching model",
        _infer("fix"),
        _body(_input(shape=[1, 3], data=[1, 2, 3]), FIX[1]),
        400,
        ID + "unexpected shape for input 'IN0' for model 'fix'. Expected [-1,2], got [1,3]. " + NOTE,
    ),
    Case(
        "negative dimension",
        _infer("nob"),
        _body(_input(shape=[-1])),
        500,
        "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
    ),
    Case(
        "data count",
        _infer("nob"),
        _body(_input(data=[1])),
        500,
        "Unable to parse 'data': Shape does not match true shape of 'data' field",
    ),
    Case(
        "astronomical shape",
        _infer("nob"),
        _body(_input(shape=[2**62, 2**62])),
        400,
        "[request id: <id_unknown>] input 'IN0' for model 'nob': shape "
        "[4611686018427387904,4611686018427387904] causes total element count to exceed maximum size of "
        "9223372036854775807",
        differs="it ends the process",
    ),
    Case(
        "string for a number",
        _infer("nob"),
        _body(_input(data=["a", 2])),
        500,
        "Unable to parse 'data': attempt to access JSON non-number as double",
    ),
    Case(
        "data that is no array",
        _infer("nob"),
        _body(_input(data=5)),
        500,
        "Unable to parse 'data': attempt to access JSON non-array as array",
    ),
    Case(
        "number for a boolean",
        _infer("ints"),
        _body(_input(datatype="INT8"), _input("IN1", "UINT16"), _input("IN2", "BOOL")),
        500,
        "Unable to parse 'data': attempt to access JSON non-boolean as boolean",
    ),
    Case(
        "negative for an unsigned",
        _infer("ints"),
        _body(
            _input(datatype="INT8"),
            _input("IN1", "UINT16", data=[-1, 2]),
            _input("IN2", "BOOL", data=[True, False]),
        ),
        500,
        "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer",
    ),
    Case(
        "fraction for an integer",
        _infer("ints"),
        _body(_input(datatype="INT8", data=[1.5, 1]), _input("IN1", "UINT16"), _input("IN2", "BOOL")),
        500,
        "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer",
    ),
    Case(
        "no data source",
        _infer("nob"),
        _body(_input(data=...)),
        400,
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        "'shared_memory_region' in 'parameters'. But no field is set",
    ),
    Case(
        "two data sources",
        _infer("nob"),
        *(lambda pair: (pair[0],))(_binary(_body(_input(parameters={"binary_data_size": 8})), EIGHT)),
        400,
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        "'shared_memory_region' in 'parameters'. But set 'data' 'binary_data_size'",
        _binary(_body(_input(parameters={"binary_data_size": 8})), EIGHT)[1],
    ),
    Case(
        "missing input",
        _infer("fix"),
        _body(FIX[0]),
        400,
        ID + "expected 2 inputs but got 1 inputs for model 'fix'. Got input(s) ['IN0'], but missing required "
        "input(s) ['IN1']. Please provide all required input(s).",
    ),
    Case(
        "too many inputs",
        _infer("nob"),
        _body(_input(), _input("ZZ")),
        400,
        r"^\[request id: <id_unknown>\] expected 1 inputs but got 2 inputs for model 'nob'. Got input\(s\) "
        r"\['(IN0','ZZ|ZZ','IN0)'\], but missing required input\(s\) \]. Please provide all required input\(s\).",
    ),
    Case(
        "unknown input",
        _infer("nob"),
        _body(_input("ZZ")),
        400,
        "unexpected inference input 'ZZ' for model 'nob'",
    ),
    Case(
        "duplicate input",
        _infer("fix"),
        _body(FIX[0], FIX[0]),
        400,
        ID + "input 'IN0' already exists in request",
    ),
    Case(
        "batch sizes differ",
        _infer("fix"),
        _body(_input(shape=[2, 2], data=[1, 2, 3, 4]), FIX[1]),
        400,
        r"^\[request id: <id_unknown>\] input 'IN[01]' batch size does not match other inputs for 'fix'",
    ),
    Case(
        "batch too large",
        _infer("fix"),
        _body(_input(shape=[5, 2], data=[1] * 10), _input("IN1", "INT32", [5, 1], [1] * 5)),
        400,
        ID + "inference request batch-size must be <= 4 for 'fix'",
    ),
    Case(
        "no batch dimension",
        _infer("fix"),
        _body(_input(shape=[], data=[1]), FIX[1]),
        400,
        ID + "input 'IN0' has no shape but model requires batch dimension for 'fix'",
    ),
    Case(
        "unknown output",
        _infer("nob"),
        _body(_input(), outputs=[{"name": "ZZ"}]),
        400,
        "unexpected inference output 'ZZ' for model 'nob'",
    ),
    Case(
        "string longer than the buffer",
        _infer("strm"),
        _short_string,
        400,
        "incomplete string data for inference input 'IN0', expecting string of length 5 but only 2 bytes available",
        _short_string_headers,
    ),
    Case(
        "string length cut short",
        _infer("strm"),
        _short_length,
        400,
        ID
        + "incomplete string length indicator for inference input 'IN0' for model 'strm', expecting 4 bytes "
        "but only 2 bytes available. Please make sure the string length indicator is in one buffer.",
        _short_length_headers,
    ),
    Case(
        "too many strings",
        _infer("strm"),
        _two_strings,
        400,
        "^.*unexpected number of string elements 2 for inference input 'IN0' for model 'strm', expecting 1",
        _two_strings_headers,
    ),
    Case(
        "too few strings",
        _infer("strv"),
        _one_string,
        400,
        "^.*expected 2 string elements for inference input 'IN0' for model 'strv', got 1",
        _one_string_headers,
    ),
    Case(
        "number for a string",
        _infer("strm"),
        _body(_input(datatype="BYTES", shape=[1], data=[5])),
        500,
        "Unable to parse JSON bytes array: attempt to access JSON non-string as string",
    ),
    Case(
        "half precision as JSON",
        _infer("half"),
        _body(_input(datatype="FP16")),
        400,
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input IN0",
    ),
    Case(
        "half precision wanted as JSON",
        _infer("half"),
        _binary(_body(_input(datatype="FP16", data=..., parameters={"binary_data_size": 4})), b"\0" * 4)[0],
        400,
        "sending FP16 data via JSON is not supported. Please use the binary data format for output",
        _binary(_body(_input(datatype="FP16", data=..., parameters={"binary_data_size": 4})), b"\0" * 4)[1],
    ),
    Case(
        "broken JSON",
        _infer("nob"),
        b'{"inputs": x}',
        500,
        "failed to parse the request JSON buffer: Invalid value. at 11",
    ),
    Case(
        "text behind the JSON",
        _infer("nob"),
        GOOD + b" x",
        500,
        "failed to parse the request JSON buffer: The document root must not be followed by other values. at "
        f"{len(GOOD) + 1}",
    ),
    Case(
        "no inputs",
        _infer("nob"),
        b"{}",
        500,
        "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'",
    ),
    Case(
        "inputs that are no array",
        _infer("nob"),
        b'{"inputs": 5}',
        500,
        "Unable to parse 'inputs': attempt to access JSON non-array as array",
    ),
    Case("empty body", _infer("nob"), b"", 400, "^.*input byte size mismatch for input 'raw_input'.*"),
    Case(
        "header length beyond the body",
        _infer("nob"),
        GOOD,
        400,
        f"inference header size should be in range (0, {len(GOOD)}), got: 100000",
        {"Inference-Header-Content-Length": "100000"},
    ),
    Case(
        "negative header length",
        _infer("nob"),
        GOOD,
        400,
        f"inference header size should be in range (0, {len(GOOD)}), got: -1",
        {"Inference-Header-Content-Length": "-1"},
    ),
    Case(
        "header length that is no number",
        _infer("nob"),
        GOOD,
        400,
        "Unable to parse Inference-Header-Content-Length, got: abc",
        {"Inference-Header-Content-Length": "abc"},
        differs="2.51 reads it as 0; later ones answer this",
    ),
    Case(
        "binary data cut short",
        _infer("nob"),
        _short,
        400,
        "unexpected size for input 'IN0', expecting 4 additional bytes for model 'nob'",
        _short_headers,
    ),
    Case(
        "binary data too long",
        _infer("nob"),
        _long,
        400,
        "unexpected additional input data for model 'nob'",
        _long_headers,
    ),
    Case(
        "binary size against the shape",
        _infer("nob"),
        _wrong_size,
        400,
        ID + "input byte size mismatch for input 'IN0' for model 'nob'. Expected 8, got 4",
        _wrong_size_headers,
    ),
    Case(
        "negative binary size",
        _infer("nob"),
        _bad_size,
        500,
        "Unable to parse 'binary_data_size': attempt to access JSON non-unsigned-integer as unsigned-integer",
        _bad_size_headers,
    ),
    Case(
        "raw request to a model of two inputs",
        _infer("fix"),
        EIGHT,
        400,
        ID
        + "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'fix' model configuration",
        {"Inference-Header-Content-Length": "0"},
    ),
    Case(
        "parameter of a wrong type",
        _infer("nob"),
        _body(_input(), parameters={"timeout": "soon"}),
        500,
        "Unable to parse 'timeout': attempt to access JSON non-unsigned-integer as unsigned-integer",
    ),
    Case(
        "reserved parameter",
        _infer("nob"),
        _body(_input(), parameters={"triton_x": 1}),
        400,
        "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
    ),
    Case(
        "parameter that is a list",
        _infer("nob"),
        _body(_input(), parameters={"x": [1]}),
        400,
        "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'.",
    ),
    Case(
        "exception in the model",
        _infer("broken"),
        _body(_input(datatype="INT32", shape=[1], data=[0])),
        500,
        "^Failed to process the request\\(s\\) for model 'broken_0(_0)?', message: ValueError: boom\n\nAt:\n  "
        ".*model.py\\(\\d+\\): execute\n",
    ),
    Case(
        "too few responses from the model",
        _infer("broken"),
        _body(_input(datatype="INT32", shape=[1], data=[1])),
        500,
        "^.*Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
        "InferenceRequest\\(s\\) size is:1, and InferenceResponse\\(s\\) size is:0.*",
    ),
    Case(
        "something else from the model",
        _infer("broken"),
        _body(_input(datatype="INT32", shape=[1], data=[2])),
        500,
        "^.*Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'.*",
    ),
    Case(
        "error from the model",
        _infer("broken"),
        _body(_input(datatype="INT32", shape=[1], data=[3])),
        404,
        "not here",
    ),
    Case(
        "decoupled model",
        _infer("streams"),
        _body(_input(datatype="INT32", shape=[1], data=[3])),
        501,
        "HTTP end point doesn't support models with decoupled transaction policy",
    ),
]
