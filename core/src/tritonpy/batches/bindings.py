"""What a configuration says about each tensor of a model, compiled for use in every batch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tritonpy.batches.implicit_tensors import given_inputs, kept_outputs
from tritonpy.datatypes import CONFIG_DATATYPES
from tritonpy.handles import JsonObject

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """One input or output of a model.

    Attributes:
        name: its name.
        datatype: the protocol's word for its type, such as `FP32`.
        dims: as the model has them, without the dimension of the batch; -1 for any size.
        batches: its first dimension is that of the batch.
        is_scalar: it has no dimension in the model, though `dims` has some.
        is_ragged: an input whose elements the model takes one after the other, without any other dimension.
        is_shape_tensor: its values are a shape, the same for a whole batch.
        source: the input whose shape says how an output is cut; "" for an output with rows.
    """

    name: str
    datatype: str
    dims: Shape
    batches: bool
    is_scalar: bool = False
    is_ragged: bool = False
    is_shape_tensor: bool = False
    source: str = ""


def bind_inputs(config: JsonObject, scalars: Collection[str]) -> dict[str, Binding]:
    """The inputs that requests bring when they are executed: the model's own, and those the server adds.

    Args:
        config: complete.
        scalars: tensors without dimensions, which a configuration cannot say.
    """
    batches = config.get("max_batch_size", 0) > 0
    bindings = {}
    for tensor in config.get("input", ()):
        binding = _bind(tensor, batches, scalars)
        bindings[binding.name] = binding
    for given in given_inputs(config):
        if given.role != "batch input":
            bindings[given.name] = Binding(given.name, given.datatype, given.dims, batches)
    return bindings


def bind_outputs(config: JsonObject, scalars: Collection[str]) -> tuple[Binding, ...]:
    """The outputs that a model is asked for: those that clients see, and those that become states."""
    batches = config.get("max_batch_size", 0) > 0
    sources = {
        target: batch_output["source_input"][0]
        for batch_output in config.get("batch_output", ())
        for target in batch_output["target_name"]
    }
    bindings = {
        tensor["name"]: _bind(tensor, batches, scalars, sources.get(tensor["name"], ""))
        for tensor in config.get("output", ())
    }
    for kept in kept_outputs(config):
        if kept.name not in bindings:
            bindings[kept.name] = Binding(kept.name, kept.datatype, kept.dims, batches)
    return tuple(bindings.values())


def _bind(tensor: JsonObject, batches: bool, scalars: Collection[str], source: str = "") -> Binding:
    name = tensor["name"]
    reshape = tensor.get("reshape")
    dims = tensor["dims"] if reshape is None else reshape.get("shape", ())
    is_shape_tensor = bool(tensor.get("is_shape_tensor", False))
    return Binding(
        name,
        CONFIG_DATATYPES[tensor["data_type"]].name,
        tuple(int(dim) for dim in dims),
        batches and not is_shape_tensor,
        is_scalar=name in scalars,
        is_ragged=bool(tensor.get("allow_ragged_batch", False)),
        is_shape_tensor=is_shape_tensor,
        source=source,
    )
