"""What a connection hands its requests to: finds the route, asks for the key, answers what went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable

from tritonpy.errors import Internal, TritonError
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import RETRY_AFTER, HttpRequest, error_response, refusal
from tritonpy.frontends.http.routing import Route, RouteTable
from tritonpy.frontends.restriction import Restriction, guards

_log = logging.getLogger("tritonpy.http")


class Router:
    """Answers HTTP requests from a table of routes; satisfies `answering.Handler`.

    Args:
        routes: the table.
        restrictions: which of them need a key.
    """

    def __init__(self, routes: Iterable[Route], restrictions: Iterable[Restriction] = ()) -> None:
        self._table = RouteTable(routes)
        self._guards = guards(restrictions)
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
            connection.write(error_response(_as_triton_error(exc, request), connection.keep_alive))

    def objection(self, request: HttpRequest, keep_alive: bool) -> bytes | None:
        """The answer to a request that is refused whatever its body says; None for others."""
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
        """See an answer through that takes its time; its work goes on though the client goes away."""

        async def run() -> None:
            try:
                await rest
            except Exception as exc:
                connection.write(error_response(_as_triton_error(exc, request), connection.keep_alive))

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
            return refusal(503, "the server has no room for more connections", False, (RETRY_AFTER,))
        return self._router.objection(request, keep_alive)


def _as_triton_error(exc: Exception, request: HttpRequest) -> TritonError:
    """What the client is told of an exception; one that nobody meant for it is logged with its traceback."""
    if isinstance(exc, TritonError):
        return exc
    _log.error("%s %s failed", request.method.decode("latin-1"), request.path, exc_info=exc)
    return Internal(f"{type(exc).__name__}: {exc}")
