"""The outputs of a model that only its calls tell: two of them, with tensors of different sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice

import torch
from torch.utils import _pytree as pytree

from tritonpy_backend_pytorch.arrays import DTYPES, datatype_of
from tritonpy_backend_pytorch.shapes import UNKNOWN, LinearSize, read_size
from tritonpy_backend_pytorch.tensor_info import TensorInfo

_MOST_TRIED = 1024
_SMALLEST = 2  # code for one row may be special


def describe_outputs(
    call: Callable[..., object], inputs: Sequence[TensorInfo], names: Sequence[str]
) -> list[TensorInfo]:
    """Describe outputs by what a model makes of zeros.

    A dimension that changes with the size of an input, and equals it in both calls, is that size.

    Args:
        call: takes one tensor for each input.
        inputs: of the call.
        names: of the outputs, in their order.

    Raises:
        RuntimeError: the model does not run with zeros.
        ValueError: no sizes fit the inputs, or there are other outputs than named.
    """
    sizes = _choose_sizes(inputs)
    results = []
    with torch.inference_mode():
        for chosen in sizes:
            tensors = [_zeros(info, chosen) for info in inputs]
            results.append(pytree.tree_leaves(call(*tensors)))
    first, second = sizes
    return [
        _described(name, one, other, first, second) for name, one, other in zip(names, *results, strict=True)
    ]


def _described(
    name: str,
    one: torch.Tensor,
    other: torch.Tensor,
    first: Mapping[str, int],
    second: Mapping[str, int],
) -> TensorInfo:
    by_sizes = {(first[base], second[base]): base for base in first if first[base] != second[base]}
    shape, symbols = [], []
    for axis, (size, changed) in enumerate(zip(one.shape, other.shape, strict=True)):
        shape.append(size if size == changed else -1)
        symbols.append("" if size == changed else by_sizes.get((size, changed), f"{UNKNOWN}{name}_{axis}"))
    return TensorInfo(name, datatype_of(one), tuple(shape), str(one.dtype), symbols=tuple(symbols))


def _choose_sizes(inputs: Sequence[TensorInfo]) -> tuple[dict[str, int], dict[str, int]]:
    """Two values for each size of any value, within its bounds, and all different where those allow it."""
    uses: dict[str, list[tuple[LinearSize, tuple[int, int]]]] = {}
    for info in inputs:
        for symbol, bounds in zip(info.symbols, info.bounds, strict=True):
            if symbol:
                size = read_size(symbol) or LinearSize(symbol)
                uses.setdefault(size.base, []).append((size, bounds))
    first: dict[str, int] = {}
    second: dict[str, int] = {}
    taken: set[int] = set()
    for base, limits in uses.items():
        fitting = [
            value
            for value in islice(count(_SMALLEST), _MOST_TRIED)
            if all(_fits(size.factor * value + size.offset, bounds) for size, bounds in limits)
        ]
        if not fitting:
            raise ValueError(f"no size '{base}' fits all inputs")
        fresh = [value for value in fitting if value not in taken] or fitting
        first[base], second[base] = fresh[0], fresh[min(1, len(fresh) - 1)]
        taken |= {first[base], second[base]}
    return first, second


def _fits(size: int, bounds: tuple[int, int]) -> bool:
    smallest, largest = bounds
    return size >= smallest and (largest < 0 or size <= largest)


def _zeros(info: TensorInfo, chosen: Mapping[str, int]) -> torch.Tensor:
    sizes = []
    for size, symbol in zip(info.shape, info.symbols, strict=True):
        found = read_size(symbol) or LinearSize(symbol)
        sizes.append(found.factor * chosen[found.base] + found.offset if symbol else size)
    return torch.zeros(sizes, dtype=DTYPES[info.datatype])
