"""Sockets that listen on an address, their number of connections, and those that are connected.

The address may be a name, too, or one that stands for several, or a path (`unix:/run/triton.sock`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import socket
import stat
from collections.abc import Sequence

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from tritonpy.errors import InvalidArg, Unavailable

_ATTEMPTS = 20  # to find one port that is free on all addresses

_LEAST_SPARE = 64
_LEAST_CONNECTIONS = 8
_RAISED = 65_536

_Place = tuple[socket.AddressFamily, object]  # family and host


async def listening_sockets(address: str, port: int, reuse_port: bool) -> list[socket.socket]:
    """Bind one socket for each address that `address` stands for, all to the same port.

    Args:
        address: IPv4, IPv6 (also in brackets) or a name; "" stands for all addresses of the machine.
        port: 0 lets the system choose.
        reuse_port: let other sockets that say so too share the port; the system then spreads connections.

    Raises:
        InvalidArg: the name is unknown, or the system cannot share ports.
        Unavailable: the port is taken, or the address is not one of this machine.
    """
    host = address.removeprefix("[").removesuffix("]")
    if reuse_port and not hasattr(socket, "SO_REUSEPORT"):
        raise InvalidArg(f"port {port} cannot be shared: this system does not know SO_REUSEPORT")
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as exc:
        raise InvalidArg(f"cannot listen on '{address}': {exc.strerror}") from None
    places = list(dict.fromkeys((info[0], info[4][0]) for info in infos))
    for attempt in range(_ATTEMPTS):
        try:
            return _bind_all(places, port, reuse_port)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE and port == 0 and len(places) > 1 and attempt + 1 < _ATTEMPTS:
                continue  # what the system chose for the first address is taken on another one
            if exc.errno == errno.EADDRINUSE:
                raise Unavailable(f"Socket '{address}:{port}' already in use") from None
            raise Unavailable(f"Socket '{address}:{port}' cannot be listened on: {exc.strerror}") from None
    raise AssertionError  # the last attempt returns or raises


def accept_waiting(listening: Sequence[socket.socket], most: int) -> list[socket.socket]:
    """Accept the connections that the system has made and nobody has accepted.

    Their clients may have sent something already, and the end of a listening socket resets them.

    Args:
        listening: that are about to be closed.
        most: of connections.
    """
    accepted: list[socket.socket] = []
    for listener in listening:
        with contextlib.suppress(OSError):  # none waits any more, or the limit of descriptors is reached
            while len(accepted) < most:
                connected, _ = listener.accept()
                connected.setblocking(False)
                accepted.append(connected)
    return accepted


def is_unix(address: str) -> bool:
    """True for a socket of this machine alone, as gRPC writes them: `unix:PATH` and `unix-abstract:NAME`."""
    return address.startswith(("unix:", "unix-abstract:"))


def unix_socket(address: str) -> socket.socket:
    """Listen on such an address; the file that a server left behind which was killed is replaced.

    Raises:
        InvalidArg: the system has no such sockets, or the address names none.
        Unavailable: the path is taken, or no file can be made there.
    """
    if not hasattr(socket, "AF_UNIX"):  # Windows
        raise InvalidArg(f"cannot listen on '{address}': this system has no such sockets")
    path = _path(address)
    if not path.strip("\0"):
        raise InvalidArg(f"cannot listen on '{address}': it names no path")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    try:
        if _is_left_behind(path):
            os.unlink(path)
        listener.bind(path)
        listener.listen()
    except OSError as exc:
        listener.close()
        if exc.errno == errno.EADDRINUSE:
            raise Unavailable(f"Socket '{address}' already in use") from None
        raise Unavailable(f"Socket '{address}' cannot be listened on: {exc.strerror or exc}") from None
    return listener


def forget_unix(address: str) -> None:
    """Remove the file of an address that is listened on no more, if it has one."""
    if address.startswith("unix:"):
        with contextlib.suppress(OSError):
            os.unlink(_path(address))


def _path(address: str) -> str:
    kind, _, path = address.partition(":")
    if kind == "unix-abstract":
        return f"\0{path}"
    return path.removeprefix("//") if path.startswith("///") else path


def _is_left_behind(path: str) -> bool:
    """True for the file of a socket on which nothing listens."""
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                return True
    return False


def _bind_all(places: Sequence[_Place], port: int, reuse_port: bool) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        for family, host in places:
            listener = socket.socket(family, socket.SOCK_STREAM)
            bound.append(listener)
            _prepare(listener, family, host, len(places) > 1, reuse_port)
            listener.bind((host, port))
            # Listening decides who has the port: until then two sockets can be bound to it.
            listener.listen()
            port = port or listener.getsockname()[1]
    except OSError:
        for listener in bound:
            listener.close()
        raise
    return bound


def _prepare(
    listener: socket.socket, family: socket.AddressFamily, host: object, has_others: bool, reuse_port: bool
) -> None:
    listener.setblocking(False)
    if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows, where SO_REUSEADDR means something else
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        # "::" alone means all clients, also those over IPv4.
        only_v6 = 0 if host == "::" and not has_others else 1
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_v6)


def raise_descriptor_limit() -> None:
    """Raise the limit of descriptors of this process as far as the system allows, within reason."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _RAISED if hard == resource.RLIM_INFINITY else min(hard, _RAISED)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with contextlib.suppress(OSError, ValueError):  # macOS has a limit of its own
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections(wanted: int, share: float, most: int) -> int:
    """The number of connections that a port takes; models, files and other ports need descriptors as well.

    Args:
        wanted: as many, within what descriptors allow; 0 for `most`.
        share: of the descriptors that all ports may have.
        most: without being asked for more.
    """
    if resource is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            allowed = int((soft - max(_LEAST_SPARE, soft // 8)) * share)
            return min(wanted or most, max(allowed, _LEAST_CONNECTIONS))
    return wanted or most


def has_unread(transport: asyncio.BaseTransport | None) -> bool:
    """True if the system holds bytes from the other side, or its end, that the loop has not read."""
    if transport is None or transport.is_closing() or not hasattr(select, "poll"):  # Windows has none
        return False
    connected = transport.get_extra_info("socket")
    if connected is None:
        return False
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))


def end_sending(transport: asyncio.Transport | None) -> None:
    """Tell the other side now that nothing more comes; a transport that is closed does so a turn later.

    What the other side has sent meanwhile resets the connection, but the end has reached it before that.
    """
    if transport is None or transport.is_closing() or transport.get_write_buffer_size():
        return
    connected = transport.get_extra_info("socket")
    if connected is None:
        return
    # By its descriptor: the socket that uvloop shows can do nothing.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connected.fileno())) as own:
        own.shutdown(socket.SHUT_WR)
