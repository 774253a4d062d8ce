"""The frontend's port: programs that connect, and the models that their functions become."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from tritonpy.plugin import Address, Frontend, InvalidArg, Unavailable

from tritonpy_frontend_bind.bindings import BACKEND, BindBackend, Binding
from tritonpy_frontend_bind.session import Session
from tritonpy_frontend_bind.settings import Settings

_log = logging.getLogger("tritonpy.bind")

_LINE_S = 1.0
_MOST_STRANGERS = 64
_CLOSE_S = 3.0
_TLS_S = 10.0


class Listener:
    """Takes connections of programs, and serves what they bind; on the loop.

    Args:
        frontend: its handle.
        settings: of the frontend.
        clock: the time in seconds, for the log.

    Attributes:
        settings: as given.
        is_stopping: the server stops; programs will find another one in its place.
    """

    def __init__(
        self, frontend: Frontend, settings: Settings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings = settings
        self._frontend = frontend
        self._backend = BindBackend(self._offered)
        self._sessions: set[Session] = set()
        self._offers: dict[str, Binding] = {}
        self._served: dict[str, Binding] = {}
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}  # and how many have it or wait
        self._ends: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self.is_stopping = False
        self._clock = clock
        self._line_s = float("-inf")
        self._unsaid_count = 0
        self._all_over: asyncio.Future[None] | None = None

    async def start(self) -> Sequence[Address]:
        """Listen; returns the addresses with the ports that the system chose.

        Raises:
            Unavailable: the path is taken.
            InvalidArg: the system has no such sockets.
        """
        loop = asyncio.get_running_loop()
        metadata = self._frontend.dataplane.server_metadata()
        name = f"{metadata['name']} {metadata['version']}"

        def connected() -> asyncio.BufferedProtocol:
            return Session(self, name).link

        path = self.settings.path
        if path:
            listening = _unix_socket(path)
            self._servers.append(await loop.create_unix_server(connected, sock=listening))
            return self._frontend.addresses
        (address,) = self.settings.addresses
        try:
            tls = self.settings.tls
            server = await loop.create_server(
                connected,
                address.host,
                address.port,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else _TLS_S,
                ssl_shutdown_timeout=None if tls is None else _CLOSE_S,
            )
        except OSError as exc:
            raise Unavailable(f"frontend '{self._frontend.name}' cannot listen on {address}: {exc}") from None
        self._servers.append(server)
        return [Address(*each.getsockname()[:2]) for each in server.sockets]

    def refuse(self) -> None:
        """Take nothing new."""
        self.is_stopping = True
        for server in self._servers:
            server.close()
        if path := self.settings.path:
            with suppress(OSError):
                os.unlink(path)

    async def close(self) -> None:
        """Let the programs go."""
        for session in tuple(self._sessions):
            session.close("the server stops")
        if self._sessions:
            self._all_over = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._all_over,), timeout=_CLOSE_S)
        for session in tuple(self._sessions):  # it does not read what it was sent last
            session.close("the server stops", at_once=True)
        if self._ends:
            await asyncio.wait(self._ends)

    # For sessions.

    def taken(self, session: Session) -> str:
        """See `Server`."""
        self._sessions.add(session)
        if self.is_stopping:
            return "the server stops"
        strangers = sum(not session.program for session in self._sessions)
        return self.full() or ("too many connections are being opened" if strangers > _MOST_STRANGERS else "")

    def full(self) -> str:
        """See `Server`."""
        known = sum(bool(session.program) for session in self._sessions)
        if known < self.settings.max_programs:
            return ""
        return (
            f"{known} programs are connected, and no more than {self.settings.max_programs} are taken "
            f"(--frontend-config={self._frontend.name},max-programs)"
        )

    def refused(self, peer: str, reason: str) -> None:
        """See `Server`; a line a second at most, whoever knocks."""
        now = self._clock()
        if now - self._line_s < _LINE_S:
            self._unsaid_count += 1
            return
        more = f" (and {self._unsaid_count} others since the last such line)" if self._unsaid_count else ""
        self._line_s, self._unsaid_count = now, 0
        _log.warning("refused a connection from %s: %s%s", peer, reason, more)

    def over(self, session: Session) -> None:
        """See `Server`."""
        self._sessions.discard(session)
        if not self._sessions and self._all_over is not None and not self._all_over.done():
            self._all_over.set_result(None)
        for binding in session.take_bindings():
            end = asyncio.get_running_loop().create_task(self.end(binding, binding.reason, again=True))
            self._ends.add(end)
            end.add_done_callback(self._ends.discard)

    async def serve(self, binding: Binding, files: dict[str, bytes]) -> None:
        """See `Server`.

        Raises:
            TritonError: it cannot be served; what was served by that name still is.
        """
        if self.is_stopping:
            raise Unavailable("the server stops")
        name = binding.name
        async with self._turn(name):
            self._offers[name] = binding
            before = self._served.get(name)
            reason_before = before.reason if before is not None else ""
            if before is not None and not before.reason:
                before.reason = f"{_who(binding)} has bound it"
            try:
                await self._frontend.dataplane.offer_model(
                    name,
                    binding.config,
                    {
                        f"file:{binding.version}/bound": b"",
                        **{f"file:{key}": each for key, each in files.items()},
                    },
                    self._backend,
                )
            except BaseException:
                if before is not None:
                    before.reason = reason_before
                raise
            finally:
                del self._offers[name]
            self._served[name] = binding

    async def end(self, binding: Binding, reason: str, *, again: bool) -> None:
        """See `Server`."""
        async with self._turn(binding.name):
            binding.reason, binding.again = binding.reason or reason, again
            if self._served.get(binding.name) is binding:
                del self._served[binding.name]
                if binding.is_open:
                    await self._frontend.dataplane.withdraw_model(binding.name, BACKEND)

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """One change of a name at a time; keeps nothing of names that nobody changes."""
        lock, waiting = self._turns.get(name, (asyncio.Lock(), 0))
        self._turns[name] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns.pop(name)
            if waiting > 1:
                self._turns[name] = (lock, waiting - 1)

    def _offered(self, name: str) -> Binding | None:
        return self._offers.get(name)


def _who(binding: Binding) -> str:
    label = getattr(binding.connection, "label", "another program")
    return str(label)


def _unix_socket(path: str) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):  # Windows
        raise InvalidArg(f"cannot listen on '{path}': this system has no such sockets")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_left_behind(path):
            os.unlink(path)
        listening.bind(path)
        os.chmod(path, 0o600)  # before it listens: nobody else has connected
        listening.listen()
    except OSError as exc:
        listening.close()
        raise Unavailable(f"Socket 'unix:{path}' cannot be listened on: {exc.strerror or exc}") from None
    return listening


def _is_left_behind(path: str) -> bool:
    with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                return True
    return False
