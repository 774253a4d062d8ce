"""Bad requests over gRPC, each with the status it gets."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
INTERNAL = grpc.StatusCode.INTERNAL
UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED

Request = service_pb2.ModelInferRequest
Contents = service_pb2.InferTensorContents
NO_ID = "[request id: <id_unknown>] "
ANY_ID = r"^\[request id: .*\] "  # of several inputs a real server names any
NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended "
    "to each input shape. If you want to specify the full shape including the batch dim in your input dims "
    "config, try setting max_batch_size to zero. See the model configuration docs for more info on "
    "max_batch_size."
)
PAIR = struct.pack("<2f", 1, 2)
ONE = struct.pack("<i", 1)


def infer(
    model: str,
    *inputs: tuple[str, str, Sequence[int]],
    raw: Sequence[bytes] = (),
    outputs: Sequence[str] = (),
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    contents: Mapping[str, Sequence[Any]] | None = None,
    version: str = "",
    id: str = "",
) -> Request:
    """A request; `contents` are those of the first input."""
    message = Request(
        model_name=model, model_version=version, id=id, raw_input_contents=raw, parameters=parameters
    )
    for name, datatype, shape in inputs:
        message.inputs.add(name=name, datatype=datatype, shape=shape)
    if contents is not None:
        message.inputs[0].contents.CopyFrom(Contents(**contents))
    for name in outputs:
        message.outputs.add(name=name)
    return message


def nob(
    name: str = "IN0",
    datatype: str = "FP32",
    shape: Sequence[int] = (2,),
    raw: Sequence[bytes] = (PAIR,),
    **more: Any,
) -> Request:
    return infer("nob", (name, datatype, shape), raw=raw, **more)


def fix(
    shape0: Sequence[int] = (1, 2), shape1: Sequence[int] = (1, 1), raw: Sequence[bytes] = (PAIR, ONE)
) -> Request:
    return infer("fix", ("IN0", "FP32", shape0), ("IN1", "INT32", shape1), raw=raw)


def strings(model: str, shape: Sequence[int], data: bytes) -> Request:
    return infer(model, ("IN0", "BYTES", shape), raw=(data,))


def broken(kind: int) -> Request:
    return infer("broken", ("IN0", "INT32", (1,)), raw=(struct.pack("<i", kind),))


def parameter(key: str, **value: Any) -> Request:
    return nob(parameters={key: value})


def word(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


@dataclass(frozen=True)
class Case:
    """One request and the status it gets.

    Attributes:
        name: what is wrong with it.
        request: what is sent.
        code: the status expected.
        text: the expected details, or a regular expression when it starts with `^`.
        differs: why the real server answers otherwise, "" when it must answer the same.
    """

    name: str
    request: Request
    code: grpc.StatusCode
    text: str
    differs: str = ""


TYPED = "unexpected explicit tensor data for input tensor 'IN0' for model 'nob'"

CASES = [
    Case("unknown model", infer("nope"), NOT_FOUND, "Request for unknown model: 'nope' is not found"),
    Case("no model name", infer(""), NOT_FOUND, "Request for unknown model: '' is not found"),
    Case(
        "unknown version",
        nob(version="9"),
        NOT_FOUND,
        "Request for unknown model: 'nob' version 9 is not found",
    ),
    Case(
        "version that is no number",
        nob(version="x"),
        INVALID,
        "failed to get model version from specified version string 'x' (details: stol), version should be "
        "an integral value > 0",
    ),
    Case(
        "negative version",
        nob(version="-1"),
        INVALID,
        "invalid model version specified '-1' , version should be an integral value > 0",
    ),
    Case(
        "version of five thousand digits",
        nob(version="1" * 5000),
        INVALID,
        f"failed to get model version from specified version string '{'1' * 5000}' (details: stol), version "
        "should be an integral value > 0",
    ),
    Case(
        "decoupled model",
        infer("streams"),
        UNIMPLEMENTED,
        "ModelInfer RPC doesn't support models with decoupled transaction policy",
    ),
    Case(
        "wrong datatype",
        nob(datatype="INT32"),
        INVALID,
        f"{NO_ID}inference input 'IN0' data-type is 'INT32', but model 'nob' expects 'FP32'",
    ),
    Case(
        "request id in the message",
        nob(datatype="INT32", id="7"),
        INVALID,
        "[request id: 7] inference input 'IN0' data-type is 'INT32', but model 'nob' expects 'FP32'",
    ),
    *(
        Case(
            f"datatype {datatype!r}",
            nob(datatype=datatype),
            INVALID,
            f"{NO_ID}inference input 'IN0' data-type is '<invalid>', but model 'nob' expects 'FP32'",
        )
        for datatype in ("FP99", "", "fp32", "STRING")
    ),
    Case(
        "wrong shape",
        nob(shape=(3,), raw=(bytes(12),)),
        INVALID,
        f"{NO_ID}unexpected shape for input 'IN0' for model 'nob'. Expected [2], got [3]. ",
    ),
    Case(
        "wrong rank",
        nob(shape=(1, 2)),
        INVALID,
        f"{NO_ID}unexpected shape for input 'IN0' for model 'nob'. Expected [2], got [1,2]. ",
    ),
    Case(
        "wrong shape, batching",
        fix(shape0=(1, 3), raw=(bytes(12), ONE)),
        INVALID,
        f"{NO_ID}unexpected shape for input 'IN0' for model 'fix'. Expected [-1,2], got [1,3]. {NOTE}",
    ),
    Case(
        "negative dimension",
        nob(shape=(-1,)),
        INVALID,
        f"{NO_ID}All input dimensions should be specified for input 'IN0' for model 'nob', got [-1]",
    ),
    Case(
        "too few bytes",
        nob(raw=(PAIR[:4],)),
        INVALID,
        f"{NO_ID}input byte size mismatch for input 'IN0' for model 'nob'. Expected 8, got 4",
    ),
    Case(
        "too many bytes",
        nob(raw=(bytes(1000),)),
        INVALID,
        f"{NO_ID}input byte size mismatch for input 'IN0' for model 'nob'. Expected 8, got 1000",
    ),
    Case(
        "too many typed elements",
        nob(raw=(), contents={"fp32_contents": [1, 2, 3]}),
        INVALID,
        f"{NO_ID}input byte size mismatch for input 'IN0' for model 'nob'. Expected 8, got 12",
    ),
    Case(
        "empty contents",
        nob(raw=(), contents={}),
        INVALID,
        f"{NO_ID}input byte size mismatch for input 'IN0' for model 'nob'. Expected 8, got 0",
    ),
    Case(
        "no data",
        nob(raw=()),
        INVALID,
        "unable to find data for input tensor 'IN0' for model 'nob' in request.",
    ),
    Case(
        "data for the first input only",
        fix(raw=(PAIR,)),
        INVALID,
        "unable to find data for input tensor 'IN1' for model 'fix' in request.",
    ),
    Case(
        "two data sources",
        nob(contents={"fp32_contents": [1, 2]}),
        INVALID,
        "contents field must not be specified when using raw_input_contents for 'IN0' for model 'nob'",
    ),
    *(
        Case(
            f"{field} for FP32",
            nob(raw=(), contents={field: [value]}),
            INVALID,
            f"{TYPED} of type '{datatype}', expected datatype 'FP32'",
        )
        for field, value, datatype in [
            ("bool_contents", True, "BOOL"),
            ("int_contents", 1, "INT32"),
            ("int64_contents", 1, "INT64"),
            ("uint_contents", 1, "UINT32"),
            ("uint64_contents", 1, "UINT64"),
            ("fp64_contents", 1, "FP64"),
            ("bytes_contents", b"1", "BYTES"),
        ]
    ),
    Case(
        "two typed fields",
        nob(raw=(), contents={"fp32_contents": [1], "bytes_contents": [b"1"]}),
        INVALID,
        f"{TYPED}, binary data was already supplied.",
    ),
    Case(
        "typed contents for FP16",
        infer("half", ("IN0", "FP16", (1,)), contents={"fp32_contents": [1]}),
        INVALID,
        "unexpected explicit tensor data for input tensor 'IN0' for model 'half' of type 'FP32', expected "
        "datatype 'FP16'",
    ),
    Case(
        "missing input",
        infer("fix", ("IN0", "FP32", (1, 2)), raw=(PAIR,)),
        INVALID,
        f"{NO_ID}expected 2 inputs but got 1 inputs for model 'fix'. Got input(s) ['IN0'], but missing "
        f"required input(s) ['IN1']. Please provide all required input(s).",
    ),
    Case(
        "no inputs",
        infer("nob"),
        INVALID,
        f"{NO_ID}expected 1 inputs but got 0 inputs for model 'nob'. Got input(s) [], but missing required "
        f"input(s) ['IN0']. Please provide all required input(s).",
    ),
    Case("input of another name", nob("ZZ"), INVALID, "unexpected inference input 'ZZ' for model 'nob'"),
    Case(
        "duplicate input",
        infer("fix", ("IN0", "FP32", (1, 2)), ("IN0", "FP32", (1, 2)), raw=(PAIR, PAIR)),
        INVALID,
        f"{NO_ID}input 'IN0' already exists in request",
    ),
    Case(
        "batch sizes differ",
        fix(shape1=(2, 1), raw=(PAIR, ONE * 2)),
        INVALID,
        ANY_ID + r"input 'IN[01]' batch size does not match other inputs for 'fix'",
    ),
    Case(
        "batch too large",
        fix((5, 2), (5, 1), (PAIR * 5, ONE * 5)),
        INVALID,
        f"{NO_ID}inference request batch-size must be <= 4 for 'fix'",
    ),
    Case(
        "no shape on a batching model",
        fix((), (), (PAIR, ONE)),
        INVALID,
        ANY_ID + r"input 'IN[01]' has no shape but model requires batch dimension for 'fix'",
    ),
    Case("unknown output", nob(outputs=["ZZ"]), INVALID, "unexpected inference output 'ZZ' for model 'nob'"),
    Case(
        "string longer than the buffer",
        strings("strm", (1,), struct.pack("<I", 5) + b"ab"),
        INVALID,
        "incomplete string data for inference input 'IN0', expecting string of length 5 but only 2 bytes "
        "available",
    ),
    Case(
        "short string length",
        strings("strm", (1,), b"ab"),
        INVALID,
        f"{NO_ID}incomplete string length indicator for inference input 'IN0' for model 'strm', expecting "
        f"4 bytes but only 2 bytes available. Please make sure the string length indicator is in one buffer.",
    ),
    Case(
        "too many strings",
        strings("strm", (1,), word(b"a", b"b")),
        INVALID,
        f"{NO_ID}unexpected number of string elements 2 for inference input 'IN0' for model 'strm', "
        f"expecting 1",
    ),
    Case(
        "too few strings",
        strings("strv", (1, 2), word(b"a")),
        INVALID,
        f"{NO_ID}expected 2 string elements for inference input 'IN0' for model 'strv', got 1",
    ),
    Case(
        "too few typed strings",
        infer("strv", ("IN0", "BYTES", (1, 2)), contents={"bytes_contents": [b"a"]}),
        INVALID,
        f"{NO_ID}expected 2 string elements for inference input 'IN0' for model 'strv', got 1",
    ),
    Case(
        "timeout of a wrong type",
        parameter("timeout", bool_param=True),
        INVALID,
        "invalid value type for 'timeout' parameter, expected int64_param.",
    ),
    Case(
        "sequence_id of a wrong type",
        parameter("sequence_id", uint64_param=1),
        INVALID,
        "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.",
    ),
    Case(
        "sequence_start of a wrong type",
        parameter("sequence_start", int64_param=1),
        INVALID,
        "invalid value type for 'sequence_start' parameter, expected bool_param.",
    ),
    Case(
        "sequence_end of a wrong type",
        parameter("sequence_end", string_param="yes"),
        INVALID,
        "invalid value type for 'sequence_end' parameter, expected bool_param.",
    ),
    Case(
        "priority of a wrong type",
        parameter("priority", string_param="1"),
        INVALID,
        "invalid value type for 'priority' parameter, expected int64_param or uint64_param.",
    ),
    Case(
        "negative priority",
        parameter("priority", int64_param=-1),
        INVALID,
        "invalid value for 'priority', expected value >= 0.",
    ),
    Case(
        "triton_enable_empty_final_response of a wrong type",
        parameter("triton_enable_empty_final_response", int64_param=1),
        INVALID,
        "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param.",
    ),
    Case(
        "reserved parameter",
        parameter("triton_mine", bool_param=True),
        INVALID,
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys "
        "starting with 'triton_' are allowed: triton_enable_empty_final_response",
    ),
    *(
        Case(
            f"custom parameter of type {value}",
            parameter("mine", **value),
            INVALID,
            "invalid value type for 'mine' parameter, expected int64_param, bool_param, or string_param.",
        )
        for value in ({"uint64_param": 1}, {})
    ),
    Case(
        "parameters are looked at before the data",
        nob(raw=(), parameters={"timeout": {"bool_param": True}}),
        INVALID,
        "invalid value type for 'timeout' parameter, expected int64_param.",
    ),
    Case(
        "Python exception",
        broken(0),
        INTERNAL,
        r"^Failed to process the request\(s\) for model '[\w.]+', message: ValueError: boom\n\nAt:\n"
        r"  .*model\.py\(\d+\): execute\n",
    ),
    Case(
        "wrong number of responses",
        broken(1),
        INTERNAL,
        r"^Failed to process the request\(s\) for model '[\w.]+', message: .*Number of InferenceResponse "
        r"objects do not match the number of InferenceRequest objects\. InferenceRequest\(s\) size is:1, "
        r"and InferenceResponse\(s\) size is:0\n.*",
    ),
    Case("error of the model", broken(3), NOT_FOUND, "not here"),
]
