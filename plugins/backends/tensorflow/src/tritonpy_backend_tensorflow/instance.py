"""One instance of a model: from requests to one call of its session and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonpy.plugin import (
    DATATYPES,
    Array,
    Binding,
    InferRequest,
    InferResponse,
    InvalidArg,
    ModelInstance,
    Tensor,
)

from tritonpy_backend_tensorflow.model import TensorFlowModel


class TensorFlowInstance:
    """Executes batches; used by one instance's thread only.

    Args:
        instance: whose model is loaded and bound to its configuration.
    """

    def __init__(self, instance: ModelInstance) -> None:
        model: TensorFlowModel = instance.model.state
        self._instance = instance
        self._model = model
        self._plan = model.plan
        self._sizes = model.sizes
        self._graph = model.take(instance)
        self._has_bfloat16 = any(binding.datatype == "BF16" for binding in model.plan.bindings)
        self._bfloat16: Any = model.framework.tf.bfloat16.as_numpy_dtype  # Any: a class of an extension

    def close(self) -> None:
        """Let go of the session."""
        self._model.give_back(self._graph)

    def execute(self, requests: Sequence[InferRequest]) -> list[InferResponse]:
        """Answer every request, in as few calls as they allow; see `BatchPlan`."""
        return self._plan.execute(requests, self._run, _read)

    def _run(self, feeds: dict[str, Array], names: list[str]) -> list[Array]:
        instance = self._instance
        for name, axis, size in self._sizes:
            if name in feeds and feeds[name].shape[axis] != size:
                raise InvalidArg(
                    f"input '{name}' of model '{instance.model.name}' has size {feeds[name].shape[axis]} in "
                    f"dimension {axis}, the model takes {size}"
                )
        if self._has_bfloat16:
            feeds = {name: self._typed(name, array) for name, array in feeds.items()}
        start = instance.now_ns()
        arrays = self._graph.call(feeds, names)
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
    return array if array.dtype == wanted else array.astype(wanted)  # TensorFlow takes no other byte order
