"""Requests as shared objects see them: each a block of memory, filled once when the request is queued.

What is the same for all requests with the same inputs (names, datatypes, shapes) is written once, in a
template. A block is a copy of it, to which the places of the bytes are added. No byte of a tensor is copied
or looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import cffi
from tritonpy.plugin import (
    DATATYPES,
    BufferLocation,
    InferRequest,
    MemoryType,
    Model,
    ParameterValue,
    Tensor,
)

from tritonpy_abi.shim import CData

Block = list[CData]
"""The `TRITONBACKEND_Request *`, and what has to live as long because it points there."""

_Kind = tuple[str | tuple[int, ...], ...]
"""Name, datatype and shape of the first input, then of the next."""

_MOST_KEPT = 1024
"""Templates, and sets of outputs; clients may ask with any shapes, one after the other."""

_STRING, _INT, _BOOL, _DOUBLE = 0, 1, 2, 3
"""Numbers of `TRITONSERVER_ParameterType`."""

_MOST, _LEAST = 2**63 - 1, -(2**63)


class _Template:
    """A block without what differs from request to request, and what it points to."""

    __slots__ = ("content", "kept")

    def __init__(self, content: bytes, kept: object) -> None:
        self.content = content
        self.kept = kept


class RequestBlocks:
    """Makes the blocks of one model's requests; on the loop.

    Args:
        ffi: that knows `TRITONBACKEND_Request`.
        model: of the requests.
    """

    def __init__(self, ffi: cffi.FFI, model: Model) -> None:
        self._ffi = ffi
        self._pointer: CData = ffi.typeof("TRITONBACKEND_Request *")
        self._from_buffer: CData = ffi.from_buffer
        self._templates: dict[_Kind, _Template] = {}
        self._outputs: dict[tuple[str, ...], tuple[CData, int, object]] = {}
        states = model.config.get("sequence_batching", {}).get("state", ())
        outputs = {output["name"] for output in model.config.get("output", ())}
        self._hidden = {state["output_name"] for state in states} - outputs  # which only the server wants
        self._every_output = tuple(sorted(outputs))

    def fill(self, request: InferRequest) -> Block:
        """Fill in a request as a strategy sees it, while the returned list is held."""
        inputs = request.inputs
        kind: _Kind = ()
        for name, tensor in inputs.items():
            kind += (name, tensor.datatype, tensor.shape)
        template = self._templates.get(kind) or self._template(kind, inputs)
        block = self._from_buffer(self._pointer, bytearray(template.content))
        kept: Block = [block, template]
        fields = block.inputs
        for index, tensor in enumerate(inputs.values()):
            field = fields[index]
            buffer = tensor.buffer
            try:
                field.data = data = self._from_buffer(buffer)
            except TypeError:  # it lies elsewhere
                self._place(field, cast("BufferLocation", buffer))
                kept.append(buffer)
            else:
                field.byte_size = len(data)
                kept.append(data)
        if request.id:
            block.id = self._text(request.id, kept)
        if request.flags:
            block.flags = request.flags
        if request.correlation_id != 0:  # an empty text is one, too
            self._correlate(block, request.correlation_id, kept)
        if request.timeout_us:
            block.timeout_us = request.timeout_us
        if request.parameters:
            self._parametrize(block, request.parameters, kept)
        if request.requested_outputs is not None:
            array, count, _ = wanted = self._wanted(request.requested_outputs)
            block.outputs, block.output_count = array, count
            kept.append(wanted)
        return kept

    def _place(self, field: CData, location: BufferLocation) -> None:
        """Set the address of bytes that lie elsewhere; only the strategy reads them."""
        field.byte_size = location.byte_size
        field.memory_type = location.memory_type
        field.memory_type_id = location.device_id
        if location.address:
            field.data = self._ffi.cast("void *", location.address)
        elif location.file is not None:
            field.descriptor, field.position = location.file

    def _correlate(self, block: CData, correlation_id: int | str, kept: list[CData]) -> None:
        if isinstance(correlation_id, str):
            block.correlation_text = self._text(correlation_id, kept)
        else:
            block.correlation_number = correlation_id

    def _parametrize(self, block: CData, parameters: Mapping[str, ParameterValue], kept: list[CData]) -> None:
        fields: CData = self._ffi.new("TRITONPY_RequestParameter[]", len(parameters))
        kept.append(fields)
        for field, (name, value) in zip(fields, parameters.items(), strict=True):
            field.name = self._text(name, kept)
            if isinstance(value, bool):
                field.type, field.boolean = _BOOL, value
            elif isinstance(value, int) and _LEAST <= value <= _MOST:
                field.type, field.integer = _INT, value
            elif isinstance(value, int | float):
                field.type, field.number = _DOUBLE, float(value)
            else:
                field.type, field.text = _STRING, self._text(value, kept)
        block.parameters = fields
        block.parameter_count = len(parameters)

    def _wanted(self, names: tuple[str, ...]) -> tuple[CData, int, object]:
        """The names of outputs, each once and in order, as Triton has them."""
        wanted = self._outputs.get(names)
        if wanted is None:
            if len(self._outputs) >= _MOST_KEPT:
                self._outputs.clear()
            texts: list[CData] = []
            wanted_names = sorted({*names} - self._hidden)
            array: CData = self._ffi.new("const char *[]", [self._text(name, texts) for name in wanted_names])
            wanted = self._outputs[names] = (array, len(array), texts)
        return wanted

    def _template(self, kind: _Kind, inputs: Mapping[str, Tensor]) -> _Template:
        if len(self._templates) >= _MOST_KEPT:
            self._templates.clear()
        made = self._templates[kind] = self._make_template(inputs)
        return made

    def _make_template(self, inputs: Mapping[str, Tensor]) -> _Template:
        ffi = self._ffi
        kept: list[CData] = []
        block: CData = ffi.new(self._pointer, {"inputs": len(inputs)})
        block.id = self._text("", kept)
        block.input_count = len(inputs)
        block.outputs, block.output_count, _ = wanted = self._wanted(self._every_output)
        kept.append(wanted)
        for index, (name, tensor) in enumerate(inputs.items()):
            dims = ffi.new("int64_t[]", tensor.shape)
            kept.append(dims)
            field = block.inputs[index]
            field.name = self._text(name, kept)
            field.shape = dims
            field.dim_count = len(tensor.shape)
            field.datatype = DATATYPES[tensor.datatype].number
            field.memory_type = MemoryType.CPU
            field.descriptor = -1
            field.index = index
        byte_size = ffi.sizeof(block[0])
        return _Template(bytes(ffi.buffer(block, byte_size)), kept)

    def _text(self, text: str, kept: list[CData]) -> CData:
        """A zero-terminated text; readers end at the first zero, as in Triton."""
        chars = self._ffi.new("char[]", text.encode(errors="replace"))
        kept.append(chars)
        return chars
