"""Requests over gRPC that name regions, and their answers; the regions are those of `http_cases`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from . import http_cases as cases


def parameter(value: Any) -> dict[str, Any]:
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param"}
    return {kinds[type(value)]: value}


@dataclass(frozen=True)
class Case:
    """One request over gRPC.

    Attributes:
        name: of the test.
        input, output: the parameters of the tensor.
        raw: the contents of the input.
        typed: typed contents of the input.
        status: of the answer.
        text: of the error, or the `raw_output_contents`.
        written: what `out` begins with afterwards.
    """

    name: str
    input: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    typed: tuple[float, ...] = ()
    status: grpc.StatusCode = grpc.StatusCode.OK
    text: Any = b""
    written: bytes = bytes(64)

    @property
    def request(self) -> service_pb2.ModelInferRequest:
        message = service_pb2.ModelInferRequest(model_name="numbers", id="7")
        for name, parameters, tensors in (
            ("INPUT0", self.input, message.inputs),
            ("OUTPUT0", self.output, message.outputs),
        ):
            tensor = tensors.add(name=name)
            for key, value in parameters.items():
                tensor.parameters[key].CopyFrom(service_pb2.InferParameter(**parameter(value)))
        message.inputs[0].datatype = "FP32"
        message.inputs[0].shape.append(4)
        if self.raw is not None:
            message.raw_input_contents.append(self.raw)
        if self.typed:
            message.inputs[0].contents.fp32_contents.extend(self.typed)
        return message


INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
OF = {"INPUT0": "in", "OUTPUT0": "out"}
ONE_TO_FOUR = cases.ONE_TO_FOUR
ZERO_TO_THREE = cases.FLOATS[:16]


def of_either(
    name: str, parameters: dict[str, Any], text: str, status: grpc.StatusCode = INVALID
) -> Iterator[Case]:
    """The same for an input and for an output; `{}` in the text is the tensor, `{region}` the region."""
    for tensor, region in OF.items():
        known = {key: region if value == "in" else value for key, value in parameters.items()}
        at = {"input": known} if tensor == "INPUT0" else {"output": known, "raw": ONE_TO_FOUR}
        yield Case(f"{name} ({tensor})", **at, status=status, text=text.format(tensor, region=region))


REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"
IN, OUT = {REGION: "in", SIZE: 16}, {REGION: "out", SIZE: 16}
CASES = [
    Case("an input", IN, text=ZERO_TO_THREE),
    Case("an input behind an offset", {**IN, OFFSET: 4}, text=cases.FLOATS[4:20]),
    Case("an input and raw contents that nobody needs", IN, raw=ONE_TO_FOUR, text=ZERO_TO_THREE),
    Case("an output", output=OUT, raw=ONE_TO_FOUR, written=ONE_TO_FOUR),
    Case(
        "an output and binary_data", output={**OUT, "binary_data": True}, raw=ONE_TO_FOUR, written=ONE_TO_FOUR
    ),
    Case("input and output", IN, {**OUT, OFFSET: 32}, written=bytes(32) + ZERO_TO_THREE),
    *of_either(
        "no size",
        {REGION: "in"},
        f"'{SIZE}' must be specified along with '{REGION}' parameter for tensor '{{}}'",
    ),
    *of_either(
        "a size that is text",
        {REGION: "in", SIZE: "1"},
        f"invalid value type for '{SIZE}' parameter for tensor '{{}}', expected int64_param.",
    ),
    *of_either(
        "a size that is true",
        {REGION: "in", SIZE: True},
        f"invalid value type for '{SIZE}' parameter for tensor '{{}}', expected int64_param.",
    ),
    *of_either(
        "an offset that is text",
        {**IN, OFFSET: "1"},
        f"invalid value type for '{OFFSET}' parameter for tensor '{{}}', expected int64_param.",
    ),
    *of_either(
        "a region that is a number",
        {REGION: 1, SIZE: 16},
        f"invalid value type for '{REGION}' parameter for tensor '{{}}', expected string_param.",
    ),
    *of_either(
        "a size without a region",
        {SIZE: 16},
        f"'{SIZE}' can not be specified without '{REGION}' parameter for tensor '{{}}'",
    ),
    *of_either(
        "an offset without a region",
        {OFFSET: 16},
        f"'{OFFSET}' can not be specified without '{REGION}' parameter for tensor '{{}}'",
    ),
    *of_either("a negative offset", {**IN, OFFSET: -1}, cases.BAD_OFFSET.format("{region}")),
    *of_either("an offset behind the end", {**IN, OFFSET: 64}, cases.BAD_OFFSET.format("{region}")),
    *of_either("over the end", {**IN, OFFSET: 52}, cases.BAD_SIZE.format("{region}")),
    *of_either("a negative size", {REGION: "in", SIZE: -1}, cases.BAD_SIZE.format("{region}")),
    *of_either(
        "no such region", {REGION: "no", SIZE: 16}, "Unable to find shared memory region: 'no'", NOT_FOUND
    ),
    Case(
        "a size that is not the shape's",
        {REGION: "in", SIZE: 12},
        status=INVALID,
        text="[request id: 7] input byte size mismatch for input 'INPUT0' for model 'numbers'. Expected 16, "
        "got 12",
    ),
    Case(
        "a region and typed contents",
        IN,
        typed=(1, 2, 3, 4),
        status=INVALID,
        text="unexpected 'content' provided when using shared memory for input tensor 'INPUT0' for model "
        "'numbers'",
    ),
    Case(
        "an output that does not fit",
        output={REGION: "out", SIZE: 12},
        raw=ONE_TO_FOUR,
        status=grpc.StatusCode.INTERNAL,
        text="shared memory size specified with the request for output 'OUTPUT0' (12 bytes) should be at "
        "least 16 bytes to hold the results",
    ),
    Case(
        "a region and a classification",
        output={**OUT, "classification": 2},
        raw=ONE_TO_FOUR,
        status=INVALID,
        text="output can't set both 'shared_memory_region' and 'classification'",
    ),
]
