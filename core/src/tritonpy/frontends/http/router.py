"""The router: a table of routes, the row for a request, and the answer to what goes wrong.

Paths are matched as they came: no URL decoding, no trailing or double slash. A path that rows name with other
methods only is answered 405, a path that no row names 404.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from inspect import isawaitable

from tritonpy.errors import InvalidArg
from tritonpy.frontends.errors import client_error
from tritonpy.frontends.http.codec.json_body import Json
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import (
    RETRY_AFTER,
    HttpRequest,
    error_response,
    json_response,
    refusal,
)
from tritonpy.frontends.reserve import NO_ROOM
from tritonpy.frontends.restriction import CATEGORIES, guards
from tritonpy.options import RestrictedCalls

_log = logging.getLogger("tritonpy.http")

Names = tuple[str, ...]
"""Values from a path for the names of its pattern, in their order; "" for a missing optional part."""

Answer = Callable[[HttpRequest, HttpConnection, Names], Awaitable[None] | None]
"""Answers through the connection: now, later, or in what it returns, which then runs as a task. What it
raises is answered as an error."""

MOST_BYTES = 64 * 1024
"""The largest body of a call that is no inference; those that clients send have a few hundred bytes."""

Document = Json | Awaitable[Json]
"""JSON to answer with, or None for an answer without a body; at once or later."""


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table.

    Attributes:
        method: such as `GET`.
        pattern: a path in which `{name}` stands for one segment, `{version}` for a decimal number, and what
            is in brackets may be missing: `/v2/models/{model}[/versions/{version}]`.
        category: of `restriction.CATEGORIES`: what must be restricted so that this is.
        answer: what is done.
    """

    method: bytes
    pattern: str
    category: str
    answer: Answer


def get(pattern: str, category: str, call: Callable[..., Document]) -> Route:
    """A GET answered with what `call` gives for the names in the path."""

    def answer(request: HttpRequest, connection: HttpConnection, names: Names) -> Awaitable[None] | None:
        return _answer_document(call(*names), connection)

    return Route(b"GET", pattern, category, answer)


def post(pattern: str, category: str, call: Callable[..., Document], *, takes_large: bool = False) -> Route:
    """A POST answered with what `call` gives for the body and the names in the path.

    Unless it `takes_large` ones, and reads them without delaying others, a body over `MOST_BYTES` is refused.
    """

    def answer(request: HttpRequest, connection: HttpConnection, names: Names) -> Awaitable[None] | None:
        if len(request.body) > MOST_BYTES and not takes_large:
            raise InvalidArg(
                f"request of {len(request.body)} bytes exceeds the maximum of {MOST_BYTES} bytes that "
                f"'{request.path}' takes"
            )
        return _answer_document(call(request.body, *names), connection)

    return Route(b"POST", pattern, category, answer)


def _answer_document(document: Document, connection: HttpConnection) -> Awaitable[None] | None:
    if not isawaitable(document):
        connection.write(json_response(document, connection.keep_alive))
        return None

    async def write() -> None:
        result = await document
        connection.write(json_response(result, connection.keep_alive))

    return write()


@dataclass(frozen=True, slots=True)
class Found:
    """The calls of a path.

    Attributes:
        category: of all answers.
        answers: by method.
        names: from the path.
    """

    category: str
    answers: dict[bytes, Answer]
    names: Names


@dataclass(slots=True)
class _Path:
    """All rows of one pattern."""

    expression: re.Pattern[str]
    category: str
    answers: dict[bytes, Answer] = field(default_factory=dict)


class RouteTable:
    """Finds the row for a path; the first pattern that fits decides.

    Where the paths of late have led is remembered, so a path in use costs one look into a dict.

    Args:
        routes: rows; those of one pattern must be of one category.
    """

    MOST_REMEMBERED = 1024
    LONGEST_REMEMBERED = 256

    def __init__(self, routes: Iterable[Route]) -> None:
        self._paths: dict[str, _Path] = {}
        self._found: dict[str, Found] = {}
        for route in routes:
            if route.category not in CATEGORIES:
                raise ValueError(
                    f"route {route.pattern}: category '{route.category}' is not one of {CATEGORIES}"
                )
            path = self._paths.setdefault(route.pattern, _Path(_compile(route.pattern), route.category))
            if path.category != route.category or route.method in path.answers:
                raise ValueError(f"route {route.method.decode()} {route.pattern} contradicts an earlier one")
            path.answers[route.method] = route.answer

    def find(self, path: str) -> Found | None:
        """The calls of a path; None if there are none."""
        found = self._found.get(path)
        if found is None:
            found = self._look_for(path)
            if found is not None and len(path) <= self.LONGEST_REMEMBERED:
                if len(self._found) >= self.MOST_REMEMBERED:
                    self._found.clear()
                self._found[path] = found
        return found

    def _look_for(self, path: str) -> Found | None:
        for candidate in self._paths.values():
            match = candidate.expression.match(path)
            if match is not None:
                return Found(candidate.category, candidate.answers, match.groups(""))
        return None


_PLACEHOLDER = re.compile(r"{(\w+)}|\[|\]|[^{\[\]]+")
_PARTS = {"[": "(?:", "]": ")?"}


def _compile(pattern: str) -> re.Pattern[str]:
    expression = ""
    for part in _PLACEHOLDER.finditer(pattern):
        if part[1] is not None:
            expression += "([0-9]+)" if part[1] == "version" else "([^/]+)"
        else:
            expression += _PARTS.get(part[0]) or re.escape(part[0])
    return re.compile(expression + r"\Z")


class Router:
    """Answers HTTP requests from a table of routes; satisfies `answering.Handler`.

    Args:
        routes: the table.
        restricted: which of them need a key.
    """

    def __init__(self, routes: Iterable[Route], restricted: Iterable[RestrictedCalls] = ()) -> None:
        self._table = RouteTable(routes)
        self._guards = guards(restricted)
        self._tasks: set[asyncio.Task[None]] = set()
        self.health_alone = HealthAlone(self)

    def __call__(self, request: HttpRequest, connection: HttpConnection) -> None:
        """Answer one request; nothing raised here reaches the connection."""
        try:
            found = self._table.find(request.path)
            answer = found.answers.get(request.method) if found is not None else None
            if found is None or answer is None or self._guards:
                objection = self.objection(request, connection.keep_alive)
                if objection is not None:
                    connection.write(objection)
                    return
            assert found is not None  # there is no objection
            assert answer is not None
            rest = answer(request, connection, found.names)
            if rest is not None:
                self._go_on(rest, request, connection)
        except Exception as exc:
            connection.write(_error_answer(exc, request, connection))

    def objection(self, request: HttpRequest, keep_alive: bool) -> bytes | None:
        """The answer to a request that is refused without a look at its body; None for others."""
        found = self._table.find(request.path)
        guard = self._guards.get(found.category) if found is not None else None
        if found is None:
            response = refusal(404, "Not Found", keep_alive)
        elif guard is not None and not guard.admits(request.headers.get(guard.key)):
            text = f"This API is restricted, expecting header '{guard.header}'"
            response = refusal(403, text, keep_alive)
        elif request.method not in found.answers:
            response = refusal(405, "Method Not Allowed", keep_alive)
        else:
            return None
        if request.method == b"HEAD":  # whose answers have no body
            response = response[: response.index(b"\r\n\r\n") + 4]
        return response

    def category(self, path: str) -> str | None:
        """The category of the calls of a path, if there are any."""
        found = self._table.find(path)
        return found.category if found is not None else None

    def _go_on(self, rest: Awaitable[None], request: HttpRequest, connection: HttpConnection) -> None:
        """Await an answer in a task, which goes on if the client goes away."""

        async def run() -> None:
            try:
                await rest
            except Exception as exc:
                connection.write(_error_answer(exc, request, connection))

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class HealthAlone:
    """Answers for a router when there is no room for connections: probes, one to a connection.

    Satisfies `answering.Handler`.

    Args:
        router: answers them.
    """

    def __init__(self, router: Router) -> None:
        self._router = router

    def __call__(self, request: HttpRequest, connection: HttpConnection) -> None:
        """Answer one request, and close the connection after that."""
        request.keep_alive = False
        objection = self.objection(request, False)
        if objection is not None:
            connection.write(objection)
        else:
            self._router(request, connection)

    def objection(self, request: HttpRequest, keep_alive: bool) -> bytes | None:
        """The answer to anything but a probe, and to one that the router refuses."""
        if self._router.category(request.path) != "health":
            return refusal(503, NO_ROOM, False, (RETRY_AFTER,))
        return self._router.objection(request, keep_alive)


def _error_answer(exc: Exception, request: HttpRequest, connection: HttpConnection) -> bytes:
    error = client_error(exc, f"{request.method.decode('latin-1')} {request.path}", _log)
    return error_response(error, connection.keep_alive)
