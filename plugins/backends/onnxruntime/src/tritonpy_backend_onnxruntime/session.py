"""The session behind one instance: from requests to one call of ONNX Runtime and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tritonpy.plugin import (
    DATATYPES,
    Array,
    BlockPool,
    InferRequest,
    InferResponse,
    Internal,
    InvalidArg,
    ModelInstance,
    TritonError,
)

from tritonpy_backend_onnxruntime.bfloat16 import run_with_bfloat16
from tritonpy_backend_onnxruntime.framework import framework_error
from tritonpy_backend_onnxruntime.model import OnnxModel, Session
from tritonpy_backend_onnxruntime.options import run_options
from tritonpy_backend_onnxruntime.signature import Binding
from tritonpy_backend_onnxruntime.strings import decode_strings

Feeds = dict[str, Array]


class InstanceSession:
    """Executes batches; used by one instance's thread only.

    Args:
        model: the loaded model, bound to its configuration.
        session: an `InferenceSession`, perhaps shared with other instances.
    """

    def __init__(self, model: OnnxModel, session: Session) -> None:
        self._ort = model.framework.ort
        self._pool = model.framework.pool
        self._session = session
        self._inputs = {binding.name: binding for binding in model.inputs}
        self._outputs = model.outputs
        self._run_options = run_options(model.framework, model.settings)
        self._bfloat16 = frozenset(
            binding.name for binding in model.inputs + model.outputs if binding.datatype == "BF16"
        )

    def execute(self, instance: ModelInstance, requests: Sequence[InferRequest]) -> list[InferResponse]:
        """Answer every request: all in one call where they fit together, alone where that fails.

        Running them alone after a failure keeps a value that only the model can refuse, such as an index
        out of range, from failing the requests it happened to be batched with.
        """
        responses: dict[int, InferResponse] = {}
        feeds: dict[int, Feeds] = {}
        for index, request in enumerate(requests):
            try:
                feeds[index] = self._feeds(request, instance.model.name)
            except TritonError as exc:
                responses[index] = InferResponse(error=exc)
        fits = instance.model.max_batch_size > 0 and len({_key(feed) for feed in feeds.values()}) == 1
        if len(feeds) > 1 and fits:
            try:
                responses |= self._run(instance, requests, feeds)
                return [responses[index] for index in range(len(requests))]
            except TritonError:
                pass
        for index, feed in feeds.items():
            try:
                responses |= self._run(instance, requests, {index: feed})
            except TritonError as exc:
                responses[index] = InferResponse(error=exc)
        return [responses[index] for index in range(len(requests))]

    def _feeds(self, request: InferRequest, model_name: str) -> Feeds:
        feeds: Feeds = {}
        for name, tensor in request.inputs.items():
            binding = self._inputs.get(name)
            if binding is None:
                raise InvalidArg(f"unexpected inference input '{name}' for model '{model_name}'")
            array = tensor.numpy()
            if binding.datatype == "BYTES":
                array = decode_strings(array, name, model_name)
            elif array.dtype != DATATYPES[binding.datatype].numpy:  # the other byte order
                array = array.astype(DATATYPES[binding.datatype].numpy)
            feeds[name] = array if binding.model is None else array.reshape(binding.to_model(array.shape))
        return feeds

    def _run(
        self, instance: ModelInstance, requests: Sequence[InferRequest], feeds: Mapping[int, Feeds]
    ) -> dict[int, InferResponse]:
        """Run the requests that `feeds` names in one call and return their responses."""
        wanted = [
            binding
            for binding in self._outputs
            if any(requests[index].wants(binding.name) for index in feeds)
        ]
        batch = _gather(list(feeds.values()), self._pool)
        start = instance.now_ns()
        arrays = self._call([binding.name for binding in wanted], batch) if wanted else []
        instance.report_compute(instance.compute_start_ns or start, instance.now_ns())
        del batch  # its block may be used again while the outputs are on their way

        responses = {index: InferResponse() for index in feeds}
        rows = {index: _row_count(feed, requests[index]) for index, feed in feeds.items()}
        total = sum(rows.values())
        for binding, array in zip(wanted, arrays, strict=True):
            if binding.batches and array.shape[:1] != (total,):
                raise Internal(
                    f"model '{instance.model.name}' gave output '{binding.name}' of shape "
                    f"{list(array.shape)} for a batch of {total}; expected {total} as first dimension"
                )
            first = 0
            for index, count in rows.items():
                part = array[first : first + count] if len(rows) > 1 else array
                first += count
                if requests[index].wants(binding.name):
                    _add_output(responses[index], binding, part)
        return responses

    def _call(self, names: list[str], feeds: Feeds) -> list[Array]:
        try:
            if self._bfloat16:
                return run_with_bfloat16(
                    self._ort, self._session, names, feeds, self._bfloat16, self._run_options
                )
            arrays: list[Array] = self._session.run(names, feeds, self._run_options)
            return arrays
        except Exception as exc:  # onnxruntime's exceptions have no common base
            raise framework_error(exc) from exc


def _key(feeds: Feeds) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Equal for requests that can be put one under the other."""
    return tuple(sorted((name, array.shape[1:]) for name, array in feeds.items()))


def _row_count(feeds: Feeds, request: InferRequest) -> int:
    """Rows of a request for a model that batches; a request of zero rows still has `batch_size` 1."""
    first = next(iter(feeds.values()), None)
    return request.batch_size if first is None or not first.shape else first.shape[0]


def _gather(requests: Sequence[Feeds], pool: BlockPool) -> Feeds:
    """Put requests one under the other: one copy for many, none for one."""
    if len(requests) == 1:
        return {name: _usable(array, pool) for name, array in requests[0].items()}
    return {name: _stacked([feeds[name] for feeds in requests], pool) for name in requests[0]}


def _usable(array: Array, pool: BlockPool) -> Array:
    """The array itself, unless its elements lie at odd addresses, which kernels need not put up with."""
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return _stacked([array], pool) if array.ndim else array.copy()


def _stacked(arrays: Sequence[Array], pool: BlockPool) -> Array:
    first = arrays[0]
    if first.dtype == object:
        return np.concatenate(arrays)
    shape = (sum(array.shape[0] for array in arrays), *first.shape[1:])
    block = pool.lease(sum(array.nbytes for array in arrays)).view(first.dtype).reshape(shape)
    return np.concatenate(arrays, out=block)


def _add_output(response: InferResponse, binding: Binding, array: Array) -> None:
    if binding.model is not None:
        array = array.reshape(binding.to_client(array.shape))
    response.add(binding.name, array, "BF16" if binding.datatype == "BF16" else None)
