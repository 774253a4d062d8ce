"""One instance of a model: from requests to one call of its interpreter and back."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.plugin import DATATYPES, Array, Binding, InferRequest, InferResponse, ModelInstance, Tensor

from tritonpy_backend_litert.calls import call_of
from tritonpy_backend_litert.framework import framework_error
from tritonpy_backend_litert.model import LiteModel


class LiteInstance:
    """Executes batches; used by one instance's thread only.

    Args:
        instance: whose model is loaded and bound to its configuration.

    Raises:
        Internal: LiteRT cannot prepare the model.
    """

    def __init__(self, instance: ModelInstance) -> None:
        model: LiteModel = instance.model.state
        self._instance = instance
        self._plan = model.plan
        self._bfloat16 = model.framework.bfloat16
        self._has_bfloat16 = any(binding.datatype == "BF16" for binding in model.plan.bindings)
        try:
            self._call = call_of(model.make_interpreter(), model.signature)
        except (RuntimeError, ValueError) as exc:
            raise framework_error(exc, f"failed to load model '{instance.model.name}': ") from exc

    def execute(self, requests: Sequence[InferRequest]) -> list[InferResponse]:
        """Answer every request, in as few calls as they allow; see `BatchPlan`."""
        return self._plan.execute(requests, self._run, _read)

    def _run(self, feeds: dict[str, Array], names: list[str]) -> list[Array]:
        instance = self._instance
        if self._has_bfloat16:
            feeds = {name: self._typed(name, array) for name, array in feeds.items()}
        start = instance.now_ns()
        try:
            arrays = self._call.run(feeds, names)
        except (RuntimeError, ValueError) as exc:
            raise framework_error(exc) from exc
        instance.report_compute(instance.compute_start_ns or start, instance.now_ns())
        if self._has_bfloat16:
            arrays = [array.view("u2") if array.dtype == self._bfloat16 else array for array in arrays]
        return arrays

    def _typed(self, name: str, array: Array) -> Array:
        binding = self._plan.inputs.get(name)
        is_bfloat16 = binding is not None and binding.datatype == "BF16"
        return array.view(self._bfloat16) if is_bfloat16 else array


def _read(binding: Binding, tensor: Tensor) -> Array:
    array = tensor.numpy()
    wanted = DATATYPES[binding.datatype].numpy
    return (
        array if array.dtype == wanted else array.astype(wanted)
    )  # LiteRT takes other byte orders as its own
