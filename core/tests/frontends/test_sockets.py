"""Which sockets are listened on for an address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.frontends.sockets import forget_unix, listening_sockets, most_connections, unix_socket


@pytest.fixture
def closing() -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    yield opened
    for one in opened:
        one.close()


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def listen(
    closing: list[socket.socket], address: str, port: int = 0, reuse: bool = False
) -> list[socket.socket]:
    found = asyncio.run(listening_sockets(address, port, reuse))
    closing += found
    return found


def can_connect(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=60).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "localhost", ""])
def test_ipv4_addresses_and_names_are_listened_on(closing: list[socket.socket], address: str) -> None:
    found = listen(closing, address)
    ports = {one.getsockname()[1] for one in found}

    assert len(ports) == 1  # the same one on all addresses of a name
    assert can_connect("127.0.0.1", ports.pop())


@needs_ipv6
@pytest.mark.parametrize("address", ["::1", "[::1]"])
def test_ipv6_addresses_are_listened_on_alone(closing: list[socket.socket], address: str) -> None:
    held = socket.socket()  # so that nobody else listens on the port there
    closing.append(held)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]

    (_,) = listen(closing, address, port)

    assert can_connect("::1", port)
    assert not can_connect("127.0.0.1", port)


@needs_ipv6
def test_all_of_ipv6_means_all_of_ipv4_too(closing: list[socket.socket]) -> None:
    (one,) = listen(closing, "::")
    port = one.getsockname()[1]

    assert can_connect("::1", port)
    assert can_connect("127.0.0.1", port)


def test_a_port_in_use_is_refused_in_tritons_words(closing: list[socket.socket]) -> None:
    (first,) = listen(closing, "127.0.0.1")
    port = first.getsockname()[1]

    with pytest.raises(Unavailable) as caught:
        listen(closing, "127.0.0.1", port)

    assert caught.value.message == f"Socket '127.0.0.1:{port}' already in use"


def test_a_port_is_shared_by_those_who_all_say_so(closing: list[socket.socket]) -> None:
    (first,) = listen(closing, "127.0.0.1", reuse=True)
    port = first.getsockname()[1]
    (second,) = listen(closing, "127.0.0.1", port, reuse=True)

    assert second.getsockname()[1] == port
    with pytest.raises(Unavailable, match="already in use"):
        listen(closing, "127.0.0.1", port)


def test_an_address_of_another_machine_is_refused(closing: list[socket.socket]) -> None:
    with pytest.raises(Unavailable, match=r"Socket '192\.0\.2\.1:0' cannot be listened on: Cannot assign"):
        listen(closing, "192.0.2.1")


def test_a_name_nobody_knows_is_refused(closing: list[socket.socket]) -> None:
    with pytest.raises(InvalidArg, match=r"cannot listen on 'no-such-host\.invalid'"):
        listen(closing, "no-such-host.invalid")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_ports_leave_descriptors_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    soft = 128
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert most_connections(0, 2 / 3, 1000) + most_connections(0, 1 / 3, 1000) <= soft - 64
    assert most_connections(5, 2 / 3, 1000) == 5
    assert most_connections(5000, 2 / 3, 1000) == most_connections(0, 2 / 3, 1000)
    soft = 1 << 20
    assert most_connections(0, 2 / 3, 1000) == 1000
    assert most_connections(5000, 2 / 3, 1000) == 5000
    soft = resource.RLIM_INFINITY
    assert most_connections(0, 2 / 3, 1000) == 1000


@pytest.mark.parametrize("prefix", ["unix:", "unix://"])
def test_a_path_is_listened_on_and_taken_from_a_server_that_is_gone(
    closing: list[socket.socket], tmp_path: Path, prefix: str
) -> None:
    address = f"{prefix}{tmp_path}/socket"
    first = unix_socket(address)
    closing.append(first)
    with pytest.raises(Unavailable, match=f"Socket '{address}' already in use"):
        unix_socket(address)
    first.close()  # as when its process is killed: the file stays

    closing.append(unix_socket(address))

    forget_unix(address)
    assert list(tmp_path.iterdir()) == []
    forget_unix(address)


def test_a_name_without_a_file_is_listened_on(closing: list[socket.socket], tmp_path: Path) -> None:
    closing.append(unix_socket(f"unix-abstract:{tmp_path}"))

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"\0{tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for address, text in (
        (f"unix:{tmp_path}/file", "already in use"),
        (f"unix:{tmp_path}/none/socket", "No such file or directory"),
        (f"unix:{tmp_path}/{'x' * 200}", "AF_UNIX path too long"),
    ):
        with pytest.raises(Unavailable, match=text):
            unix_socket(address)
    with pytest.raises(InvalidArg, match="it names no path"):
        unix_socket("unix:")

    assert (tmp_path / "file").read_text() == "mine"
