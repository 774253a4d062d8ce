"""Tensors of a model: those of its configuration, and those the server gives and keeps by itself.

Controls and states of sequences, and batch inputs, are tensors that no client sends or sees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tritonpy.datatypes import CONFIG_DATATYPES
from tritonpy.handles import JsonObject

_CONTROL_DATATYPES = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}


@dataclass(frozen=True, slots=True)
class GivenTensor:
    """An implicit tensor: an input or output that a model's lists `input` and `output` need not name.

    Attributes:
        name: what the model calls it.
        datatype: the protocol's word for its type; "" while a configuration that is not checked says none.
        dims: without the dimension of the batch.
        role: `sequence control`, `state` or `batch input`; errors say so.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    role: str


def given_inputs(config: JsonObject) -> list[GivenTensor]:
    """The inputs that the server gives to a model with this configuration."""
    return [*_controls(config), *_states(config, "input_name"), *_batch_inputs(config)]


def kept_outputs(config: JsonObject) -> list[GivenTensor]:
    """The outputs that the server keeps: those that are the states of a sequence."""
    return list(_states(config, "output_name"))


def _controls(config: JsonObject) -> Iterator[GivenTensor]:
    for tensor in config.get("sequence_batching", {}).get("control_input", ()):
        for control in tensor.get("control", ()):
            datatype = next((name for key, name in _CONTROL_DATATYPES.items() if control.get(key)), "")
            yield GivenTensor(tensor["name"], datatype or _datatype(control), (1,), "sequence control")


def _states(config: JsonObject, key: str) -> Iterator[GivenTensor]:
    for state in config.get("sequence_batching", {}).get("state", ()):
        dims = tuple(int(dim) for dim in state.get("dims", ()))
        yield GivenTensor(state.get(key, ""), _datatype(state), dims, "state")


def _batch_inputs(config: JsonObject) -> Iterator[GivenTensor]:
    for batch_input in config.get("batch_input", ()):
        # The one kind with rows; what all others count is one row for the whole batch.
        dims = (-1, -1) if batch_input.get("kind") == "BATCH_ITEM_SHAPE" else (-1,)
        for name in batch_input.get("target_name", ()):
            yield GivenTensor(name, _datatype(batch_input), dims, "batch input")


def _datatype(tensor: JsonObject) -> str:
    found = CONFIG_DATATYPES.get(tensor.get("data_type", ""))
    return found.name if found is not None else ""


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
