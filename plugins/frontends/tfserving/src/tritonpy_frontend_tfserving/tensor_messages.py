"""Tensors between TensorFlow's messages and arrays."""

from __future__ import annotations

from math import prod

import numpy as np
from tritonpy.plugin import DATATYPES, Array, InvalidArg, TensorSpec

from tritonpy_frontend_tfserving.messages import Message
from tritonpy_frontend_tfserving.messages import Tensor as TensorMessage
from tritonpy_frontend_tfserving.models import fit_rank

NUMBERS = {
    "BOOL": 10,
    "UINT8": 4,
    "UINT16": 17,
    "UINT32": 22,
    "UINT64": 23,
    "INT8": 6,
    "INT16": 5,
    "INT32": 3,
    "INT64": 9,
    "FP16": 19,
    "BF16": 14,
    "FP32": 1,
    "FP64": 2,
    "BYTES": 7,
}
"""TensorFlow's number for each datatype."""

_NAMES = {number: name for name, number in NUMBERS.items()}
_FIELDS = {
    "BOOL": "bool_val",
    "UINT32": "uint32_val",
    "UINT64": "uint64_val",
    "INT64": "int64_val",
    "FP16": "half_val",
    "BF16": "half_val",
    "FP32": "float_val",
    "FP64": "double_val",
    "BYTES": "string_val",
}  # all others are in `int_val`
_PACKED = {"FP32": b"\x2a", "FP64": b"\x32"}  # fields whose elements lie one after the other, as in an array


def read_tensor(message: Message, spec: TensorSpec, most_bytes: int) -> Array:
    """The elements of an input.

    Args:
        message: a `TensorProto`: with its elements as they are in memory, or one by one, of which the last
            stands for all that are left out.
        spec: the model's input.
        most_bytes: a tensor that would be larger is refused.

    Raises:
        InvalidArg: it is of another type than the model's, or its elements do not fit its shape.
    """
    name, datatype = spec.name, spec.datatype
    if message.dtype != NUMBERS[datatype]:
        got = _NAMES.get(message.dtype, f"DataType {message.dtype}")
        raise InvalidArg(f"input '{name}': got a tensor of type {got}, expected {datatype}")
    shape = tuple(dim.size for dim in message.tensor_shape.dim)
    if message.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        raise InvalidArg(f"input '{name}': got a tensor of shape {list(shape)}, expected sizes from 0 on")
    wanted = DATATYPES[datatype].numpy
    count = prod(shape)
    if count * wanted.itemsize > most_bytes:
        raise InvalidArg(f"input '{name}': a tensor of shape {list(shape)} has more than {most_bytes} bytes")
    if message.tensor_content and datatype != "BYTES":
        elements = np.frombuffer(message.tensor_content, np.uint8)
        if elements.size != count * wanted.itemsize:
            raise InvalidArg(
                f"input '{name}': tensor_content has {elements.size} bytes, expected "
                f"{count * wanted.itemsize} for shape {list(shape)}"
            )
        elements = elements.view(wanted)
    else:
        elements = _one_by_one(message, spec, count, most_bytes)
    return fit_rank(elements.reshape(shape), spec)


def _one_by_one(message: Message, spec: TensorSpec, count: int, most_bytes: int) -> Array:
    datatype = spec.datatype
    values = getattr(message, _FIELDS.get(datatype, "int_val"))
    if len(values) > count or (count and not values and datatype == "BYTES"):
        raise InvalidArg(f"input '{spec.name}': got {len(values)} elements, expected {count}")
    if datatype == "BYTES" and len(values[-1:]) and len(values[-1]) * (count - len(values)) > most_bytes:
        raise InvalidArg(f"input '{spec.name}': {count} strings have more than {most_bytes} bytes")
    try:
        if datatype in ("FP16", "BF16"):
            found = np.array(values, "u2").view(DATATYPES[datatype].numpy)
        else:
            found = np.array(values, DATATYPES[datatype].numpy)
    except OverflowError as exc:
        raise InvalidArg(f"input '{spec.name}': {exc}") from exc
    if len(found) == count:
        return found
    last = found[-1:] if len(found) else np.zeros(1, found.dtype)
    return np.concatenate([found, np.repeat(last, count - len(found))])


def write_tensor(array: Array, datatype: str, message: Message) -> None:
    """Fill a `TensorProto` with elements one by one, as TensorFlow Serving answers.

    Clients read `float_val` and its like, and not only by `tf.make_ndarray`.
    """
    message.dtype = NUMBERS[datatype]
    message.tensor_shape.SetInParent()
    for size in array.shape:
        message.tensor_shape.dim.add(size=size)
    if datatype in _PACKED and array.size:
        content = np.ascontiguousarray(array, DATATYPES[datatype].numpy).tobytes()
        message.MergeFromString(_PACKED[datatype] + _varint(len(content)) + content)
        return
    if datatype == "FP16":
        array = array.view("u2")
    getattr(message, _FIELDS.get(datatype, "int_val")).extend(array.reshape(-1).tolist())


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


assert TensorMessage.DESCRIPTOR.fields_by_name["float_val"].number == _PACKED["FP32"][0] >> 3
assert TensorMessage.DESCRIPTOR.fields_by_name["double_val"].number == _PACKED["FP64"][0] >> 3
