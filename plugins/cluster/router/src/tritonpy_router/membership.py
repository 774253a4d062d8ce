"""The servers behind the router, and the door for what tells them: entry points of `tritonpy.memberships`.

The name of an entry point is the scheme of a URL, `--members SCHEME://REST`, and what it names is called
with REST and `MembershipOptions`, and returns a `Membership`. Those of this distribution come in by the same
door: a list (`static`), a file that may change (`file`), the addresses of a name (`dns`), and a service of
Kubernetes (`k8s`, in `endpoint_slices.py`). Each is imported when it is asked for.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from tritonpy.errors import InvalidArg, TritonError, exception_text

from tritonpy_router.replica import Place

GROUP = "tritonpy.memberships"
"""The group of entry points."""

Pause = Callable[[float], Awaitable[None]]

_FILE_EVERY_S, _NAME_EVERY_S = 1.0, 2.0


class Membership(Protocol):
    """Tells which servers there are, again whenever that changes."""

    def changes(self) -> AsyncIterator[Sequence[Place]]:
        """All servers, now and after each change; may end when there will be none.

        Iterated on the router's loop, by one task, which is cancelled at the end. No two servers have one
        name, and a name is the same for all routers. What cannot be reached for a while is told to
        `MembershipOptions.on_fault` and tried again in here, and the servers that are known stay; if this
        raises, the router logs it, keeps them too, and iterates anew after a pause.
        """


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """What a membership is opened with.

    Attributes:
        environ: variables of the environment, for addresses and for files with credentials.
        on_fault: told in words why servers cannot be looked up; writes a warning. Call it once for each
            reason, not for each attempt.
        pause: waits for so many seconds.
    """

    environ: Mapping[str, str]
    on_fault: Callable[[str], None]
    pause: Pause = asyncio.sleep


class MembershipOpener(Protocol):
    """What an entry point of the group names."""

    def __call__(self, rest: str, options: MembershipOptions, /) -> Membership:
        """A membership for the part of a URL behind `SCHEME://`; does not wait for anything.

        Raises:
            TritonError: the part has another form than this scheme's; says which one was expected.
        """


def installed_memberships() -> list[EntryPoint]:
    """The entry points of every installed distribution."""
    return list(entry_points(group=GROUP))


def open_membership(
    url: str,
    options: MembershipOptions,
    installed: Callable[[], Sequence[EntryPoint]] = installed_memberships,
) -> Membership:
    """The membership of `SCHEME://REST`.

    Args:
        url: as given to `--members`.
        options: for it.
        installed: finds the schemes there are.

    Raises:
        InvalidArg: it has another form, no distribution or several bring its scheme, or that cannot be
            imported.
        TritonError: the scheme refuses the rest.
    """
    scheme, has_rest, rest = url.partition("://")
    entries = installed()
    known = ", ".join(sorted({entry.name for entry in entries}))
    if not has_rest or not scheme:
        raise InvalidArg(
            f"members '{url}' are not understood; expected SCHEME://REST, of the schemes {known}"
        )
    found = [entry for entry in entries if entry.name == scheme]
    if not found:
        raise InvalidArg(
            f"members '{url}': no installed distribution brings the scheme '{scheme}'; there are {known} "
            f"(entry points of the group '{GROUP}')"
        )
    if len(found) > 1:
        homes = ", ".join(sorted(f"{entry.dist.name if entry.dist else entry.value}" for entry in found))
        raise InvalidArg(f"members '{url}': several distributions bring the scheme '{scheme}': {homes}")
    try:
        opener: MembershipOpener = found[0].load()
        return opener(rest, options)
    except TritonError:
        raise
    except Exception as exc:  # of a stranger
        raise InvalidArg(
            f"members '{url}': '{found[0].value}' of the scheme '{scheme}' failed: {exception_text(exc)}"
        ) from exc


def open_static(rest: str, options: MembershipOptions) -> StaticMembership:
    """`static://SERVER[,SERVER...]`: the servers that it names.

    Raises:
        InvalidArg: a server is not understood, or a name stands there twice.
    """
    places = [read_place(server) for server in rest.split(",")]
    check_names(places)
    return StaticMembership(places)


def open_file(rest: str, options: MembershipOptions) -> FileMembership:
    """`file://PATH`: the servers of a file; a path may be relative.

    Raises:
        InvalidArg: there is no path.
    """
    if not rest:
        raise InvalidArg("members 'file://' are not understood; expected file://PATH")
    return FileMembership(Path(rest), _FILE_EVERY_S, options.on_fault, options.pause)


def open_name(rest: str, options: MembershipOptions) -> NameMembership:
    """`dns://HOST[:HTTP_PORT[:GRPC_PORT[:REPLICA_PORT]]]`: the servers at all addresses of a name.

    Raises:
        InvalidArg: it has another form.
    """
    place = read_place(rest)
    return NameMembership(place, _NAME_EVERY_S, options.on_fault, options.pause)


def read_place(text: str) -> Place:
    """A server in the form `[NAME=]HOST[:HTTP_PORT[:GRPC_PORT[:REPLICA_PORT]]]`.

    Ports are 8000 and 8001 if it says none, and that of the service `Replica` is not known. An IPv6 address
    stands in brackets.

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
    if not host or len(numbers) > 3 or not all(0 < number < 65536 for number in numbers):
        raise InvalidArg(
            f"server '{text}' is not understood; expected "
            f"[NAME=]HOST[:HTTP_PORT[:GRPC_PORT[:REPLICA_PORT]]], such as gpu1:8000:8001"
        )
    http_port, grpc_port, replica_port = (*numbers, *(8000, 8001, 0)[len(numbers) :])
    name = name if has_name else f"{bracketed(host)}:{http_port}"
    return Place(name, host, http_port, grpc_port, replica_port)


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
        place: the name as a host, and the ports of all of them.
        every_s: how often it is looked up.
        on_fault: told why it cannot be looked up, once for each reason.
        pause: waits.
    """

    def __init__(
        self,
        place: Place,
        every_s: float,
        on_fault: Callable[[str], None],
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._place = place
        self._every_s = every_s
        self._on_fault = on_fault
        self._pause = pause

    async def changes(self) -> AsyncIterator[Sequence[Place]]:
        """See `Membership`."""
        told: Sequence[Place] | None = None
        fault = ""
        name, http_port = self._place.host, self._place.http_port
        while True:
            try:
                found = await asyncio.get_running_loop().getaddrinfo(name, http_port, type=socket.SOCK_STREAM)
            except OSError as exc:  # those that are known go on: the answer may be that of a sick name server
                if str(exc) != fault:
                    fault = str(exc)
                    self._on_fault(f"name of servers '{name}': {fault}")
            else:
                fault = ""
                hosts = sorted({str(address[0]) for *_, address in found})
                places = [
                    self._place._replace(name=f"{bracketed(host)}:{http_port}", host=host) for host in hosts
                ]
                if places != told:
                    told = places
                    yield places
            await self._pause(self._every_s)


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host
