"""The outputs of a batch into responses: each request gets its part, and nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tritonpy.batches.bindings import Binding, Shape
from tritonpy.batches.gather import Entry
from tritonpy.errors import Internal
from tritonpy.response import InferResponse
from tritonpy.tensor import Array, Tensor


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
    """The output's dims, where each that may be any is that of the input at the same place."""
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
