"""The compiled check of a request against a model's inputs and outputs.

Compiled once per loaded version. A request whose names, datatypes and shapes were seen before only has its
byte sizes compared; everything else about it is already known to be right.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tritonpy.dataplane import TensorSpec
from tritonpy.datatypes import CONFIG_DATATYPES, DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.request import InferRequest
from tritonpy.tensor import Tensor

_LENGTH = struct.Struct("<I")

_MOST_REMEMBERED = 1024
_MOST_ELEMENTS = 2**63 - 1
SURELY_COUNTED = _MOST_ELEMENTS // 16
"""The size in bytes of up to this many elements fits into 64 bits; for more see `check_countable`."""
_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended "
    "to each input shape. If you want to specify the full shape including the batch dim in your input dims "
    "config, try setting max_batch_size to zero. See the model configuration docs for more info on "
    "max_batch_size."
)


@dataclass(frozen=True, slots=True)
class _Accepted:
    batch_size: int
    byte_sizes: tuple[int, ...]
    bytes_inputs: tuple[str, ...]


class Signature:
    """Checks requests for one model version.

    Args:
        config: the model's configuration as a plain dict.

    Attributes:
        inputs: what the model takes, by name.
        outputs: what the model gives, by name.
        max_batch_size: 0 for a model that does not batch.
    """

    def __init__(self, config: JsonObject) -> None:
        self.model_name: str = config["name"]
        self.max_batch_size: int = config.get("max_batch_size", 0)
        lead = (-1,) if self.max_batch_size > 0 else ()
        self.inputs = {spec.name: spec for spec in _specs(config.get("input", ()), lead)}
        self.outputs = {spec.name: spec for spec in _specs(config.get("output", ()), lead)}
        self._required = [spec.name for spec in self.inputs.values() if not spec.optional]
        self._accepted: dict[tuple[object, ...], _Accepted] = {}
        self._consistent: set[tuple[object, ...]] = set()

    def check(self, request: InferRequest) -> None:
        """Accept the request and set its `batch_size`.

        Raises:
            InvalidArg: it does not fit the model; the text is Triton's.
        """
        wanted = request.requested_outputs
        if wanted is not None:
            for name in wanted:
                if name not in self.outputs:
                    first = min(name for name in wanted if name not in self.outputs)
                    raise InvalidArg(f"unexpected inference output '{first}' for model '{self.model_name}'")
        tensors = request.inputs.values()
        key = tuple([part for tensor in tensors for part in (tensor.name, tensor.datatype, tensor.shape)])
        accepted = self._accepted.get(key)
        if accepted is None:
            accepted = self._inspect(request)
            if len(self._accepted) >= _MOST_REMEMBERED:
                self._accepted.clear()
            self._accepted[key] = accepted
        for tensor, expected in zip(tensors, accepted.byte_sizes, strict=True):
            if expected >= 0 and tensor.byte_size != expected:
                raise InvalidArg(
                    f"{request.label}input byte size mismatch for input '{tensor.name}' for model "
                    f"'{self.model_name}'. Expected {expected}, got {tensor.byte_size}"
                )
        for name in accepted.bytes_inputs:
            check_bytes_tensor(request.inputs[name], self.model_name, request.label)
        request.batch_size = accepted.batch_size

    def contradiction(self, outputs: Sequence[Tensor], batch_size: int) -> str:
        """The first difference between outputs and the configuration; "" if there is none.

        Args:
            outputs: of one response, with the shapes that clients see. One that the configuration does not
                name is left alone.
            batch_size: rows of the request; 0 if any number of rows may answer it.
        """
        key = (
            batch_size,
            *[part for tensor in outputs for part in (tensor.name, tensor.datatype, tensor.shape)],
        )
        if key in self._consistent:
            return ""
        for tensor in outputs:
            spec = self.outputs.get(tensor.name)
            if spec is not None and not _fits(tensor, spec, batch_size if self.max_batch_size else 0):
                rows = f" for {batch_size} row(s)" if batch_size and self.max_batch_size else ""
                return (
                    f"output '{spec.name}' is {tensor.datatype} {_dims(tensor.shape)}{rows}, but the "
                    f"configuration says {spec.datatype} {_dims(spec.shape)}"
                )
        if len(self._consistent) >= _MOST_REMEMBERED:
            self._consistent.clear()
        self._consistent.add(key)
        return ""

    def _inspect(self, request: InferRequest) -> _Accepted:
        label = request.label
        inputs = request.inputs
        self._check_names(inputs, label)
        batch_size = self._check_batch(inputs.values(), label)
        byte_sizes = []
        for tensor in inputs.values():
            spec = self.inputs[tensor.name]
            if tensor.datatype != spec.datatype:
                raise InvalidArg(
                    f"{label}inference input '{tensor.name}' data-type is '{tensor.datatype}', "
                    f"but model '{self.model_name}' expects '{spec.datatype}'"
                )
            self._check_shape(tensor, spec, label)
            byte_size = DATATYPES[tensor.datatype].byte_size
            byte_sizes.append(prod(tensor.shape) * byte_size if byte_size else -1)
        bytes_inputs = tuple(tensor.name for tensor in inputs.values() if tensor.datatype == "BYTES")
        return _Accepted(batch_size, tuple(byte_sizes), bytes_inputs)

    def _check_names(self, inputs: dict[str, Tensor], label: str) -> None:
        missing = [name for name in self._required if name not in inputs]
        most, least = len(self.inputs), len(self._required)
        if not least <= len(inputs) <= most:
            expected = (
                f"expected {most} inputs"
                if most == least
                else f"expected number of inputs between {least} and {most}"
            )
            raise InvalidArg(
                f"{label}{expected} but got {len(inputs)} inputs for model '{self.model_name}'. "
                f"Got input(s) {_quoted(inputs)}, but missing required input(s) "
                f"{_quoted(missing) if missing else ']'}. Please provide all required input(s)."
            )
        for name in inputs:
            if name not in self.inputs:
                raise InvalidArg(f"unexpected inference input '{name}' for model '{self.model_name}'")
        if missing:
            raise InvalidArg(
                f"{label}expected {most} inputs but got {len(inputs)} inputs for model '{self.model_name}'. "
                f"Got input(s) {_quoted(inputs)}, but missing required input(s) {_quoted(missing)}. "
                f"Please provide all required input(s)."
            )

    def _check_batch(self, tensors: Iterable[Tensor], label: str) -> int:
        if self.max_batch_size == 0:
            return 1
        batch_size = 1  # of a request without inputs, all of which are optional then
        rows = [tensor for tensor in tensors if not self.inputs[tensor.name].is_shape_tensor]
        for index, tensor in enumerate(rows):
            if not tensor.shape:
                raise InvalidArg(
                    f"{label}input '{tensor.name}' has no shape but model requires batch dimension for "
                    f"'{self.model_name}'"
                )
            if index == 0:
                batch_size = tensor.shape[0]
            elif tensor.shape[0] != batch_size:
                raise InvalidArg(
                    f"{label}input '{tensor.name}' batch size does not match other inputs for "
                    f"'{self.model_name}'"
                )
        if batch_size > self.max_batch_size:
            raise InvalidArg(
                f"{label}inference request batch-size must be <= {self.max_batch_size} "
                f"for '{self.model_name}'"
            )
        if batch_size == 0:  # Triton takes it for no batch dimension, and complains of sizes or runs it so
            raise InvalidArg(f"{label}inference request batch-size must be >= 1 for '{self.model_name}'")
        return batch_size  # a negative one is refused with the shape

    def _check_shape(self, tensor: Tensor, spec: TensorSpec, label: str) -> None:
        shape = tensor.shape
        if any(dim < 0 for dim in shape):
            raise InvalidArg(
                f"{label}All input dimensions should be specified for input '{tensor.name}' for model "
                f"'{self.model_name}', got {_dims(shape)}"
            )
        if prod(shape) > SURELY_COUNTED:
            check_countable(label, tensor.name, self.model_name, tensor.datatype, shape)
        expected = spec.shape
        if not _is_of_shape(shape, expected):
            note = _BATCH_NOTE if self.max_batch_size > 0 else ""
            raise InvalidArg(
                f"{label}unexpected shape for input '{tensor.name}' for model '{self.model_name}'. "
                f"Expected {_dims(expected)}, got {_dims(shape)}. {note}"
            )


def check_countable(label: str, name: str, model_name: str, datatype: str, shape: Sequence[int]) -> None:
    """Refuse an input whose elements or bytes are too many for a number of 63 bits.

    Raises:
        InvalidArg: in Triton's words.
    """
    known = DATATYPES.get(datatype)
    if prod(shape) > _MOST_ELEMENTS:
        raise InvalidArg(
            f"{label}input '{name}' for model '{model_name}': shape {_dims(shape)} causes total element "
            f"count to exceed maximum size of {_MOST_ELEMENTS}"
        )
    if known is not None and prod(shape) * known.byte_size > _MOST_ELEMENTS:
        raise InvalidArg(
            f"{label}byte size overflow for input '{name}' for model '{model_name}': shape {_dims(shape)} of "
            f"{datatype}"
        )


def check_bytes_tensor(tensor: Tensor, model_name: str, label: str = "") -> None:
    """Check that a BYTES input is well formed and has as many elements as its shape says.

    Raises:
        InvalidArg: with Triton's text for each way it can be broken.
    """
    count = tensor.element_count
    buffer = tensor.wire()
    if _has_equal_lengths(buffer, count) or _is_well_formed(buffer, count):
        return
    size = len(buffer)
    offset = found = length = available = 0
    where = f"inference input '{tensor.name}'"
    while offset < size:
        if size - offset < 4:
            raise InvalidArg(
                f"{label}incomplete string length indicator for {where} for model '{model_name}', "
                f"expecting 4 bytes but only {size - offset} bytes available. Please make sure the string "
                f"length indicator is in one buffer."
            )
        if found == count:
            raise InvalidArg(
                f"{label}unexpected number of string elements {found + 1} for {where} for model "
                f"'{model_name}', expecting {count}"
            )
        length = int.from_bytes(buffer[offset : offset + 4], "little")
        offset += 4
        available = size - offset
        offset += length
        found += 1
    if found != count:
        raise InvalidArg(
            f"{label}expected {count} string elements for {where} for model '{model_name}', got {found}"
        )
    raise InvalidArg(
        f"incomplete string data for {where}, expecting string of length {length} but only {available} bytes "
        f"available"
    )


def _is_well_formed(buffer: bytes | bytearray | memoryview, count: int) -> bool:
    """True if the buffer is exactly `count` strings; a quick walk that does not find out what is wrong."""
    unpack = _LENGTH.unpack_from
    offset = 0
    try:
        for _ in range(count):
            offset += 4 + unpack(buffer, offset)[0]
    except struct.error:
        return False
    return offset == len(buffer)


def _has_equal_lengths(buffer: bytes | bytearray | memoryview, count: int) -> bool:
    """True if the buffer is `count` strings of one length: often so, and checked without a loop."""
    size = len(buffer)
    if count == 0 or size < 4 or size % count:
        return size == 0 and count == 0
    stride = size // count
    if stride < 4:
        return False
    rows = np.frombuffer(buffer, np.uint8).reshape(count, stride)
    lengths = np.ascontiguousarray(rows[:, :4]).view("<u4")
    return bool((lengths == stride - 4).all())


def _is_of_shape(shape: Sequence[int], expected: Sequence[int]) -> bool:
    return len(shape) == len(expected) and all(
        want in (-1, got) for want, got in zip(expected, shape, strict=True)
    )


def _fits(output: Tensor, spec: TensorSpec, row_count: int) -> bool:
    if output.datatype != spec.datatype or not _is_of_shape(output.shape, spec.shape):
        return False
    return not row_count or spec.is_shape_tensor or output.shape[0] == row_count


def _specs(tensors: Iterable[JsonObject], lead: tuple[int, ...]) -> Iterable[TensorSpec]:
    for tensor in tensors:
        is_shape_tensor = bool(tensor.get("is_shape_tensor", False))
        yield TensorSpec(
            tensor["name"],
            CONFIG_DATATYPES[tensor["data_type"]].name,
            (() if is_shape_tensor else lead) + tuple(int(dim) for dim in tensor.get("dims", ())),
            bool(tensor.get("optional", False)),
            is_shape_tensor,
        )


def _dims(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _quoted(names: Iterable[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"
