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
    Tensor,
    TritonError,
)

from tritonpy_backend_onnxruntime.bfloat16 import run_with_bfloat16
from tritonpy_backend_onnxruntime.framework import framework_error
from tritonpy_backend_onnxruntime.model import OnnxModel, Session
from tritonpy_backend_onnxruntime.options import run_options
from tritonpy_backend_onnxruntime.signature import Binding
from tritonpy_backend_onnxruntime.strings import decode_strings

Feeds = dict[str, Array]


class _Entry:
    """One request of a batch with its arrays in the shapes that the model wants."""

    __slots__ = ("feeds", "index", "request", "row_count")

    def __init__(self, index: int, request: InferRequest, feeds: Feeds) -> None:
        self.index = index
        self.request = request
        self.feeds = feeds
        # Not `batch_size`, which is 1 for a request of zero rows. Models that do not batch ignore it.
        first = next(iter(feeds.values()), None)
        self.row_count = request.batch_size if first is None or not first.shape else first.shape[0]


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
        model_name = instance.model.name
        responses: dict[int, InferResponse] = {}
        entries: list[_Entry] = []
        for index, request in enumerate(requests):
            try:
                entries.append(_Entry(index, request, self._feeds(request, model_name)))
            except TritonError as exc:
                responses[index] = InferResponse(error=exc)
        if instance.model.max_batch_size > 0 and len(entries) > 1 and _fit_together(entries):
            try:
                responses |= self._run(instance, entries)
                entries = []
            except TritonError:
                pass
        for entry in entries:
            try:
                responses |= self._run(instance, [entry])
            except TritonError as exc:
                responses[entry.index] = InferResponse(error=exc)
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

    def _run(self, instance: ModelInstance, entries: Sequence[_Entry]) -> dict[int, InferResponse]:
        """Run requests that fit together in one call and return their responses by index."""
        wanted = self._outputs
        if all(entry.request.requested_outputs is not None for entry in entries):
            wanted = tuple(
                binding for binding in wanted if any(entry.request.wants(binding.name) for entry in entries)
            )
        batch = _gather(entries, self._pool)
        start = instance.now_ns()
        arrays = self._call([binding.name for binding in wanted], batch) if wanted else []
        instance.report_compute(instance.compute_start_ns or start, instance.now_ns())
        del batch  # its block may be used again while the outputs are on their way

        responses = {entry.index: InferResponse() for entry in entries}
        total = sum(entry.row_count for entry in entries)
        for binding, array in zip(wanted, arrays, strict=True):
            if binding.batches and array.shape[:1] != (total,):
                raise Internal(
                    f"model '{instance.model.name}' gave output '{binding.name}' of shape "
                    f"{list(array.shape)} for a batch of {total}; expected {total} as first dimension"
                )
            if binding.model is not None:
                array = array.reshape(binding.to_client(array.shape))
            _hand_out(binding, array, entries, responses)
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


def _fit_together(entries: Sequence[_Entry]) -> bool:
    """Whether the requests can be put one under the other; those with optional inputs may differ."""
    first = entries[0].feeds
    shapes = [(name, array.shape[1:]) for name, array in first.items()]
    return all(
        len(entry.feeds) == len(first)
        and all(name in entry.feeds and entry.feeds[name].shape[1:] == shape for name, shape in shapes)
        for entry in entries
    )


def _gather(entries: Sequence[_Entry], pool: BlockPool) -> Feeds:
    """Put requests one under the other: one copy for many, none for one."""
    if len(entries) == 1:
        return {name: _usable(array, pool) for name, array in entries[0].feeds.items()}
    return {name: _stacked([entry.feeds[name] for entry in entries], pool) for name in entries[0].feeds}


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


def _hand_out(
    binding: Binding, array: Array, entries: Sequence[_Entry], responses: Mapping[int, InferResponse]
) -> None:
    """Give each request that wants an output its rows of it; nothing is copied."""
    name, datatype = binding.name, binding.datatype
    first = 0
    for entry in entries:
        last = first + entry.row_count
        if entry.request.wants(name):
            rows = array[first:last] if len(entries) > 1 else array
            responses[entry.index].outputs.append(Tensor.from_numpy(name, rows, datatype))
        first = last
