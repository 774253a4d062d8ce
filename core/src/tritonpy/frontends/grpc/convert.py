"""From `ModelInferRequest` to `InferRequest`.

What is refused here is wrong by itself, whatever the model; texts and the order of the checks are Triton's.
Whether names, datatypes, shapes and sizes fit the model is checked behind the data plane.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError

from tritonpy.buffers import Buffer
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import Internal, InvalidArg, TritonError
from tritonpy.frontends.grpc.wire import RAW_INPUT_CONTENTS, has_more_fields, split_field
from tritonpy.frontends.outputs import UNTREATED, Classified, Placed, References, Treatments
from tritonpy.protos import InferParameter, InferTensorContents, ModelInferRequest
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest, checked_correlation_id
from tritonpy.response import ParameterValue
from tritonpy.tensor import Tensor

_SPLIT_FROM = 128 * 1024  # below, one copy more is cheaper than looking for the tensors in Python
_UINT64 = 2**64 - 1  # where Triton puts a negative number into an unsigned one
_MOST_FIELDS = 65_536  # as many as a large JSON document may have
_STRING_LENGTH = struct.Struct("<I")

RawContents = Sequence[bytes | memoryview]
Parameters = Mapping[str, InferParameter]


@dataclass(frozen=True, slots=True)
class _ContentsField:
    """One of the typed fields of `InferTensorContents`.

    Attributes:
        datatype: what Triton calls its elements in errors.
        array: the type of its elements; None for `bytes`.
        holds: the datatypes whose tensors may use it; smaller integers keep their low bits.
    """

    datatype: str
    array: str | None
    holds: tuple[str, ...]


_CONTENTS_FIELDS = {
    "bool_contents": _ContentsField("BOOL", "?", ("BOOL",)),
    "int_contents": _ContentsField("INT32", "<i4", ("INT32", "INT8", "INT16")),
    "int64_contents": _ContentsField("INT64", "<i8", ("INT64",)),
    "uint_contents": _ContentsField("UINT32", "<u4", ("UINT32", "UINT8", "UINT16")),
    "uint64_contents": _ContentsField("UINT64", "<u8", ("UINT64",)),
    "fp32_contents": _ContentsField("FP32", "<f4", ("FP32",)),
    "fp64_contents": _ContentsField("FP64", "<f8", ("FP64",)),
    "bytes_contents": _ContentsField("BYTES", None, ("BYTES",)),
}

_REGION_PARAMETERS = (
    ("shared_memory_region", "string_param"),
    ("shared_memory_offset", "int64_param"),
    ("shared_memory_byte_size", "int64_param"),
)


def parse_infer_request(body: bytes | memoryview) -> tuple[ModelInferRequest, RawContents]:
    """Read a serialized request; a large one's tensors stay where they were received.

    Returns:
        The message, and its `raw_input_contents`, which a large message itself does not hold.

    Raises:
        Internal: the bytes are not a `ModelInferRequest`.
        InvalidArg: it has so many fields that parsing it would take many times its size.
    """
    try:
        if len(body) >= _SPLIT_FROM:
            rest, values = split_field(body, RAW_INPUT_CONTENTS) or (body, None)
            if len(rest) >= _SPLIT_FROM and has_more_fields(rest, _MOST_FIELDS):
                raise InvalidArg(
                    f"a request of {len(body)} bytes names more than {_MOST_FIELDS} inputs, outputs, "
                    f"dimensions and parameters, the most that one of over {_SPLIT_FROM} bytes may"
                )
            if values is not None:
                return ModelInferRequest.FromString(bytes(rest)), values
        message = ModelInferRequest.FromString(bytes(body))
    except DecodeError:
        raise Internal("Unable to parse request") from None
    return message, message.raw_input_contents


def to_infer_request(
    message: ModelInferRequest, raw_contents: RawContents, references: References
) -> tuple[InferRequest, bool, Treatments]:
    """Make the request that the data plane takes; its sink and arrival time are left to the caller.

    Args:
        message: what the client sent.
        raw_contents: its tensors.
        references: what it may name beside its own bytes.

    Returns:
        The request, whether the client wants a response for a final flag that comes alone, and what is wanted
        with outputs beside their bytes.

    Raises:
        TritonError: the message contradicts itself or uses what is not supported.
    """
    request = InferRequest(message.model_name, {}, model_version=message.model_version, id=message.id)
    wants_empty_final = False
    if message.parameters:
        wants_empty_final = _apply_parameters(request, message.parameters)
    try:
        _add_inputs(request, message.inputs, raw_contents, references)
    except TritonError:
        _refuse_twins(request, message.inputs)  # which Triton looks for before it looks at any data
        raise
    treatments = UNTREATED
    if message.outputs:
        treatments = _add_outputs(request, message.outputs, references)
    return request, wants_empty_final, treatments


def _refuse_twins(request: InferRequest, inputs: Iterable[ModelInferRequest.InferInputTensor]) -> None:
    seen: set[str] = set()
    for tensor in inputs:
        if tensor.name in seen:
            raise InvalidArg(f"{request.label}input '{tensor.name}' already exists in request")
        seen.add(tensor.name)


def _add_inputs(
    request: InferRequest,
    inputs: Iterable[ModelInferRequest.InferInputTensor],
    raw_contents: RawContents,
    references: References,
) -> None:
    tensors = request.inputs
    raw_count = len(raw_contents)
    raw_index = 0
    for tensor in inputs:
        name = tensor.name
        if name in tensors:
            raise InvalidArg(f"{request.label}input '{name}' already exists in request")
        has_contents = tensor.HasField("contents")
        region = _region(name, tensor.parameters) if tensor.parameters else None
        datatype = tensor.datatype
        if datatype not in DATATYPES:
            datatype = "<invalid>"  # the check against the model names what it expects
        buffer: Buffer
        if region is not None:
            if has_contents:
                raise InvalidArg(
                    f"unexpected 'content' provided when using shared memory for input tensor '{name}' "
                    f"for model '{request.model_name}'"
                )
            buffer = references.regions.slice(*region)
        elif has_contents:
            if raw_count:
                raise InvalidArg(
                    f"contents field must not be specified when using raw_input_contents for '{name}' "
                    f"for model '{request.model_name}'"
                )
            buffer = _typed_contents(name, datatype, tensor.contents, request.model_name)
        elif raw_index < raw_count:
            buffer = raw_contents[raw_index]
            raw_index += 1
        else:
            raise InvalidArg(
                f"unable to find data for input tensor '{name}' for model '{request.model_name}' in request."
            )
        tensors[name] = Tensor(name, datatype, tensor.shape, buffer)


def _typed_contents(
    name: str, datatype: str, contents: InferTensorContents, model_name: str
) -> bytes | memoryview:
    """The wire form of the one typed field that is set; no field at all is an empty tensor."""
    buffer: bytes | memoryview | None = None
    for descriptor, values in contents.ListFields():
        if buffer is not None:
            raise InvalidArg(
                f"unexpected explicit tensor data for input tensor '{name}' for model '{model_name}', "
                f"binary data was already supplied."
            )
        field = _CONTENTS_FIELDS[descriptor.name]
        if datatype not in field.holds:
            raise InvalidArg(
                f"unexpected explicit tensor data for input tensor '{name}' for model '{model_name}' "
                f"of type '{field.datatype}', expected datatype '{datatype}'"
            )
        if field.array is None:
            parts = [part for value in values for part in (_STRING_LENGTH.pack(len(value)), value)]
            buffer = b"".join(parts)
        else:
            elements = np.fromiter(values, field.array, len(values))
            buffer = elements.astype(DATATYPES[datatype].numpy, copy=False).view(np.uint8).data
    return b"" if buffer is None else buffer


def _apply_parameters(request: InferRequest, parameters: Mapping[str, InferParameter]) -> bool:
    """Put parameters where they belong; returns whether a lone final flag is wanted as a response."""
    custom: dict[str, ParameterValue] = {}
    wants_empty_final = False
    for key, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if key == "sequence_id":
            if kind == "string_param":
                request.correlation_id = checked_correlation_id(parameter.string_param)
            elif kind == "int64_param":
                request.correlation_id = parameter.int64_param & _UINT64
            else:
                raise _wrong_type(key, "int64_param or string_param.")
        elif key == "sequence_start":
            request.flags |= SEQUENCE_START if _bool(key, kind, parameter) else 0
        elif key == "sequence_end":
            request.flags |= SEQUENCE_END if _bool(key, kind, parameter) else 0
        elif key == "priority":
            if kind == "uint64_param":
                request.priority = parameter.uint64_param
            elif kind == "int64_param":
                if parameter.int64_param < 0:
                    raise InvalidArg("invalid value for 'priority', expected value >= 0.")
                request.priority = parameter.int64_param
            else:
                raise _wrong_type(key, "int64_param or uint64_param.")
        elif key == "timeout":
            if kind != "int64_param":
                raise _wrong_type(key, "int64_param.")
            request.timeout_us = parameter.int64_param & _UINT64
        elif key == "triton_enable_empty_final_response":
            wants_empty_final = _bool(key, kind, parameter)
        elif key.startswith("triton_"):
            raise InvalidArg(
                "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
                "keys starting with 'triton_' are allowed: triton_enable_empty_final_response"
            )
        elif kind is None or kind == "uint64_param":
            raise _wrong_type(key, "int64_param, bool_param, or string_param.")
        else:
            custom[key] = getattr(parameter, kind)
    request.parameters = custom
    return wants_empty_final


def _bool(key: str, kind: str | None, parameter: InferParameter) -> bool:
    if kind != "bool_param":
        raise _wrong_type(key, "bool_param.")
    return parameter.bool_param


def _wrong_type(key: str, expected: str) -> InvalidArg:
    return InvalidArg(f"invalid value type for '{key}' parameter, expected {expected}")


def _add_outputs(
    request: InferRequest,
    outputs: Iterable[ModelInferRequest.InferRequestedOutputTensor],
    references: References,
) -> Treatments:
    """Note which outputs are wanted; returns what is wanted with them beside their bytes."""
    names: dict[str, None] = {}
    treatments: dict[str, Placed | Classified] = {}
    for output in outputs:
        name = output.name
        if name in names:
            raise InvalidArg(f"{request.label}output '{name}' already exists in request")
        names[name] = None
        if output.parameters:
            treatment = _treatment(name, output.parameters, references)
            if treatment is not None:
                treatments[name] = treatment
    request.requested_outputs = tuple(names)
    return treatments


def _treatment(name: str, parameters: Parameters, references: References) -> Placed | Classified | None:
    region = _region(name, parameters)
    count = 0
    if "classification" in parameters:
        classification = parameters["classification"]
        if classification.WhichOneof("parameter_choice") != "int64_param":
            raise _wrong_type("classification", "int64_param")
        count = classification.int64_param
        if count <= 0:
            raise InvalidArg("invalid value for 'classification' parameter, expected >= 0")
    if region is not None:
        if count:
            raise InvalidArg("output can't set both 'shared_memory_region' and 'classification'")
        return references.placed(*region)
    if count:
        return Classified(count)
    return None


def _region(name: str, parameters: Parameters) -> tuple[str, int, int] | None:
    """The part of a region that a tensor's parameters name: the region, the size and the offset."""
    for key, expected in _REGION_PARAMETERS:
        if key not in parameters:
            continue
        if "shared_memory_region" not in parameters:
            raise InvalidArg(
                f"'{key}' can not be specified without 'shared_memory_region' parameter for tensor '{name}'"
            )
        if parameters[key].WhichOneof("parameter_choice") != expected:
            raise InvalidArg(
                f"invalid value type for '{key}' parameter for tensor '{name}', expected {expected}."
            )
    if "shared_memory_region" not in parameters:
        return None
    if "shared_memory_byte_size" not in parameters:
        raise InvalidArg(
            f"'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for "
            f"tensor '{name}'"
        )
    offset = parameters["shared_memory_offset"].int64_param if "shared_memory_offset" in parameters else 0
    return (
        parameters["shared_memory_region"].string_param,
        parameters["shared_memory_byte_size"].int64_param,
        offset,
    )
