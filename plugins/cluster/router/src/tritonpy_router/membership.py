"""The servers behind the router: a list, a file that may change, or the addresses of a name."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from tritonpy.errors import InvalidArg

from tritonpy_router.replica import Place

Pause = Callable[[float], Awaitable[None]]


class Membership(Protocol):
    """Tells which servers there are, again whenever that changes."""

    def changes(self) -> AsyncIterator[Sequence[Place]]:
        """All servers, now and after each change; may end when there will be none."""


def read_place(text: str) -> Place:
    """A server in the form `[NAME=]HOST[:HTTP_PORT[:GRPC_PORT]]`; ports are 8000 and 8001 if it says none.

    An IPv6 address stands in brackets.

    Raises:
        InvalidArg: it has another form.
    """
    name, has_name, rest = text.rpartition("=")
    if rest.startswith("["):
        host, _, ports = rest[1:].partition("]")
        ports = ports.removeprefix(":")
    else:
        host, _, ports = rest.partition(":")
    numbers = [int(port) if port.isdecimal() else -1 for port in ports.split(":")] if ports else []
    if not host or len(numbers) > 2 or not all(0 < number < 65536 for number in numbers):
        raise InvalidArg(
            f"server '{text}' is not understood; expected [NAME=]HOST[:HTTP_PORT[:GRPC_PORT]], such as "
            f"gpu1:8000:8001"
        )
    http_port, grpc_port = (*numbers, *(8000, 8001)[len(numbers) :])
    return Place(name if has_name else f"{_bracketed(host)}:{http_port}", host, http_port, grpc_port)


class StaticMembership:
    """The servers of the command line."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places

    async def changes(self) -> AsyncIterator[Sequence[Place]]:
        """See `Membership`."""
        yield self._places


class FileMembership:
    """The servers of a file, one to a line as on the command line, or a JSON array of such texts.

    Empty lines and those that begin with # count for nothing. A file that cannot be read changes nothing.

    Args:
        path: of the file.
        every_s: how often it is looked at.
        on_fault: told why it cannot be read, once for each reason.
        pause: waits.
    """

    def __init__(
        self, path: Path, every_s: float, on_fault: Callable[[str], None], pause: Pause = asyncio.sleep
    ) -> None:
        self._path = path
        self._every_s = every_s
        self._on_fault = on_fault
        self._pause = pause

    async def changes(self) -> AsyncIterator[Sequence[Place]]:
        """See `Membership`."""
        told: Sequence[Place] | None = None
        fault = ""
        while True:
            try:
                places = read_places(await asyncio.to_thread(self._path.read_text))
            except (OSError, InvalidArg, ValueError) as exc:
                if str(exc) != fault:
                    fault = str(exc)
                    self._on_fault(f"file of servers '{self._path}': {fault}")
            else:
                fault = ""
                if places != told:
                    told = places
                    yield places
            await self._pause(self._every_s)


def read_places(text: str) -> list[Place]:
    """The servers of a file.

    Raises:
        InvalidArg: a line is not understood, or a name stands there twice.
        ValueError: it begins as JSON and is none.
    """
    lines = json.loads(text) if text.lstrip().startswith('["') else text.splitlines()
    places = [
        read_place(line.strip()) for line in lines if line.strip() and not line.lstrip().startswith("#")
    ]
    check_names(places)
    return places


def check_names(places: Sequence[Place]) -> None:
    """Refuse two servers of one name.

    Raises:
        InvalidArg: there are two.
    """
    seen: set[str] = set()
    for place in places:
        if place.name in seen:
            raise InvalidArg(f"two servers are called '{place.name}': name them as NAME=HOST:PORT")
        seen.add(place.name)


class NameMembership:
    """The servers at all addresses of a name, such as that of a headless service in Kubernetes.

    Args:
        host: the name.
        http_port, grpc_port: of all of them.
        every_s: how often it is looked up.
        on_fault: told why it cannot be looked up, once for each reason.
        pause: waits.
    """

    def __init__(
        self,
        host: str,
        http_port: int,
        grpc_port: int,
        every_s: float,
        on_fault: Callable[[str], None],
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._host = host
        self._ports = http_port, grpc_port
        self._every_s = every_s
        self._on_fault = on_fault
        self._pause = pause

    async def changes(self) -> AsyncIterator[Sequence[Place]]:
        """See `Membership`."""
        told: Sequence[Place] | None = None
        fault = ""
        http_port, grpc_port = self._ports
        while True:
            try:
                found = await asyncio.get_running_loop().getaddrinfo(
                    self._host, http_port, type=socket.SOCK_STREAM
                )
            except OSError as exc:  # those that are known go on: the answer may be that of a sick name server
                if str(exc) != fault:
                    fault = str(exc)
                    self._on_fault(f"name of servers '{self._host}': {fault}")
            else:
                fault = ""
                hosts = sorted({str(address[0]) for *_, address in found})
                places = [
                    Place(f"{_bracketed(host)}:{http_port}", host, http_port, grpc_port) for host in hosts
                ]
                if places != told:
                    told = places
                    yield places
            await self._pause(self._every_s)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
