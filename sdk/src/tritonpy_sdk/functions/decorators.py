"""Decorators that turn functions of arrays into functions of requests.

A function that is served takes a list of requests and returns a list with the outputs of each. With these it
takes arrays by the names of inputs instead. All of them work for functions and methods, whether these return,
are awaited, or yield any number of times what others return.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import wraps
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
from tritonpy.tensor import Array

from tritonpy_sdk.functions.context import current_context, is_called_by_server
from tritonpy_sdk.functions.request import Request
from tritonpy_sdk.functions.wrapping import Function, around, marked_as_joining, per_group

Outputs = Mapping[str, Array] | Sequence[Array] | Array
"""The outputs of one request: by name, or in the order in which they were bound; or the only one."""
PadFunction = Callable[[list[dict[Any, Array]]], list[dict[Any, Array]]]  # Any: names, or places
Arguments = tuple[tuple[Any, ...], dict[str, Any], Callable[[Any], Any]]  # Any: the function's own


def batch(function: Function) -> Function:
    """Call the function with arrays of all rows of a batch, and give each request its rows of the outputs.

    Inputs are concatenated on their first axis and given by name.

    Raises:
        ValueError: requests have different inputs, or outputs other numbers of rows than inputs.
    """

    def enter(*args: Any, **more: Any) -> Arguments:
        *me, requests = args
        return tuple(me), {**_joined(requests), **more}, lambda outputs: _rows_apart(outputs, requests)

    return marked_as_joining(around(function, enter))


def sample(function: Function) -> Function:
    """Call the function with the inputs of one request by name; for models that do not batch.

    Raises:
        ValueError: there are several requests.
    """

    def enter(*args: Any, **more: Any) -> Arguments:
        *me, requests = args
        if len(requests) != 1:
            raise ValueError(
                f"got {len(requests)} requests, expected one: a function of single samples is bound with "
                "batching=False"
            )
        return tuple(me), {**requests[0], **more}, lambda outputs: [outputs]

    return around(function, enter)


def group_by_keys(function: Function) -> Function:
    """Call the function for requests with the same inputs at a time."""
    return per_group(function, lambda requests: _groups(requests, lambda request: tuple(sorted(request))))


def group_by_values(*keys: str, pad_fn: PadFunction | None = None) -> Callable[[Function], Function]:
    """Call the function for rows with equal values of some inputs at a time.

    Stands below `@batch`, and above `@first_value`.

    Args:
        *keys: names of the inputs.
        pad_fn: brings the outputs of all groups to one shape apart from the number of rows, such as a
            `ConstantPadder`; takes and returns a list of outputs by name.

    Raises:
        TypeError: the function is a generator; outputs of all groups are wanted at once.
    """

    def decorate(function: Function) -> Function:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__}: @group_by_values cannot be used with generators")
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def wait(*me: Any, **inputs: Array) -> Outputs:
                groups = _row_groups(inputs, keys)
                return _merged(groups, [await function(*me, **part) for _, part in groups], pad_fn)

            return wait

        @wraps(function)
        def call(*me: Any, **inputs: Array) -> Outputs:
            groups = _row_groups(inputs, keys)
            return _merged(groups, [function(*me, **part) for _, part in groups], pad_fn)

        return call

    return decorate


def fill_optionals(**defaults: Array) -> Callable[[Function], Function]:
    """Give inputs that a request leaves out a value.

    Stands above `@batch`.

    Args:
        **defaults: of each input, without the dimension of the batch; repeated for all rows of the request.

    Raises:
        TypeError: a default is no array.
        ValueError: with the first call, that a default is of no input, or not as the input was bound.
    """
    for name, default in defaults.items():
        if not isinstance(default, np.ndarray):
            raise TypeError(
                f"default of input '{name}': got {type(default).__name__}, expected a numpy array"
            )

    def check() -> None:
        inputs = {tensor.name: tensor for tensor in current_context().inputs}
        for name, default in defaults.items():
            if name not in inputs:
                raise ValueError(f"default of input '{name}': expected one of {', '.join(map(str, inputs))}")
            if fault := inputs[name].fault(default):
                raise ValueError(f"default of input '{name}': {fault}")

    def filled(request: Request) -> Request:
        given = {name: array for name, array in defaults.items() if name not in request}
        if is_called_by_server() and not current_context().config.get("max_batch_size", 0):
            return request.replaced({**request, **given})
        rows = request.batch_size
        repeated = {name: np.repeat(array[None], rows, axis=0) for name, array in given.items()}
        return request.replaced({**request, **repeated})

    def enter(*args: Any, **more: Any) -> Arguments:
        *me, requests = args
        if is_called_by_server():
            check()
        return (*me, [filled(request) for request in requests]), more, _as_it_is

    return lambda function: around(function, enter)


def pad_batch(function: Function) -> Function:
    """Repeat the last row of inputs, up to the next preferred size of a batch or else the largest.

    Stands below `@batch`; outputs lose the rows that were added.
    """

    def enter(*me: Any, **inputs: Array) -> Arguments:
        rows = len(next(iter(inputs.values())))
        more = next((size for size in _batch_sizes() if size >= rows), rows) - rows
        if not more:
            return me, inputs, _as_it_is
        padded = {
            name: np.concatenate([array, np.repeat(array[-1:], more, axis=0)])
            for name, array in inputs.items()
        }
        return me, padded, lambda outputs: _each(outputs, lambda array: array[:rows])

    return around(function, enter)


def first_value(
    *keys: str, squeeze_single_values: bool = True, strict: bool = True
) -> Callable[[Function], Function]:
    """Give the function one value of inputs that are the same for all rows.

    Stands below `@batch`.

    Args:
        *keys: names of the inputs.
        squeeze_single_values: an array of one element becomes that element.
        strict: rows that differ are an error.

    Raises:
        ValueError: rows differ.
    """

    def first(name: str, array: Array) -> Any:  # Any: an array, or a number or string of numpy
        if strict and not (array == array[:1]).all():
            raise ValueError(f"The values on the {name} input are not equal")
        value = array[0]
        return np.ravel(value)[0] if squeeze_single_values and np.size(value) == 1 else value

    def enter(*me: Any, **inputs: Array) -> Arguments:
        firsts = {name: first(name, inputs[name]) for name in keys if name in inputs}
        return me, {**inputs, **firsts}, _as_it_is

    return lambda function: around(function, enter)


def triton_context(function: Function) -> Function:
    """Give the function the model that it is called for, a `FunctionContext`, as `triton_context`."""

    def enter(*args: Any, **kwargs: Any) -> Arguments:  # Any: the function's own
        return args, {**kwargs, "triton_context": current_context()}, _as_it_is

    return around(function, enter)


class ConstantPadder:
    """Brings arrays of one name to one shape apart from their first dimension, with a constant at their ends.

    Args:
        pad_value: the constant; of strings it is the empty string.
    """

    def __init__(self, pad_value: float = 0) -> None:
        self.pad_value = pad_value

    def __call__(self, outputs: list[dict[Any, Array]]) -> list[dict[Any, Array]]:
        """The same arrays, made as large as the largest of their name.

        Raises:
            ValueError: arrays of one name have different numbers of dimensions.
        """
        largest: dict[Any, Array] = {}
        for arrays in outputs:
            for name, array in arrays.items():
                shape = np.array(array.shape[1:], int)
                largest[name] = np.maximum(largest.get(name, shape), shape)
        return [
            {name: self._padded(array, largest[name]) for name, array in arrays.items()} for arrays in outputs
        ]

    def _padded(self, array: Array, shape: Array) -> Array:
        missing = [(0, 0), *((0, int(more)) for more in shape - np.array(array.shape[1:], int))]
        return np.pad(array, missing, constant_values=b"" if array.dtype.kind in "OSU" else self.pad_value)


def _joined(requests: Sequence[Request]) -> dict[str, Array]:
    first = requests[0]
    if len(requests) == 1:
        return {name: array.copy() for name, array in first.items()} if first.is_to_be_copied else dict(first)
    for request in requests:
        if request.keys() != first.keys():
            raise ValueError(
                f"requests of one batch have different inputs, {sorted(first)} and {sorted(request)}: use "
                "@group_by_keys or @fill_optionals"
            )
    return {name: np.concatenate([request[name] for request in requests]) for name in first}


def _rows_apart(outputs: Outputs, requests: Sequence[Request]) -> list[Outputs]:
    ends = list(accumulate(request.batch_size for request in requests))
    if isinstance(outputs, (dict, Mapping)):
        counts = {name: len(array) for name, array in outputs.items()}
    else:
        counts = {str(index): len(array) for index, array in enumerate(_listed(outputs))}
    if any(count != ends[-1] for count in counts.values()):
        raise ValueError(
            f"Received output tensors with different batch sizes: {counts}. Expected batch size: {ends[-1]}."
        )
    if len(ends) == 1:
        return [outputs]
    parts = zip([0, *ends], ends, strict=False)
    return [_each(outputs, itemgetter(slice(*part))) for part in parts]


def _listed(outputs: Outputs) -> Sequence[Array]:
    assert not isinstance(outputs, Mapping)  # the caller has looked
    return outputs if isinstance(outputs, (list, tuple)) else [np.asarray(outputs)]


def _each(outputs: Outputs, change: Callable[[Array], Array]) -> Outputs:
    if isinstance(outputs, Mapping):
        return {name: change(array) for name, array in outputs.items()}
    return [change(array) for array in _listed(outputs)]


def _groups(
    requests: Sequence[Request], key: Callable[[Request], Hashable]
) -> list[tuple[list[int], list[Request]]]:
    found: dict[Hashable, tuple[list[int], list[Request]]] = {}
    for place, request in enumerate(requests):
        places, group = found.setdefault(key(request), ([], []))
        places.append(place)
        group.append(request)
    return list(found.values())


def _row_groups(inputs: Mapping[str, Array], keys: Sequence[str]) -> list[tuple[list[int], dict[str, Array]]]:
    rows: dict[Hashable, list[int]] = {}
    for row in range(len(next(iter(inputs.values())))):
        values = tuple(_content(inputs[key][row]) for key in keys)
        rows.setdefault(values, []).append(row)
    return [(group, {name: array[group] for name, array in inputs.items()}) for group in rows.values()]


def _content(value: Array) -> Hashable:
    array = np.asarray(value)
    return tuple(array.ravel().tolist()) if array.dtype.kind == "O" else array.tobytes()


def _merged(
    groups: Sequence[tuple[list[int], object]], found: Sequence[Outputs], pad_fn: PadFunction | None
) -> Outputs:
    named = [
        dict(outputs.items() if isinstance(outputs, Mapping) else enumerate(_listed(outputs)))
        for outputs in found
    ]
    if pad_fn is not None:
        named = pad_fn(named)
    count = sum(len(rows) for rows, _ in groups)
    merged = {name: np.empty((count, *array.shape[1:]), array.dtype) for name, array in named[0].items()}
    for (rows, _), outputs in zip(groups, named, strict=True):
        for name, array in outputs.items():
            merged[name][rows] = array
    if isinstance(found[0], Mapping):
        return {str(name): array for name, array in merged.items()}
    return list(merged.values())


def _batch_sizes() -> list[int]:
    config = current_context().config
    preferred = config.get("dynamic_batching", {}).get("preferred_batch_size", ())
    return sorted({*map(int, preferred), int(config.get("max_batch_size", 0))})


def _as_it_is(outputs: Any) -> Any:  # Any: the function's own
    return outputs
