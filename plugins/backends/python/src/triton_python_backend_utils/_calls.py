"""The responses of a call to another model."""

from __future__ import annotations

from ._link import Call
from ._response import InferenceResponse


class ResponseIterator:
    """The responses of a call with `decoupled=True`, in the order they come; `for` or `async for`.

    A model that ends its responses with nothing but the final flag shows as a last response without outputs.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        response = self._call.next()
        if response is None:
            raise StopIteration
        return response

    def __aiter__(self) -> ResponseIterator:
        return self

    async def __anext__(self) -> InferenceResponse:
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
