"""Reshape: tensors that have other dimensions for a model than for its clients.

Done for every backend alike: inputs when their request has been checked, outputs when their response is on
its way. A backend sees the shapes of `reshape` only. No byte is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from tritonpy.errors import Internal
from tritonpy.json_object import JsonObject
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """The change of one tensor's shape.

    Attributes:
        lead: dimensions of the batch, 1 or 0.
        source: dims of the shape that comes.
        target: dims of the shape that goes on.
    """

    lead: int
    source: Shape
    target: Shape

    def apply(self, shape: Shape) -> Shape:
        """The new shape; the n-th variable size becomes the n-th variable size."""
        sizes = [size for size, dim in zip(shape[self.lead :], self.source, strict=False) if dim == -1]
        moved = (sizes.pop(0) if dim == -1 and sizes else dim for dim in self.target)
        return (*shape[: self.lead], *moved)


class Reshape:
    """The tensors of one model that are reshaped, by name.

    Attributes:
        inputs: from clients to the model.
        outputs: from the model to clients.
    """

    def __init__(self, inputs: Mapping[str, Move], outputs: Mapping[str, Move], model_name: str) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._model_name = model_name

    def to_model(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs of a request that has been checked, as the model takes them."""
        moves = self.inputs
        return {
            name: tensor.reshaped(moves[name].apply(tensor.shape)) if name in moves else tensor
            for name, tensor in inputs.items()
        }

    def to_clients(self, response: InferResponse) -> InferResponse:
        """Give the outputs of a response the shapes that clients expect.

        Returns:
            The response, or an error in its place if the model gave an output of a shape that cannot be.
        """
        for index, tensor in enumerate(response.outputs):
            move = self.outputs.get(tensor.name)
            if move is None:
                continue
            shape = move.apply(tensor.shape)
            if prod(shape) != tensor.element_count:
                error = Internal(
                    f"model '{self._model_name}' gave output '{tensor.name}' of shape {list(tensor.shape)}, "
                    f"expected {[-1] * move.lead + list(move.source)}, the 'shape' of its 'reshape'"
                )
                return InferResponse(error=error)
            response.outputs[index] = tensor.reshaped(shape)
        return response


def read_reshape(config: JsonObject) -> Reshape | None:
    """The reshapes of a complete configuration; None for none."""
    lead = 1 if config.get("max_batch_size", 0) > 0 else 0
    inputs = {name: Move(lead, dims, shape) for name, dims, shape in _reshaped(config.get("input", ()))}
    outputs = {name: Move(lead, shape, dims) for name, dims, shape in _reshaped(config.get("output", ()))}
    return Reshape(inputs, outputs, config["name"]) if inputs or outputs else None


def _reshaped(tensors: Iterable[JsonObject]) -> Iterable[tuple[str, Shape, Shape]]:
    for tensor in tensors:
        if "reshape" in tensor:
            yield tensor["name"], _dims(tensor["dims"]), _dims(tensor["reshape"].get("shape", ()))


def _dims(dims: Iterable[int | str]) -> Shape:
    return tuple(int(dim) for dim in dims)
