"""The body of an inference request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from tritonpy.datatypes import DATATYPES
from tritonpy.errors import Internal, InvalidArg
from tritonpy.frontends.http.codec.json_body import (
    ELSEWHERE,
    Json,
    array,
    boolean,
    member,
    parse_quickly,
    string,
    unsigned,
)
from tritonpy.frontends.http.codec.json_data import tensor_from_data
from tritonpy.frontends.http.codec.large_json import ReadData
from tritonpy.frontends.http.parameters import apply_parameters
from tritonpy.frontends.outputs import UNTREATED, Classified, Placed, References, Treatments
from tritonpy.model.signature import SURELY_COUNTED, check_countable
from tritonpy.request import InferRequest
from tritonpy.shared_memory.region import RegionSlice
from tritonpy.tensor import Tensor

Body = bytes | memoryview


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The form in which the client wants its outputs.

    Attributes:
        binary_by_default: for outputs that `binary` does not name.
        binary: per named output, whether its data travels behind the JSON.
        treatments: outputs with which something else is wanted.
    """

    binary_by_default: bool
    binary: Mapping[str, bool]
    treatments: Treatments = field(default_factory=lambda: UNTREATED)


_MOST_UNSIGNED = 2**64 - 1
_ALL_JSON = OutputForm(False, {})
ALL_BINARY = OutputForm(True, {})


Decoded: TypeAlias = tuple[InferRequest, OutputForm]
"""A request, and how its client wants the answer."""


def parse_infer_request(
    body: Body, header_length: int | None, model_name: str, model_version: str, references: References
) -> Decoded | None:
    """Read a request whose JSON is the first `header_length` bytes, or all of the body when that is None.

    Args:
        body: JSON, and the binary tensors behind it.
        header_length: of the JSON.
        model_name: from the path.
        model_version: from the path, "" for none.
        references: what the request may name beside its own bytes.

    Returns:
        The request, or None if its JSON would keep the loop busy and has to be read elsewhere.

    Raises:
        TritonError: with Triton's code and text for what is wrong with the body by itself; whether it
            fits the model is checked later.
    """
    text, tail = split_body(body, header_length)
    document = parse_quickly(text)
    if document is ELSEWHERE:
        return None
    return read_document(document, tail, model_name, model_version, references)


def beyond(limit: int) -> str:
    """The end of the error for what is larger than `--http-max-input-size`."""
    return (
        f"exceeds the maximum allowed value of {limit} bytes. "
        "Use --http-max-input-size to increase the limit."
    )


def split_body(body: Body, header_length: int | None) -> tuple[Body, memoryview | None]:
    """The JSON of a body, and the tensors behind it; None where nothing is.

    Raises:
        InvalidArg: the body is shorter than its header.
    """
    size = len(body)
    if header_length is None or header_length == size:
        return body, None
    if header_length > size:
        raise InvalidArg(f"inference header size should be in range (0, {size}), got: {header_length}")
    view = memoryview(body)
    return view[:header_length], view[header_length:]


def read_document(
    document: Json, tail: memoryview | None, model_name: str, model_version: str, references: References
) -> Decoded:
    """Read a request whose JSON has been parsed; see `parse_infer_request`.

    Args:
        document: the JSON; the data of its inputs may be `ReadData`.
        tail: the binary tensors behind it.
        model_name: from the path.
        model_version: from the path, "" for none.
        references: what the request may name beside its own bytes.
    """
    request = InferRequest(model_name, {}, model_version=model_version)
    binary_by_default = False
    if isinstance(document, dict):
        if "id" in document:
            request.id = string(document["id"], "id")
        if "parameters" in document:
            binary_by_default = apply_parameters(request, document["parameters"])
    items = array(member(document, "inputs"), "inputs")
    request.inputs, used = _parse_inputs(items, tail, request, references)
    if tail is not None and used != len(tail):
        raise InvalidArg(f"unexpected additional input data for model '{model_name}'")
    outputs = array(document["outputs"], "outputs") if "outputs" in document else None
    if not outputs:
        return request, ALL_BINARY if binary_by_default else _ALL_JSON
    names, form = _parse_outputs(outputs, request, references)
    request.requested_outputs = names
    return request, form


@dataclass(frozen=True, slots=True)
class _Template:
    """A JSON header that was understood before: binary inputs, and nothing that differs between requests.

    Attributes:
        inputs: name, datatype, shape, and where the bytes begin and end behind the header.
        byte_size: of all inputs together.
    """

    inputs: tuple[tuple[str, str, tuple[int, ...], int, int], ...]
    byte_size: int
    requested_outputs: tuple[str, ...] | None
    form: OutputForm


class RequestDecoder:
    """Reads requests; a client that sends the same JSON header again is understood by the header's bytes."""

    MOST_REMEMBERED = 512
    LARGEST_HEADER = 2048

    def __init__(self, references: References) -> None:
        self._references = references
        self._templates: dict[bytes, _Template] = {}

    def decode(
        self, body: Body, header_length: int | None, model_name: str, model_version: str
    ) -> Decoded | None:
        """Read the body of a request, as `parse_infer_request` does."""
        if header_length is None or header_length > self.LARGEST_HEADER:
            return parse_infer_request(body, header_length, model_name, model_version, self._references)
        header = bytes(body[:header_length])
        template = self._templates.get(header)
        if template is not None and len(body) - header_length == template.byte_size:
            tail = memoryview(body)[header_length:]
            inputs = {}
            for name, datatype, shape, start, end in template.inputs:
                inputs[name] = Tensor(name, datatype, shape, tail[start:end])
            requested = template.requested_outputs
            request = InferRequest(
                model_name, inputs, model_version=model_version, requested_outputs=requested
            )
            return request, template.form
        decoded = parse_infer_request(body, header_length, model_name, model_version, self._references)
        if decoded is not None:
            self._remember(header, len(body) - header_length, *decoded)
        return decoded

    def read(self, document: Json, tail: memoryview | None, model_name: str, model_version: str) -> Decoded:
        """Read a JSON document, as `read_document` does."""
        return read_document(document, tail, model_name, model_version, self._references)

    def _remember(self, header: bytes, tail_size: int, request: InferRequest, form: OutputForm) -> None:
        is_plain = not (
            request.id
            or request.parameters
            or request.flags
            or request.correlation_id
            or request.priority
            or request.timeout_us
            or form.treatments  # regions come and go
        )
        inputs = []
        offset = 0
        for tensor in request.inputs.values():
            if isinstance(tensor.buffer, RegionSlice):
                return
            end = offset + tensor.byte_size
            inputs.append((tensor.name, tensor.datatype, tensor.shape, offset, end))
            offset = end
        if not is_plain or offset != tail_size:  # then some data stands in the JSON
            return
        if len(self._templates) >= self.MOST_REMEMBERED:
            self._templates.clear()
        self._templates[header] = _Template(tuple(inputs), offset, request.requested_outputs, form)


def _parse_inputs(
    inputs: list[Json], tail: memoryview | None, request: InferRequest, references: References
) -> tuple[dict[str, Tensor], int]:
    tensors: dict[str, Tensor] = {}
    offset = 0
    for item in inputs:
        parameters = _optional_object(item)
        sources = ["'data'"] if isinstance(item, dict) and "data" in item else []
        sources += [f"'{key}'" for key in ("binary_data_size", "shared_memory_region") if key in parameters]
        if len(sources) != 1:
            found = "set " + " ".join(sources) if sources else "no field is set"
            raise InvalidArg(
                "Input must set only one of the following fields: 'data', 'binary_data_size' in "
                f"'parameters', 'shared_memory_region' in 'parameters'. But {found}"
            )
        if parameters and "shared_memory_region" not in parameters:
            _extent(parameters)  # has to be in order also where it means nothing
        name = string(member(item, "name"), "name")
        datatype = string(member(item, "datatype"), "datatype")
        shape = tuple([unsigned(dim, "shape") for dim in array(member(item, "shape"), "shape")])
        count = prod(shape)
        if count > SURELY_COUNTED:
            check_countable(request.label, name, request.model_name, datatype, shape)
        if name in tensors:
            raise InvalidArg(f"{request.label}input '{name}' already exists in request")
        if datatype not in DATATYPES:
            datatype = _unknown_datatype(name, shape, item)
        if "binary_data_size" in parameters:
            byte_size = unsigned(parameters["binary_data_size"], "binary_data_size")
            available = len(tail) - offset if tail is not None else 0
            if byte_size > available:
                raise InvalidArg(
                    f"unexpected size for input '{name}', expecting {byte_size - available} additional "
                    f"bytes for model '{request.model_name}'"
                )
            data: Body = tail[offset : offset + byte_size] if tail is not None else b""
            offset += byte_size
            tensors[name] = Tensor(name, datatype, shape, data)
        elif "data" in item:
            given = item["data"]
            _check_json_size(name, datatype, count, references.most_json_bytes)
            if not shape or datatype not in DATATYPES:
                tensors[name] = Tensor(name, datatype, shape, b"")  # fits no model, with any data
            elif type(given) is ReadData:
                tensors[name] = given.tensor()
            else:
                tensors[name] = tensor_from_data(name, datatype, shape, given)
        else:
            part = references.regions.slice(*_region(parameters))
            tensors[name] = Tensor(name, datatype, shape, part)
    return tensors, offset


def _unknown_datatype(name: str, shape: tuple[int, ...], item: Json) -> str:
    """A stand-in for an unknown datatype, until the check against the model names the expected one.

    Raises:
        InvalidArg: the input has elements in JSON, which cannot be read without a datatype.
    """
    if "data" in item and shape and 0 not in shape:
        given = item["data"]
        if type(given) is not ReadData:
            array(given, "data")
        elif given.outcome is not None:
            given.tensor()  # raises: nothing else can have become of it
        raise InvalidArg(f"invalid datatype for input {name}")
    return "<invalid>"


def _check_json_size(name: str, datatype: str, count: int, most: int) -> None:
    """Refuse a tensor of JSON that is declared to become larger than JSON may be, before it does.

    Raises:
        InvalidArg: it has more bytes than `--http-max-input-size`.
    """
    known = DATATYPES.get(datatype)
    if known is not None and count * known.byte_size > most:
        raise InvalidArg(
            f"request JSON size of {count * known.byte_size} bytes, as input '{name}' is declared, "
            f"{beyond(most)}"
        )


def _optional_object(item: Json) -> Json:
    """The parameters of an input or output; what is no object counts as none, as in Triton."""
    parameters = item.get("parameters") if isinstance(item, dict) else None
    return parameters if isinstance(parameters, dict) else {}


def _parse_outputs(
    outputs: list[Json], request: InferRequest, references: References
) -> tuple[tuple[str, ...], OutputForm]:
    binary: dict[str, bool] = {}
    treatments: dict[str, Placed | Classified] = {}
    for item in outputs:
        name = string(member(item, "name"), "name")
        parameters = _optional_object(item)
        treatment = _treatment(parameters, references) if parameters else None
        is_binary = False  # `binary_data_output` is for outputs that are not listed
        if "binary_data" in parameters:
            is_binary = boolean(parameters["binary_data"], "binary_data")
        if name in binary:
            raise InvalidArg(f"{request.label}output '{name}' already exists in request")
        binary[name] = is_binary
        if treatment is not None:
            treatments[name] = treatment
    return tuple(binary), OutputForm(False, binary, treatments)


def _treatment(parameters: Json, references: References) -> Placed | Classified | None:
    """The treatment that an output's parameters ask for; the order of the checks is Triton's."""
    if "shared_memory_region" in parameters:
        if "classification" in parameters:
            raise InvalidArg("Output can't set both 'shared_memory_region' and 'classification'")
        is_binary = parameters.get("binary_data", False)
        if not isinstance(is_binary, bool):
            raise Internal("Unable to set 'binary_data': attempt to access JSON non-boolean as boolean")
        if is_binary:
            raise InvalidArg("Output can't set both 'shared_memory_region' and 'binary_data'")
        return references.placed(*_region(parameters))
    _extent(parameters)  # has to be in order also where it means nothing
    if "classification" not in parameters:
        return None
    count = parameters["classification"]
    if type(count) is not int or not 0 <= count <= _MOST_UNSIGNED:
        raise Internal(
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer"
        )
    if count == 0:  # as good as not asked for
        return None
    return Classified(count)


def _region(parameters: Json) -> tuple[str, int, int]:
    """The region, size and offset from a tensor's parameters."""
    return string(parameters["shared_memory_region"], "shared_memory_region"), *_extent(parameters)


def _extent(parameters: Json) -> tuple[int, int]:
    """The size and offset of a tensor in a region."""
    offset = unsigned(parameters.get("shared_memory_offset", 0), "shared_memory_offset")
    byte_size = unsigned(parameters.get("shared_memory_byte_size", 0), "shared_memory_byte_size")
    return byte_size, offset
