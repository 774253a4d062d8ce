"""One program that is connected, from the proof of the token to its end; on the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

from tritonpy.plugin import InvalidArg, JsonObject, TritonError
from tritonpy_sdk.remote.link import Link
from tritonpy_sdk.remote.messages import Parts, read_error, read_responses
from tritonpy_sdk.remote.proof import PROGRAM, PROTOCOL_VERSION, SERVER, is_nonce, is_proof, new_nonce, prove
from tritonpy_sdk.remote.wire import BadFrame, Frame

from tritonpy_frontend_bind.bindings import Binding, Call, End, Part, gone
from tritonpy_frontend_bind.model_config import checked_config, read_files
from tritonpy_frontend_bind.settings import Settings

_log = logging.getLogger("tritonpy.bind")

_PROOF_S = 10.0
_MOST_ORDERS = 1000


class Server(Protocol):
    """The server, as its programs' connections see it; on the loop."""

    settings: Settings
    is_stopping: bool

    async def serve(self, binding: Binding, files: dict[str, bytes]) -> None:
        """Serve a function; raises `TritonError` if it cannot be served."""

    async def end(self, binding: Binding, reason: str, *, again: bool) -> None:
        """Serve a function no more."""

    def taken(self, session: Session) -> str:
        """A connection has been opened; returns the reason why the program cannot stay, "" for none."""

    def full(self) -> str:
        """The reason why no more programs are taken; "" if they are."""

    def refused(self, peer: str, reason: str) -> None:
        """A connection was not taken."""

    def over(self, session: Session) -> None:
        """The connection has ended."""


class Session:
    """The connection of a program.

    Args:
        server: that it binds functions into.
        server_name: and version, for the greeting.

    Attributes:
        program: what it calls itself; "" before it has proved that it knows the token.
    """

    def __init__(self, server: Server, server_name: str) -> None:
        self.link = Link(self)
        self.program = ""
        self._server = server
        self._name = server_name
        self._loop = asyncio.get_running_loop()
        self._nonce = new_nonce()
        self._bindings: dict[int, Binding] = {}
        self._calls: dict[int, Call] = {}
        self._numbers = count(1)
        self._reason = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._orders: asyncio.Queue[tuple[Frame, Binding | None]] = asyncio.Queue(_MOST_ORDERS)
        self._work: asyncio.Task[None] | None = None
        self._handlers: dict[str, Callable[[Frame], None]] = {
            "bind": self._note_bind,
            "unbind": self._note_unbind,
            "executed": self._executed,
            "response": self._response,
            "ping": lambda frame: None,
        }

    @property
    def label(self) -> str:
        """The program in the log and in messages."""
        return f"program '{self.program}' at {self.link.peer}"

    @property
    def max_frame_bytes(self) -> int:
        """See `Connection`."""
        return self._server.settings.max_frame_bytes

    # From the instances' threads.

    def begin(self, call: Call, head: JsonObject, parts: Parts) -> None:
        """See `Connection`."""
        self._on_loop(self._begin, call, head, parts)

    def tell(self, call: Call, head: JsonObject) -> None:
        """See `Connection`."""
        self._on_loop(self._tell, call, head)

    def closed(self, binding: Binding) -> None:
        """See `Connection`."""
        self._on_loop(self._closed, binding)

    def _on_loop(self, function: Callable[..., None], *args: Any) -> None:  # Any: the function's arguments
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)

    def _begin(self, call: Call, head: JsonObject, parts: Parts) -> None:
        if self._reason:
            call.waiting.put(End(error=gone(call.binding, self._reason)))
            return
        call.number = next(self._numbers)
        self._calls[call.number] = call
        self.link.send({**head, "call": call.number, "instance": call.instance}, parts)

    def _tell(self, call: Call, head: JsonObject) -> None:
        if call.number in self._calls:
            self.link.send({**head, "call": call.number})

    def _closed(self, binding: Binding) -> None:
        if self._bindings.get(binding.number) is binding:
            del self._bindings[binding.number]
            again = binding.again or (self._server.is_stopping and not binding.reason)
            self._end(binding.number, binding.reason or "it was unloaded on the server", again)

    # For the server.

    def close(self, reason: str, *, at_once: bool = False) -> None:
        """Let the program go; see `Link.close`."""
        self.link.close(reason, at_once=at_once)

    # For the link.

    def connected(self) -> None:
        """See `LinkOwner`."""
        if reason := self._server.taken(self):
            self._refuse(reason)
            return
        self._deadline = self._loop.call_later(_PROOF_S, self._too_late)
        hello = {"kind": "hello", "versions": [PROTOCOL_VERSION], "nonce": self._nonce, "server": self._name}
        self.link.send(hello)

    def received(self, frame: Frame) -> None:
        """See `LinkOwner`."""
        if not self.program:
            self._prove(frame)
            return
        handler = self._handlers.get(frame.kind)
        if handler is None:
            raise BadFrame(f"got a frame of kind '{frame.kind[:32]}' from a program")
        handler(frame)

    def lost(self, reason: str) -> None:
        """See `LinkOwner`."""
        self._reason = reason
        if self._deadline is not None:
            self._deadline.cancel()
        if self.program and (self._bindings or self._calls):
            _log.warning("lost %s: %s", self.label, reason)
        elif self.program:
            _log.info("left: %s", self.label)
        elif reason:
            self._server.refused(self.link.peer, reason)
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.waiting.put(End(error=gone(call.binding, reason)))
        if self._work is not None:
            self._orders.put_nowait((_LAST, None)) if not self._orders.full() else self._work.cancel()
        for binding in self._bindings.values():
            binding.is_gone = True
            binding.reason = binding.reason or f"the connection is lost: {reason}"
        self._server.over(self)

    def take_bindings(self) -> list[Binding]:
        """The functions that are still served, of a program that is gone."""
        bindings = list(self._bindings.values())
        self._bindings.clear()
        return bindings

    def _prove(self, frame: Frame) -> None:
        head = frame.head
        if frame.kind != "prove":
            raise BadFrame(f"got a frame of kind '{frame.kind[:32]}', expected 'prove'")
        if head.get("version") != PROTOCOL_VERSION:
            self._refuse(
                f"the program speaks version {str(head.get('version'))[:32]} of the protocol, and this "
                f"server {PROTOCOL_VERSION}: install the same version of tritonpy-sdk on both sides"
            )
            return
        nonce = head.get("nonce")
        token = self._server.settings.token
        if not is_nonce(nonce) or not is_proof(head.get("proof"), token, PROGRAM, self._nonce, str(nonce)):
            self._refuse("it does not know the token")
            return
        if reason := self._server.full():  # others were faster to prove themselves
            self._refuse(reason)
            return
        assert self._deadline is not None  # set when it connected
        self._deadline.cancel()
        self.program = "".join(c if c.isprintable() else "?" for c in str(head.get("program"))[:200])
        settings = self._server.settings
        self.link.send(
            {
                "kind": "welcome",
                "proof": prove(token, SERVER, self._nonce, str(nonce)),
                "most_data_bytes": settings.max_frame_bytes,
                "silence_s": settings.silence_s,
            }
        )
        self.link.open(settings.max_frame_bytes, settings.silence_s)
        self._work = self._loop.create_task(self._follow_orders())
        _log.info("connected: %s", self.label)

    def _refuse(self, reason: str) -> None:
        self.link.send({"kind": "refused", "error": reason})
        self.link.close(reason)

    def _too_late(self) -> None:
        self.link.close(f"it has not proved within {_PROOF_S:g} s that it knows the token", at_once=True)

    # Binding, one after the other.

    def _note_bind(self, frame: Frame) -> None:
        self._note(frame, self._read_binding(frame))

    def _note_unbind(self, frame: Frame) -> None:
        _number(frame, "binding")
        self._note(frame, None)

    def _note(self, frame: Frame, binding: Binding | None) -> None:
        if self._orders.full():
            raise BadFrame(f"more than {_MOST_ORDERS} functions are to be bound and unbound at once")
        self._orders.put_nowait((frame, binding))

    def _read_binding(self, frame: Frame) -> Binding:
        head = frame.head
        number, version = _number(frame, "binding"), _number(frame, "version")
        name, config = head.get("name"), head.get("config")
        if not isinstance(name, str) or not isinstance(config, dict):
            raise BadFrame("a function to be bound has no name and configuration")
        return Binding(self, number, name, version, config)

    async def _follow_orders(self) -> None:
        while True:
            frame, binding = await self._orders.get()
            if frame is _LAST:
                return
            if binding is not None:
                await self._bind(frame, binding)
            else:
                await self._unbind(_number(frame, "binding"))

    async def _bind(self, frame: Frame, binding: Binding) -> None:
        number = binding.number
        try:
            if number in self._bindings:
                raise InvalidArg(f"model '{binding.name}': number {number} is that of another function")
            files = read_files(frame.head.get("files"), frame.data)
            binding.config = checked_config(binding, self._server.settings.max_instances)
            await self._server.serve(binding, files)
        except TritonError as error:
            self._fail(binding, error)
            return
        except Exception as exc:  # it must not cost the program its other functions
            _log.exception("model '%s' of %s cannot be bound", binding.name, self.label)
            self._fail(binding, InvalidArg(f"model '{binding.name}' cannot be bound: {type(exc).__name__}"))
            return
        self._bindings[number] = binding
        if self._reason:  # it has gone meanwhile
            binding.is_gone = True
            binding.reason = binding.reason or f"the connection is lost: {self._reason}"
            self._server.over(self)
            return
        if not binding.is_open:  # and has been unloaded meanwhile
            self._closed(binding)
            return
        self.link.send({"kind": "bound", "binding": number})

    def _fail(self, binding: Binding, error: TritonError) -> None:
        _log.error("model '%s' of %s cannot be bound: %s", binding.name, self.label, error.described())
        entry = [int(error.code), error.message]
        self.link.send({"kind": "failed", "binding": binding.number, "code": entry[0], "error": entry})

    async def _unbind(self, number: int) -> None:
        binding = self._bindings.get(number)
        if binding is None:
            self._end(number, "it is not bound", False)
        else:
            await self._server.end(binding, "the program has unbound it", again=False)

    def _end(self, number: int, reason: str, again: bool) -> None:
        self.link.send({"kind": "ended", "binding": number, "reason": reason, "again": again})

    # Answers.

    def _executed(self, frame: Frame) -> None:
        call = self._calls.pop(_number(frame, "call"), None)
        if call is None:
            raise BadFrame("got the end of a call that is not open")
        head = frame.head
        if head.get("lost") is True:
            call.binding.is_lost = True
        try:
            end = self._read_end(frame, call)
        except BadFrame as exc:
            call.waiting.put(End(error=gone(call.binding, str(exc))))
            raise
        call.waiting.put(end)

    def _read_end(self, frame: Frame, call: Call) -> End:
        head = frame.head
        compute_ns = _number(frame, "compute_ns")
        if "error" in head:
            return End(error=read_error(head["error"]), compute_ns=compute_ns)
        if head.get("responses") is None:
            return End(compute_ns=compute_ns)
        responses = [each for each in read_responses(head["responses"], frame.data) if each is not None]
        if len(responses) != call.request_count:
            raise BadFrame(f"got {len(responses)} responses to {call.request_count} requests")
        return End(responses, compute_ns=compute_ns)

    def _response(self, frame: Frame) -> None:
        call = self._calls.get(_number(frame, "call"))
        if call is None:
            raise BadFrame("got a response to a call that is not open")
        index = _number(frame, "request")
        if index >= call.request_count:
            raise BadFrame(f"got a response to request {index} of {call.request_count}")
        (response,) = read_responses([frame.head.get("response")], frame.data)
        if not call.put(Part(index, response, frame.head.get("final") is True)):
            raise BadFrame("got more responses than the program was told that it may send")


_LAST = Frame({"kind": "last"}, memoryview(b""))


def _number(frame: Frame, key: str) -> int:
    value = frame.head.get(key)
    if type(value) is not int or value < 0:
        raise BadFrame(f"a frame of kind '{frame.kind[:32]}' has no number '{key}'")
    return value
