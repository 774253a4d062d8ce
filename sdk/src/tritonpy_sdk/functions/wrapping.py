"""Wrapping of functions of every kind: plain ones, coroutines, generators and asynchronous generators."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

Function = Callable[..., Any]  # Any: the author's own
Leave = Callable[[Any], Any]
Enter = Callable[..., tuple[tuple[Any, ...], dict[str, Any], Leave]]
"""Takes the arguments of the wrapper; returns those of the function, and what is done to all it gives."""


def around(function: Function, enter: Enter) -> Function:
    """A function of the same kind, with other arguments and other results.

    Args:
        function: of any kind.
        enter: called with the arguments of each call; see `Enter`.
    """
    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            args, kwargs, leave = enter(*args, **kwargs)
            async for given in function(*args, **kwargs):
                yield leave(given)

        return stream
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            args, kwargs, leave = enter(*args, **kwargs)
            for given in function(*args, **kwargs):
                yield leave(given)

        return generate
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            args, kwargs, leave = enter(*args, **kwargs)
            return leave(await function(*args, **kwargs))

        return wait

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs, leave = enter(*args, **kwargs)
        return leave(function(*args, **kwargs))

    return call


def per_group(
    function: Function, groups: Callable[[list[Any]], list[tuple[list[int], list[Any]]]]
) -> Function:
    """A function of a list, of the same kind, that calls another one for parts of the list.

    Args:
        function: takes a list, behind itself if it is a method, and returns or yields a list with a result
            for each of its members.
        groups: the members of a list and their places, by groups.
    """

    def placed(count: int, places: list[int], given: list[Any]) -> list[Any]:
        results: list[Any] = [None] * count
        for place, result in zip(places, given, strict=True):
            results[place] = result
        return results

    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def stream(*args: Any, **more: Any) -> AsyncIterator[list[Any]]:
            *me, members = args
            for places, group in groups(members):
                async for given in function(*me, group, **more):
                    yield placed(len(members), places, given)

        return stream
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def generate(*args: Any, **more: Any) -> Iterator[list[Any]]:
            *me, members = args
            for places, group in groups(members):
                for given in function(*me, group, **more):
                    yield placed(len(members), places, given)

        return generate
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def wait(*args: Any, **more: Any) -> list[Any]:
            *me, members = args
            found = [(places, await function(*me, group, **more)) for places, group in groups(members)]
            return _merged(len(members), found)

        return wait

    @wraps(function)
    def call(*args: Any, **more: Any) -> list[Any]:
        *me, members = args
        found = [(places, function(*me, group, **more)) for places, group in groups(members)]
        return _merged(len(members), found)

    return call


def _merged(count: int, found: list[tuple[list[int], list[Any]]]) -> list[Any]:
    results: list[Any] = [None] * count
    for places, given in found:
        for place, result in zip(places, given, strict=True):
            results[place] = result
    return results


_JOINS = "__tritonpy_joins__"


def marked_as_joining(function: Function) -> Function:
    """Note that a function puts the arrays of requests together; decorators around it take the note over."""
    setattr(function, _JOINS, True)
    return function


def is_joining(function: Function) -> bool:
    """True if a function, or one that decorators of ours have around it, puts arrays together."""
    return getattr(function, _JOINS, False) is True
