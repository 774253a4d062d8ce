"""One input or output of a PyTorch model, as far as its file describes it."""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]
Bounds = tuple[tuple[int, int], ...]
"""Smallest and largest size of each dimension; a largest of -1 is none."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output with the type and the shape that a model's file says.

    Attributes:
        name: what a completed configuration calls it.
        datatype: the protocol's word for its type, or "" for what the protocol cannot carry.
        shape: -1 for a dimension of any size; empty for a scalar.
        type_name: PyTorch's word for its type, such as `torch.float32`.
        bounds: smallest and largest size of each dimension that has any; a largest of -1 is none.
        symbols: name of the size of each dimension, "" where it has a fixed one; dimensions of the same name
            have the same size in one call.
    """

    name: str
    datatype: str
    shape: Shape
    type_name: str = ""
    bounds: Bounds = ()
    symbols: tuple[str, ...] = ()
