"""Tensors of several requests put into one batch, and the outputs of a batch cut into responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod

import numpy as np

from tritonpy.batches.batch_inputs import BatchInput
from tritonpy.batches.bindings import Binding, Shape
from tritonpy.buffers import BlockPool
from tritonpy.errors import Internal, InvalidArg
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Array, Tensor

Feeds = dict[str, Array]

ReadTensor = Callable[[Binding, Tensor], Array]
"""Makes an array of a tensor, of the type that the framework takes."""


class Entry:
    """One request of a batch with its arrays in the shapes that the model wants.

    Attributes:
        index: of its response.
        request: the request.
        feeds: its inputs by name.
        row_count: its part of the batch's first dimension.
    """

    __slots__ = ("feeds", "index", "request", "row_count")

    def __init__(self, index: int, request: InferRequest, feeds: Feeds, row_count: int) -> None:
        self.index = index
        self.request = request
        self.feeds = feeds
        self.row_count = row_count


def open_request(index: int, request: InferRequest, inputs: Mapping[str, Binding], read: ReadTensor) -> Entry:
    """Make arrays of a request's tensors, with as few copies as possible.

    Raises:
        InvalidArg: it has an input that the model has not, or one that cannot be read.
    """
    feeds: Feeds = {}
    row_count = -1
    for name, tensor in request.inputs.items():
        binding = inputs.get(name)
        if binding is None:
            raise InvalidArg(f"unexpected inference input '{name}' for model '{request.model_name}'")
        array = read(binding, tensor)
        if binding.is_scalar:
            array = array.reshape(())
        if row_count < 0 and binding.batches:
            row_count = array.shape[0]  # not `batch_size`, which is 1 for a request of zero rows
        feeds[name] = array
    return Entry(index, request, feeds, request.batch_size if row_count < 0 else row_count)


def group(entries: Sequence[Entry], inputs: Mapping[str, Binding]) -> Iterable[Sequence[Entry]]:
    """Split requests into groups that can be stacked, in the order of each group's first request.

    They have the same inputs, rows of the same shape in all but ragged ones, and equal shape tensors.
    """
    if len(entries) == 1:
        return (entries,)
    groups: dict[object, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(_kind_of(entry, inputs), []).append(entry)
    return groups.values()


def _kind_of(entry: Entry, inputs: Mapping[str, Binding]) -> object:
    kind: list[object] = []
    feeds = entry.feeds
    for name in sorted(feeds):
        binding, array = inputs[name], feeds[name]
        kind.append(name)
        if binding.is_shape_tensor:
            kind += (array.shape, array.tobytes())
        elif not binding.is_ragged:
            kind.append(array.shape[1:])
    return tuple(kind)


def gather(
    entries: Sequence[Entry],
    inputs: Mapping[str, Binding],
    batch_inputs: Sequence[BatchInput],
    pool: BlockPool,
) -> Feeds:
    """Stack the requests of a group: one copy for several requests, none for one.

    Raises:
        InvalidArg: a batch input is made from an optional input that is not there.
    """
    feeds = {}
    first = entries[0].feeds
    for name in first:
        binding = inputs[name]
        if binding.is_shape_tensor:
            feeds[name] = first[name]
        elif binding.is_ragged:
            feeds[name] = _joined([entry.feeds[name].reshape(-1) for entry in entries], pool)
        else:
            feeds[name] = _joined([entry.feeds[name] for entry in entries], pool)
    for batch_input in batch_inputs:
        if batch_input.source not in first:
            request = entries[0].request
            raise InvalidArg(
                f"{request.label}batch input '{batch_input.names[0]}' of model '{request.model_name}' is "
                f"made from input '{batch_input.source}', which the request does not have; do not let it be "
                f"'optional'"
            )
        array = batch_input.make([entry.feeds[batch_input.source].shape for entry in entries])
        for name in batch_input.names:
            feeds[name] = array
    return feeds


def _joined(arrays: Sequence[Array], pool: BlockPool) -> Array:
    if len(arrays) > 1:
        return _stacked(arrays, pool)
    array = arrays[0]
    # Elements at odd addresses are what kernels need not put up with.
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return _stacked(arrays, pool) if array.ndim else array.copy()


def _stacked(arrays: Sequence[Array], pool: BlockPool) -> Array:
    first = arrays[0]
    if first.dtype == object:
        return np.concatenate(arrays)
    shape = (sum(array.shape[0] for array in arrays), *first.shape[1:])
    block = pool.lease(sum(array.nbytes for array in arrays)).view(first.dtype).reshape(shape)
    return np.concatenate(arrays, out=block)


def scatter(
    outputs: Sequence[tuple[Binding, Array]], entries: Sequence[Entry], model_name: str
) -> dict[int, InferResponse]:
    """The responses of requests that were executed together, by index.

    Raises:
        Internal: an output is not as large as the batch.
    """
    responses = {entry.index: InferResponse() for entry in entries}
    for binding, array in outputs:
        name, datatype = binding.name, binding.datatype
        for entry, part in zip(entries, _parts(binding, array, entries, model_name), strict=True):
            if entry.request.wants(name):
                responses[entry.index].outputs.append(Tensor.from_numpy(name, part, datatype))
    return responses


def _parts(binding: Binding, array: Array, entries: Sequence[Entry], model_name: str) -> Iterator[Array]:
    if binding.source:
        yield from _pieces(binding, array, entries, model_name)
        return
    if binding.batches:
        total = sum(entry.row_count for entry in entries)
        if array.shape[:1] != (total,):
            raise Internal(
                f"model '{model_name}' gave output '{binding.name}' of shape {list(array.shape)} for a batch "
                f"of {total}; expected {total} as first dimension"
            )
    if binding.is_scalar:
        array = array.reshape(binding.dims)
    if len(entries) == 1 or not binding.batches:
        yield from (array for _ in entries)
        return
    first = 0
    for entry in entries:
        last = first + entry.row_count
        yield array[first:last]
        first = last


def _pieces(binding: Binding, array: Array, entries: Sequence[Entry], model_name: str) -> Iterator[Array]:
    """The parts of an output that is cut by the shapes of an input."""
    where = f"model '{model_name}' gave output '{binding.name}' of shape {list(array.shape)}"
    shapes = [_piece_shape(binding, entry, where) for entry in entries]
    counts = [prod(shape) for shape in shapes]
    if sum(counts) != array.size:
        raise Internal(
            f"{where}; expected {sum(counts)} elements, as many as the shapes of input '{binding.source}' "
            f"make with its dims in 'output' (batch_output BATCH_SCATTER_WITH_INPUT_SHAPE)"
        )
    elements = array.reshape(-1)
    first = 0
    for shape, count in zip(shapes, counts, strict=True):
        yield elements[first : first + count].reshape(shape)
        first += count


def _piece_shape(binding: Binding, entry: Entry, where: str) -> Shape:
    """The output's dims, with each variable one taken from the input at the same position."""
    source = entry.feeds.get(binding.source)
    dims = (-1, *binding.dims) if binding.batches else binding.dims
    free = [index for index, dim in enumerate(dims) if dim == -1]
    if source is None or (free and free[-1] >= source.ndim):
        shape = "no such input" if source is None else f"shape {list(source.shape)}"
        raise Internal(
            f"{where}, which is cut by the shape of input '{binding.source}', but the request has {shape} "
            f"and the output {len(dims)} dimensions {list(dims)}"
        )
    return tuple(source.shape[index] if dim == -1 else dim for index, dim in enumerate(dims))
