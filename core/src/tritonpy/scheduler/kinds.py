"""Which requests may share a batch, as far as their inputs are concerned."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.request import InferRequest

Kind = tuple[object, ...]


class RequestKinds:
    """Tells requests apart whose inputs cannot be put together.

    Args:
        lead: how many dimensions the batch takes; 1 or 0.
        equal_shape_inputs: inputs whose shapes must be the same throughout a batch.
        has_optional_inputs: only requests with the same set of inputs go together.
    """

    def __init__(self, lead: int, equal_shape_inputs: Sequence[str], *, has_optional_inputs: bool) -> None:
        self._lead = lead
        self._equal_shape_inputs = tuple(equal_shape_inputs)
        self._has_optional_inputs = has_optional_inputs

    def of(self, request: InferRequest) -> Kind:
        """What is equal for all requests that may share a batch."""
        inputs = request.inputs
        kind: Kind = tuple(
            [inputs[name].shape[self._lead :] for name in self._equal_shape_inputs if name in inputs]
        )
        return (*kind, *sorted(inputs)) if self._has_optional_inputs else kind
