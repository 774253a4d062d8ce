"""Turn `--input NAME=VALUE` into a tensor of the datatype and shape that the model asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.tensor import Array, Tensor


@dataclass(frozen=True, slots=True)
class WantedInput:
    """One input as the model's metadata describes it; -1 in the shape fits anything."""

    name: str
    datatype: str
    shape: tuple[int, ...]


def build_input(wanted: WantedInput, value: str, shape: Sequence[int] | None = None) -> Tensor:
    """Read a value as a person writes it.

    Args:
        wanted: the model's side.
        value: JSON, or numbers between blanks or commas, or text for BYTES. `@file` reads a file: `.json`
            and `.npy` are what they say, `.txt` is text, anything else holds the raw elements, little
            endian (for BYTES: the file is the one element, an image say).
        shape: what to send instead of the shape found by fitting the value to `wanted.shape`.

    Raises:
        InvalidArg: the value does not fit; the text says what was expected.
        OSError: the file cannot be read.
    """
    array = _read_file(wanted, Path(value[1:])) if value.startswith("@") else _read_text(wanted, value)
    final_shape = tuple(shape) if shape is not None else fit_shape(wanted, array.shape)
    try:
        array = array.reshape(final_shape)
    except ValueError:
        raise InvalidArg(
            f"input '{wanted.name}': got {array.size} elements, which do not fill shape {_shown(final_shape)}"
        ) from None
    return Tensor.from_numpy(wanted.name, array, wanted.datatype)


def fit_shape(wanted: WantedInput, got: tuple[int, ...]) -> tuple[int, ...]:
    """The full shape for elements that came in shape `got`, which may lack the batch dimension or be flat.

    Raises:
        InvalidArg: there is none, or more than one.
    """
    target = wanted.shape
    if _matches(got, target):
        return got
    if target[:1] == (-1,) and _matches(got, target[1:]):
        return (1, *got)
    single = (1, *target[1:]) if target[:1] == (-1,) else target
    is_flat = len(got) <= 1 or _without_ones(got) == _without_ones(single)
    if is_flat:
        count = int(np.prod(got, dtype=np.int64))
        for candidate in (target, single):
            filled = _fill(candidate, count)
            if filled is not None:
                return filled
    raise InvalidArg(
        f"input '{wanted.name}': got shape {_shown(got)}, expected {_shown(target)}; "
        f"nest the elements accordingly, or say --shape {wanted.name}=…"
    )


def _read_text(wanted: WantedInput, text: str) -> Array:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if wanted.datatype == "BYTES":
        # 5 and true are JSON too, but for a text input they are meant as text.
        return _from_json(wanted, value if isinstance(value, list | str) else text)
    if value is None:
        value = [_number(wanted, part) for part in re.split(r"[\s,]+", text.strip()) if part]
    return _from_json(wanted, value)


def _read_file(wanted: WantedInput, path: Path) -> Array:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        try:
            return _converted(wanted, np.load(path, allow_pickle=False))
        except ValueError as exc:
            raise InvalidArg(f"input '{wanted.name}': {path} cannot be used: {exc}") from exc
    if suffix == ".json":
        try:
            return _from_json(wanted, json.loads(path.read_bytes()))
        except ValueError as exc:
            raise InvalidArg(f"input '{wanted.name}': {path} is not JSON: {exc}") from exc
    data = path.read_bytes()
    if wanted.datatype == "BYTES":
        element = np.empty(1, object)
        element[0] = data
        return element
    if suffix == ".txt":
        return _read_text(wanted, data.decode())
    dtype = DATATYPES[wanted.datatype].numpy
    if len(data) % dtype.itemsize:
        raise InvalidArg(
            f"input '{wanted.name}': {path} has {len(data)} bytes, expected a multiple of {dtype.itemsize} "
            f"({wanted.datatype})"
        )
    return np.frombuffer(data, dtype)


def _from_json(wanted: WantedInput, value: object) -> Array:
    if wanted.datatype == "BYTES":
        array = np.array(value, dtype=object)
        if not all(isinstance(element, str) for element in array.reshape(-1)):
            raise InvalidArg(f"input '{wanted.name}': expected strings in lists of equal length")
        return array
    try:
        return _converted(wanted, np.array(value))
    except ValueError as exc:
        raise InvalidArg(f"input '{wanted.name}': expected numbers in lists of equal length") from exc


def _converted(wanted: WantedInput, array: Array) -> Array:
    """`array` in the wanted datatype, provided that no value changes beyond rounding."""
    if wanted.datatype == "BYTES":
        if array.dtype.kind not in "US":
            raise InvalidArg(f"input '{wanted.name}': got numpy {array.dtype}, expected strings (BYTES)")
        return array
    target = DATATYPES[wanted.datatype].numpy
    if array.size == 0 or array.dtype == target:
        return array.astype(target)
    kind = array.dtype.kind
    if target.kind == "f" or wanted.datatype == "BF16":
        fits = kind in "iuf"
    elif target.kind == "b":
        fits = kind in "iu" and bool(((array == 0) | (array == 1)).all())
    else:
        limits = np.iinfo(target.name)
        fits = kind in "iu" and int(array.min()) >= limits.min and int(array.max()) <= limits.max
    if not fits:
        raise InvalidArg(
            f"input '{wanted.name}': got values of numpy {array.dtype}"
            + (f" between {array.min()} and {array.max()}" if kind in "iuf" else "")
            + f", expected {wanted.datatype}"
        )
    return _to_bf16(array) if wanted.datatype == "BF16" else array.astype(target)


def _to_bf16(array: Array) -> Array:
    bits = array.astype("<f4").view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to the nearest, ties to even
    return np.where(np.isnan(array.astype("<f4")), 0x7FC0, rounded).astype("<u2")


def _number(wanted: WantedInput, text: str) -> int | float | bool:
    if text in ("true", "false"):
        return text == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    raise InvalidArg(f"input '{wanted.name}': got '{text}', expected numbers ({wanted.datatype}) or JSON")


def _matches(got: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return len(got) == len(target) and all(want in (-1, have) for have, want in zip(got, target, strict=True))


def _fill(target: tuple[int, ...], count: int) -> tuple[int, ...] | None:
    known = int(np.prod([dim for dim in target if dim != -1], dtype=np.int64))
    unknown = target.count(-1)
    if unknown == 0:
        return target if known == count else None
    if unknown > 1 or known == 0 or count % known:
        return None
    return tuple(count // known if dim == -1 else dim for dim in target)


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [dim for dim in shape if dim != 1]


def _shown(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
