"""What a configuration says about each tensor of a model, compiled for use in every batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritonpy.batches.given import given_inputs, kept_outputs
from tritonpy.datatypes import CONFIG_DATATYPES
from tritonpy.handles import JsonObject

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """One input or output of a model.

    Attributes:
        name: its name.
        datatype: the protocol's word for its type, such as `FP32`.
        client: configured dims, without the dimension of the batch.
        model: the model's dims, without it, where they are not the client's.
        batches: its first dimension is that of the batch.
        is_ragged: an input whose elements the model takes one after the other, without any other dimension.
        is_shape_tensor: its values are a shape, the same for a whole batch.
        source: the input whose shape says how an output is cut; "" for an output with rows.
    """

    name: str
    datatype: str
    client: Shape
    model: Shape | None
    batches: bool
    is_ragged: bool = False
    is_shape_tensor: bool = False
    source: str = ""

    def to_model(self, shape: Shape) -> Shape:
        """The shape the model wants for a tensor that came with `shape`."""
        return shape if self.model is None else self._moved(shape, self.client, self.model)

    def to_client(self, shape: Shape) -> Shape:
        """The shape the client wants for a tensor that the model gave with `shape`."""
        return shape if self.model is None else self._moved(shape, self.model, self.client)

    def _moved(self, shape: Shape, source: Shape, target: Shape) -> Shape:
        """The n-th size that may be any in `source` is the n-th such size in `target`."""
        lead, rest = (shape[:1], shape[1:]) if self.batches else ((), shape)
        free = [size for size, dim in zip(rest, source, strict=False) if dim == -1]
        return lead + tuple(free.pop(0) if dim == -1 and free else dim for dim in target)


def bind_inputs(config: JsonObject, model_dims: Mapping[str, Shape]) -> dict[str, Binding]:
    """The inputs that requests bring when they are executed: the model's own, and those the server adds.

    Args:
        config: complete.
        model_dims: dims of the model's tensors where a configuration cannot say them, such as () of a scalar.
    """
    batches = config.get("max_batch_size", 0) > 0
    bindings = {}
    for tensor in config.get("input", ()):
        binding = _bind(tensor, batches, model_dims)
        bindings[binding.name] = binding
    for given in given_inputs(config):
        if given.role != "batch input":
            bindings[given.name] = Binding(given.name, given.datatype, given.dims, None, batches)
    return bindings


def bind_outputs(config: JsonObject, model_dims: Mapping[str, Shape]) -> tuple[Binding, ...]:
    """The outputs that a model is asked for: those that clients see, and those that become states."""
    batches = config.get("max_batch_size", 0) > 0
    sources = {
        target: batch_output["source_input"][0]
        for batch_output in config.get("batch_output", ())
        for target in batch_output["target_name"]
    }
    bindings = {
        tensor["name"]: _bind(tensor, batches, model_dims, sources.get(tensor["name"], ""))
        for tensor in config.get("output", ())
    }
    for kept in kept_outputs(config):
        if kept.name not in bindings:
            bindings[kept.name] = Binding(kept.name, kept.datatype, kept.dims, None, batches)
    return tuple(bindings.values())


def _bind(tensor: JsonObject, batches: bool, model_dims: Mapping[str, Shape], source: str = "") -> Binding:
    name = tensor["name"]
    dims = tuple(int(dim) for dim in tensor["dims"])
    reshape = tensor.get("reshape")
    model = dims if reshape is None else tuple(int(dim) for dim in reshape.get("shape", ()))
    model = model_dims.get(name, model)
    is_shape_tensor = bool(tensor.get("is_shape_tensor", False))
    return Binding(
        name,
        CONFIG_DATATYPES[tensor["data_type"]].name,
        dims,
        None if model == dims else model,
        batches and not is_shape_tensor,
        is_ragged=bool(tensor.get("allow_ragged_batch", False)),
        is_shape_tensor=is_shape_tensor,
        source=source,
    )
