"""The session behind one instance: from requests to one call of ONNX Runtime and back."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.plugin import (
    DATATYPES,
    Array,
    Binding,
    InferRequest,
    InferResponse,
    ModelInstance,
    Tensor,
)

from tritonpy_backend_onnxruntime.bfloat16 import run_with_bfloat16
from tritonpy_backend_onnxruntime.framework import framework_error
from tritonpy_backend_onnxruntime.model import OnnxModel, Session
from tritonpy_backend_onnxruntime.options import run_options
from tritonpy_backend_onnxruntime.strings import decode_strings


class InstanceSession:
    """Executes batches; used by one instance's thread only.

    Args:
        model: the loaded model, bound to its configuration.
        session: an `InferenceSession`, perhaps shared with other instances.
    """

    def __init__(self, model: OnnxModel, session: Session) -> None:
        self._ort = model.framework.ort
        self._plan = model.plan
        self._session = session
        self._run_options = run_options(model.framework, model.settings)
        self._bfloat16 = frozenset(
            binding.name for binding in model.plan.bindings if binding.datatype == "BF16"
        )

    def execute(self, instance: ModelInstance, requests: Sequence[InferRequest]) -> list[InferResponse]:
        """Answer every request, in as few calls of ONNX Runtime as they allow; see `BatchPlan`."""
        model_name = instance.model.name

        def read(binding: Binding, tensor: Tensor) -> Array:
            array = tensor.numpy()
            if binding.datatype == "BYTES":
                return decode_strings(array, binding.name, model_name)
            wanted = DATATYPES[binding.datatype].numpy
            return array if array.dtype == wanted else array.astype(wanted)  # the other byte order

        def run(feeds: dict[str, Array], names: list[str]) -> list[Array]:
            start = instance.now_ns()
            arrays = self._call(names, feeds)
            instance.report_compute(instance.compute_start_ns or start, instance.now_ns())
            return arrays

        return self._plan.execute(requests, run, read)

    def _call(self, names: list[str], feeds: dict[str, Array]) -> list[Array]:
        try:
            if self._bfloat16:
                return run_with_bfloat16(
                    self._ort, self._session, names, feeds, self._bfloat16, self._run_options
                )
            arrays: list[Array] = self._session.run(names, feeds, self._run_options)
            return arrays
        except Exception as exc:  # onnxruntime's exceptions have no common base
            raise framework_error(exc) from exc
