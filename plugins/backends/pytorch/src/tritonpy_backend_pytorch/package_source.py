"""The inputs of an AOTInductor package, read from the C++ source that it carries.

A package itself says how values are nested, and nothing of their types and shapes. Its source has a check of
each input, which is off unless `AOTI_RUNTIME_CHECK_INPUTS` is set, because it refuses a batch of one. To read
it takes no PyTorch.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonpy_backend_pytorch.contents import PackageFiles
from tritonpy_backend_pytorch.shapes import UNKNOWN, smallest_size

_NAME = re.compile(r"inputs_info_\[(\d+)\]\.name = \"(\w+)\";")
_DTYPE = re.compile(r"int32_t (\w+)_expected_dtype = aoti_torch_dtype_(\w+)\(\);")
_FIXED = re.compile(r"if \((\d+) != (\w+)_(size|stride)\[(\d+)\]\)")
_BOUND = re.compile(r"if \((\w+)_size\[(\d+)\] ([<>]) (\d+)\)")
_SHAPE = re.compile(r"assert_size_stride\((\w+), \{([^}]*)\}, \{([^}]*)\}, \"input\"\)")
_LONG = re.compile(r"\b(\d+)L+\b")
_OFFSET_FIRST = re.compile(r"(-?\d+) \+ (.+)")


@dataclass(frozen=True, slots=True)
class PackageInput:
    """One input as a package's source checks it.

    Attributes:
        dtype: PyTorch's word for its type, such as `float32`.
        sizes: of each dimension; a number, or the name of a size of any value, or how it follows from one.
        bounds: smallest and largest size of each dimension; a largest of -1 is none.
        strides: of each dimension, as `sizes`; "" where the source does not say.
    """

    dtype: str
    sizes: tuple[str, ...]
    bounds: tuple[tuple[int, int], ...]
    strides: tuple[str, ...]


def read_inputs(path: Path, files: PackageFiles) -> tuple[PackageInput, ...] | None:
    """What the source of a package says of its inputs; None where it has none, or that does not tell."""
    if not files.source:
        return None
    with zipfile.ZipFile(path) as archive:
        return read_package_inputs(archive.read(files.source).decode(errors="replace"))


def read_package_inputs(source: str) -> tuple[PackageInput, ...] | None:
    """Read the inputs of a package in the order of its call; None where the source does not tell them all."""
    names = [name for _, name in sorted((int(index), name) for index, name in _NAME.findall(source))]
    dtypes = dict(_DTYPE.findall(source))
    fixed = {(name, kind, int(axis)): size for size, name, kind, axis in _FIXED.findall(source)}
    bounds = {(name, int(axis), sign): int(size) for name, axis, sign, size in _BOUND.findall(source)}
    shapes = {name: (_terms(sizes), _terms(strides)) for name, sizes, strides in _SHAPE.findall(source)}
    if not names or any(name not in dtypes for name in names):
        return None
    inputs = []
    for name in names:
        axes = [axis for other, _, axis in fixed if other == name]
        axes += [axis for other, axis, _ in bounds if other == name]
        unknown = tuple("" for _ in range(max(axes, default=-1) + 1))
        sizes, strides = shapes.get(name, (unknown, unknown))
        sizes = tuple(
            fixed.get((name, "size", axis), size or f"{UNKNOWN}{name}_{axis}")
            for axis, size in enumerate(sizes)
        )
        strides = tuple(fixed.get((name, "stride", axis), stride) for axis, stride in enumerate(strides))
        # A smallest batch is the compiler's: it asks whether the sample has 16 rows. Small ones run as well.
        limits = tuple(
            (
                smallest_size(size, bounds.get((name, axis, "<"), 0)) if axis else 0,
                bounds.get((name, axis, ">"), -1),
            )
            for axis, size in enumerate(sizes)
        )
        inputs.append(PackageInput(dtypes[name], sizes, limits, strides))
    return tuple(inputs)


def _terms(text: str) -> tuple[str, ...]:
    """Sizes as Python writes them: `{s17, 1L + s83}` are `s17` and `s83 + 1`."""
    return tuple(_OFFSET_FIRST.sub(r"\2 + \1", term) for term in _split(_LONG.sub(r"\1", text)))


def _split(text: str) -> Sequence[str]:
    return [term.strip() for term in text.split(",") if term.strip()]
