"""Rows that only fill a batch up to a size that its model can execute."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tritonpy.request import InferRequest, NullRequest
from tritonpy.tensor import Tensor


def null_rows(
    requests: Sequence[InferRequest], count: int, shape_tensors: Collection[str] = ()
) -> list[NullRequest]:
    """Make null requests of one row each, which go with a batch.

    They carry a row of one of its requests, not zeros: a model may choke on what nobody would send. Nothing
    is copied where a request of the batch has one row only.

    Args:
        requests: the batch.
        count: how many.
        shape_tensors: inputs that have no batch dimension.

    Raises:
        InvalidArg: the bytes of an input are not what its shape says.
    """
    like = next((request for request in requests if request.batch_size == 1), requests[-1])
    inputs = like.inputs
    if like.batch_size != 1:
        inputs = {
            name: tensor if name in shape_tensors else _first_row(tensor) for name, tensor in inputs.items()
        }
    return [NullRequest(like.model_name, dict(inputs)) for _ in range(count)]


def _first_row(tensor: Tensor) -> Tensor:
    return Tensor.from_numpy(tensor.name, tensor.numpy()[:1], tensor.datatype)
