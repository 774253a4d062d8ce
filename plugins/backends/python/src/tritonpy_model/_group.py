"""Requests of a batch that are answered by one call: their arrays joined, and its outputs taken apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Union

import numpy as np
import triton_python_backend_utils as pb_utils

Array = np.ndarray[Any, Any]  # Any: the element type is known only at run time
ArrayOrList = Union[Array, list[Array]]  # noqa: UP007 (evaluated, also by Python 3.9)


def groups_of(requests: Sequence[pb_utils.InferenceRequest], ragged: Collection[str]) -> list[Group]:
    """Put together the requests that carry the same inputs.

    Args:
        requests: a batch, as `execute` receives it.
        ragged: the inputs that are never joined.

    Returns:
        Groups in the order of their first requests. A request without inputs, or of a model that does not
        batch, is a group of its own.
    """
    batches = _batches(requests)
    carried = [{tensor.name(): tensor.as_numpy() for tensor in request.inputs()} for request in requests]
    names = carried[0].keys() if carried else ()
    if len(carried) == 1 or (names and batches is not False and all(one.keys() == names for one in carried)):
        return [Group(range(len(carried)), carried, ragged, batches is True)]
    members: dict[object, list[int]] = {}
    for index, arrays in enumerate(carried):
        stands_alone = not arrays or batches is False
        members.setdefault(index if stands_alone else frozenset(arrays), []).append(index)
    return [
        Group(indices, [carried[index] for index in indices], ragged, batches is True)
        for indices in members.values()
    ]


def _batches(requests: Sequence[pb_utils.InferenceRequest]) -> bool | None:
    """True if the first dimension is the batch's; None where the server does not say, as Triton's."""
    server = getattr(requests[0], "_server", None) if requests else None
    limit = getattr(server, "max_batch_size", None)
    return None if limit is None else limit > 0


class Group:
    """Requests with the same inputs, and what one call makes of them.

    Args:
        indices: their places in the batch.
        carried: the arrays of each, by name.
        ragged: the inputs that are never joined.
        batches: the first dimension is known to be the batch's, also when there is one request only.

    Attributes:
        inputs: an array for each input, of all rows; a list of arrays, one for each request, where these
            differ in other dimensions than the first. Of a single request it is its own array.
    """

    __slots__ = ("_indices", "_rows", "inputs")

    def __init__(
        self,
        indices: Sequence[int],
        carried: Sequence[Mapping[str, Array]],
        ragged: Collection[str],
        batches: bool,
    ) -> None:
        self._indices = indices
        # How many rows each request has; None for one request whose first dimension may mean anything.
        self._rows: list[int] | None = None
        if carried[0] and (batches or len(indices) > 1):
            self._rows = _row_counts(carried)
        self.inputs: dict[str, ArrayOrList]
        if len(carried) == 1 and not ragged:
            self.inputs = dict(carried[0])
        else:
            self.inputs = {
                name: _joined([arrays[name] for arrays in carried], name in ragged) for name in carried[0]
            }

    def answer(self, outputs: object, responses: list[pb_utils.InferenceResponse]) -> None:
        """Give each request its own part of the outputs.

        Args:
            outputs: what `execute` returned.
            responses: those of the whole batch; the group's are put in their places.

        Raises:
            TypeError: these are no arrays by name.
            TritonModelException: an output has another number of rows than the inputs, or is a list of
                another length than the group.
        """
        if type(outputs) is not dict and not isinstance(outputs, Mapping):
            raise TypeError(
                f"execute returned {type(outputs).__name__}, expected a dict from names of outputs to arrays"
            )
        tensors: list[list[pb_utils.Tensor]] = [[] for _ in self._indices]
        for name, value in outputs.items():
            parts = self._parts(name, value)
            try:
                for own, array in zip(tensors, parts):  # noqa: B905 (Python 3.9)
                    own.append(pb_utils.Tensor(name, array))
            except pb_utils.TritonModelException as exc:
                raise pb_utils.TritonModelException(f"output '{name}' of dtype {array.dtype}: {exc}") from exc
        for index, own in zip(self._indices, tensors):  # noqa: B905 (Python 3.9)
            responses[index] = pb_utils.InferenceResponse(own)

    def _parts(self, name: str, value: object) -> list[Array]:
        if isinstance(value, (list, tuple)):
            return self._listed(name, value)
        array = value if type(value) is np.ndarray else _array(name, value)
        rows = self._rows
        if rows is None:
            return [array]
        _check_rows(name, array, sum(rows), rows)
        if len(rows) == 1:
            return [array]
        parts = []
        end = 0
        for count in rows:
            start, end = end, end + count
            parts.append(array[start:end])
        return parts

    def _listed(self, name: str, values: Sequence[object]) -> list[Array]:
        count = len(self._indices)
        if len(values) != count:
            raise pb_utils.TritonModelException(
                f"output '{name}': got a list of {len(values)} arrays, expected one for each request, {count}"
            )
        arrays = [_array(name, value) for value in values]
        for index, rows in enumerate(self._rows or ()):
            _check_rows(name, arrays[index], rows, index)
        return arrays


def _joined(arrays: list[Array], is_ragged: bool) -> ArrayOrList:
    if is_ragged:
        return arrays
    if len(arrays) == 1:
        return arrays[0]
    try:
        return np.concatenate(arrays)
    except ValueError:  # other dimensions than the first differ
        return arrays


def _row_counts(carried: Sequence[Mapping[str, Array]]) -> list[int]:
    name = next(iter(carried[0]))
    try:
        return [arrays[name].shape[0] for arrays in carried]
    except IndexError:
        raise pb_utils.TritonModelException(
            f"input '{name}': got a scalar, expected the rows of the batch in its first dimension"
        ) from None


def _check_rows(name: str, array: Array, rows: int, whose: list[int] | int) -> None:
    """Refuse an array that has not `rows` rows; those of all requests of a call, or of one."""
    if array.ndim and array.shape[0] == rows:
        return
    if isinstance(whose, int):
        of = f"request {whose}"
    else:
        of = "the one request" if len(whose) == 1 else f"the {len(whose)} requests"
    raise pb_utils.TritonModelException(
        f"output '{name}': got shape {list(array.shape)}, expected {rows} in the first dimension, "
        f"the rows of {of} of this call"
    )


def _array(name: str, value: object) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__array__"):  # a scalar of numpy, a tensor of a framework in host memory
        return np.asarray(value)
    raise TypeError(
        f"output '{name}': got {type(value).__name__}, expected a numpy array, or a list of arrays, one for "
        f"each request"
    )
