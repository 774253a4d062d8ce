"""`execute` as a function from arrays to arrays."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union, overload

from ._group import Array, ArrayOrList, groups_of

Inputs = dict[str, Array]
"""What `execute` gets: the arrays of the batch, by name."""

RaggedInputs = dict[str, ArrayOrList]
"""The same of a model with ragged inputs: those may be lists of arrays, one for each request."""

Outputs = Mapping[str, Union[Array, Sequence[Array]]]  # noqa: UP007 (evaluated, also by Python 3.9)
"""What `execute` returns, by name: an array of the batch, or a list of arrays, one for each request."""

if TYPE_CHECKING:  # while Triton completes a configuration, its module has none of these
    import triton_python_backend_utils as pb_utils

    Requests = list[pb_utils.InferenceRequest]
    Responses = list[pb_utils.InferenceResponse]

ModelT = TypeVar("ModelT")
InputT = TypeVar("InputT", Array, ArrayOrList)


class Decorator(Protocol):
    """The decorator that `batched(…)` with options returns."""

    @overload
    def __call__(
        self, function: Callable[[ModelT, dict[str, InputT]], Outputs], /
    ) -> Callable[[ModelT, Requests], Responses]: ...

    @overload
    def __call__(
        self, function: Callable[[ModelT, dict[str, InputT]], Coroutine[Any, Any, Outputs]], /
    ) -> Callable[[ModelT, Requests], Coroutine[Any, Any, Responses]]: ...


@overload
def batched(
    function: Callable[[ModelT, dict[str, InputT]], Outputs], /
) -> Callable[[ModelT, Requests], Responses]: ...


@overload
def batched(
    function: Callable[[ModelT, dict[str, InputT]], Coroutine[Any, Any, Outputs]], /
) -> Callable[[ModelT, Requests], Coroutine[Any, Any, Responses]]: ...


@overload
def batched(*, ragged: Collection[str]) -> Decorator: ...


def batched(
    function: Callable[[Any, Any], Any] | None = None, /, *, ragged: Collection[str] = ()
) -> Any:  # Any: see the overloads
    """Let `execute` take the arrays of a whole batch and return arrays, instead of requests and responses.

    ```python
    class TritonPythonModel:
        @batched
        def execute(self, inputs):
            return {"Y": inputs["X"] * 2}
    ```

    The requests of a batch are joined along the first dimension, and each request gets its own rows of the
    outputs. Nothing is copied when there is one request, and outputs never are. Requests that leave out
    different optional inputs go into calls of their own, so `inputs` has the same names for all rows.

    An input whose other dimensions differ between requests, which the server allows where the configuration
    says `allow_ragged_batch`, comes as a list of arrays, one for each request; so may every output go.

    A model whose `max_batch_size` is 0 gets the arrays of one request, and its outputs may have any shape.

    `async def execute` works as well. An exception answers every request of the batch, as always.

    Args:
        function: the method; elements of BYTES are `bytes` in arrays of objects, BF16 comes as `uint16`.
        ragged: inputs that always come as a list, also when there is one request or their shapes are equal.

    Raises:
        TypeError: `ragged` is a str instead of a collection of names.
    """
    if isinstance(ragged, str):
        raise TypeError(f"batched: ragged must be a collection of names, got the str '{ragged}'")
    names = frozenset(ragged)
    if function is None:
        return lambda function: _wrapped(function, names)
    return _wrapped(function, names)


def _wrapped(
    function: Callable[[Any, Any], Any], ragged: frozenset[str]
) -> Callable[..., Any]:  # Any: see the overloads
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def execute_async(self: object, requests: Requests) -> Responses:
            responses = _unanswered(requests)
            for group in groups_of(requests, ragged):
                group.answer(await function(self, group.inputs), responses)
            return responses

        return execute_async

    @functools.wraps(function)
    def execute(self: object, requests: Requests) -> Responses:
        responses = _unanswered(requests)
        for group in groups_of(requests, ragged):
            group.answer(function(self, group.inputs), responses)
        return responses

    return execute


def _unanswered(requests: Requests) -> Responses:
    # Every place is filled by the group its request is in.
    return [None] * len(requests)  # type: ignore[list-item]
