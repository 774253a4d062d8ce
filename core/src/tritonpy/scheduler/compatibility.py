"""Compatibility of requests: those that may share a batch, judged by their inputs."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.handles import JsonObject
from tritonpy.request import InferRequest

Kind = tuple[object, ...]


class RequestKinds:
    """Finds the requests whose inputs can be stacked in a batch: those of equal kind.

    Args:
        lead: how many dimensions the batch takes; 1 or 0.
        equal_shape_inputs: inputs whose shapes must be the same throughout a batch.
        has_optional_inputs: only requests with the same set of inputs go together.
        shape_tensors: inputs whose values must be the same throughout a batch.

    Attributes:
        shape_tensors: as given; they have no batch dimension.
    """

    def __init__(
        self,
        lead: int,
        equal_shape_inputs: Sequence[str],
        *,
        has_optional_inputs: bool,
        shape_tensors: Sequence[str] = (),
    ) -> None:
        self._lead = lead
        self._equal_shape_inputs = tuple(equal_shape_inputs)
        self.shape_tensors = tuple(shape_tensors)
        self._has_optional_inputs = has_optional_inputs

    def of(self, request: InferRequest) -> Kind:
        """The part of a request that is equal for all that may share its batch."""
        inputs = request.inputs
        kind: Kind = tuple(
            [inputs[name].shape[self._lead :] for name in self._equal_shape_inputs if name in inputs]
        )
        if self.shape_tensors:
            given = [inputs[name] for name in self.shape_tensors if name in inputs]
            kind = (*kind, *((tensor.shape, bytes(tensor.wire())) for tensor in given))
        return (*kind, *sorted(inputs)) if self._has_optional_inputs else kind


def read_kinds(config: JsonObject) -> RequestKinds:
    """The kinds of requests for a model with this configuration.

    Inputs that may have any size need equal shapes, unless they are ragged; shape tensors need equal values.
    """
    inputs: Sequence[JsonObject] = config.get("input", ())
    return RequestKinds(
        1 if config.get("max_batch_size", 0) > 0 else 0,
        [
            tensor["name"]
            for tensor in inputs
            if -1 in map(int, tensor["dims"])
            and not (tensor.get("allow_ragged_batch", False) or tensor.get("is_shape_tensor", False))
        ],
        has_optional_inputs=any(tensor.get("optional", False) for tensor in inputs),
        shape_tensors=[tensor["name"] for tensor in inputs if tensor.get("is_shape_tensor", False)],
    )
