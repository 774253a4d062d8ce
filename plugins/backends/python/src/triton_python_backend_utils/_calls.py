"""The responses of a call to another model."""

from __future__ import annotations

from ._link import Call
from ._response import InferenceResponse


class ResponseIterator:
    """The responses of a call with `decoupled=True`, in the order they come; `for` or `async for`.

    A model that ends its responses with nothing but the final flag shows as a last response without outputs.

    Args:
        call: brings the responses.
        first: the first one, if it has been waited for.
    """

    __slots__ = ("_call", "_first")

    def __init__(self, call: Call, first: InferenceResponse | None = None) -> None:
        self._call = call
        self._first = first

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        response, self._first = self._first, None
        if response is None:
            response = self._call.next()
        if response is None:
            raise StopIteration
        return response

    def __aiter__(self) -> ResponseIterator:
        return self

    async def __anext__(self) -> InferenceResponse:
        response, self._first = self._first, None
        if response is None:
            response = await self._call.next_async()
        if response is None:
            raise StopAsyncIteration
        return response

    def cancel(self) -> None:
        """Tell the called model that no more responses are wanted; those under way may still come."""
        self._call.cancel()


def only_response(response: InferenceResponse | None) -> InferenceResponse:
    """The response of a call that has exactly one."""
    assert response is not None  # the server sees to it
    return response
