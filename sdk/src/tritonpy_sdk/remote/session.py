"""One connection of this program to a server, from the proof of the token to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from tritonpy.errors import InvalidArg, TritonError, Unavailable
from tritonpy.handles import JsonObject
from tritonpy.response import InferResponse

from tritonpy_sdk.functions.bound import Bound
from tritonpy_sdk.remote.instances import Call, InstanceThread
from tritonpy_sdk.remote.link import Link
from tritonpy_sdk.remote.messages import Parts, read_error, read_requests, response_entry
from tritonpy_sdk.remote.proof import PROGRAM, PROTOCOL_VERSION, SERVER, is_nonce, is_proof, new_nonce, prove
from tritonpy_sdk.remote.wire import BadFrame, Frame

_log = logging.getLogger("tritonpy.remote")


class RemoteModel(Protocol):
    """A function that is to be served."""

    @property
    def bound(self) -> Bound:
        """The function."""

    @property
    def number(self) -> int:
        """Its number, never used again."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """Contents of the files that its warm-up and states need, by path in the model's directory."""

    @property
    def instances(self) -> Sequence[InstanceThread]:
        """The threads that call it."""


class SessionOwner(Protocol):
    """The program; called on its loop."""

    def find(self, number: int) -> RemoteModel | None:
        """The function with this number, if it is still there."""

    def bound(self, number: int) -> None:
        """The server serves a function."""

    def failed(self, number: int, error: TritonError) -> None:
        """The server cannot serve a function."""

    def ended(self, number: int, reason: str, again: bool) -> None:
        """The server serves a function no more, and asks nothing of it."""

    def over(self, session: Session) -> None:
        """The connection has ended."""


class Refused(Exception):
    """The server does not want this program, or is not the one that it should be."""


class Session:
    """A connection; on the loop, but for answers, which come from the threads of functions.

    Args:
        owner: the program.
        token: what the server knows as well; "" for none.

    Attributes:
        opened: ends when both sides have proved themselves, or with the reason why they did not.
        reason: why it has ended; "" before.
    """

    def __init__(self, owner: SessionOwner, token: str) -> None:
        self.link = Link(self)
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reason = ""
        self._owner = owner
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._nonces = ("", "")
        self._most_data_bytes = 0
        self._calls: dict[int, Call] = {}
        self._handlers: dict[str, Callable[[Frame], None]] = {
            "execute": self._execute,
            "cancel": self._cancel,
            "took": self._took,
            "bound": lambda frame: owner.bound(_number(frame, "binding")),
            "failed": lambda frame: owner.failed(
                _number(frame, "binding"), read_error(frame.head.get("error"))
            ),
            "ended": self._ended,
            "ping": lambda frame: None,
        }

    def bind(self, model: RemoteModel) -> None:
        """Ask the server to serve a function; `SessionOwner` hears of the outcome."""
        bound, files = model.bound, model.files
        head = {
            "kind": "bind",
            "binding": model.number,
            "name": bound.name,
            "version": bound.version,
            "config": bound.config(),
            "files": [[path, len(content)] for path, content in files.items()],
        }
        size = sum(map(len, files.values()))
        if size > self._most_data_bytes:
            self._owner.failed(model.number, self._too_large("files for its warm-up and states", size))
            return
        self.link.send(head, list(files.values()))

    def unbind(self, number: int) -> None:
        """Ask the server to serve a function no more; `SessionOwner.ended` follows."""
        self.link.send({"kind": "unbind", "binding": number})

    # From the threads of functions.

    def respond(self, call: Call, request: int, response: InferResponse | None, final: bool) -> None:
        """See `Answers`."""
        parts: Parts = []
        entry = response_entry(response, parts)
        size = sum(memoryview(part).nbytes for part in parts)
        if size > self._most_data_bytes:
            too_large = InferResponse(error=self._too_large("a response", size))
            entry, parts = response_entry(too_large, []), []
        head: JsonObject = {
            "kind": "response",
            "call": call.number,
            "request": request,
            "response": entry,
            "final": final,
        }
        self._on_loop(lambda: self.link.send(head, parts))

    def executed(
        self,
        call: Call,
        responses: Sequence[InferResponse] | None,
        error: TritonError | None,
        *,
        compute_ns: int,
        is_lost: bool,
    ) -> None:
        """See `Answers`."""
        parts: Parts = []
        entries = None
        if responses is not None and error is None:
            entries = [response_entry(response, parts) for response in responses]
            size = sum(memoryview(part).nbytes for part in parts)
            if size > self._most_data_bytes:
                error, parts = self._too_large("the responses of a batch", size), []
        head: JsonObject = {"kind": "executed", "call": call.number, "compute_ns": compute_ns}
        if error is not None:
            head["error"] = [int(error.code), error.message]
        else:
            head["responses"] = entries
        if is_lost:
            head["lost"] = True

        def send() -> None:
            self._calls.pop(call.number, None)
            self.link.send(head, parts)

        self._on_loop(send)

    # For the link.

    def connected(self) -> None:
        """See `LinkOwner`; the server speaks first."""

    def received(self, frame: Frame) -> None:
        """See `LinkOwner`."""
        if not self.opened.done():
            self._prove_or_open(frame)
            return
        handler = self._handlers.get(frame.kind)
        if handler is None:
            raise BadFrame(f"got a frame of kind '{frame.kind[:32]}' from the server")
        handler(frame)

    def lost(self, reason: str) -> None:
        """See `LinkOwner`."""
        self.reason = reason
        if not self.opened.done():
            self.opened.set_exception(Unavailable(reason))
            self.opened.exception()  # there may be no waiter any more
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.give_up()
        self._owner.over(self)

    def _prove_or_open(self, frame: Frame) -> None:
        head = frame.head
        match frame.kind:
            case "hello":
                if PROTOCOL_VERSION not in _versions(head):
                    self._refuse(
                        f"the server speaks versions {head.get('versions')!r} of the protocol, and this "
                        f"program {PROTOCOL_VERSION}"
                    )
                    return
                if not is_nonce(head.get("nonce")):
                    raise BadFrame("the server's greeting has no random number")
                self._nonces = (str(head["nonce"]), new_nonce())
                self.link.send(
                    {
                        "kind": "prove",
                        "version": PROTOCOL_VERSION,
                        "nonce": self._nonces[1],
                        "proof": prove(self._token, PROGRAM, *self._nonces),
                        "program": f"{socket.gethostname()}:{os.getpid()}",
                    }
                )
            case "welcome":
                if not is_proof(head.get("proof"), self._token, SERVER, *self._nonces):
                    self._refuse("the server does not know the token")
                    return
                self._most_data_bytes = _number(frame, "most_data_bytes")
                silence_s = head.get("silence_s")
                if not isinstance(silence_s, int | float) or not silence_s > 0:
                    raise BadFrame("the server's welcome has no 'silence_s'")
                self.link.open(self._most_data_bytes, silence_s)
                self.opened.set_result(None)
            case "refused":
                self._refuse(str(head.get("error", ""))[:1000])
            case kind:
                raise BadFrame(f"got a frame of kind '{kind[:32]}' before the welcome")

    def _refuse(self, reason: str) -> None:
        self.opened.set_exception(Refused(reason))
        self.link.close(reason)

    def _execute(self, frame: Frame) -> None:
        number = _number(frame, "call")
        model = self._owner.find(_number(frame, "binding"))
        if model is None:
            self._fail_call(number, Unavailable("the program has unbound this function"))
            return
        index = _number(frame, "instance")
        bound = model.bound
        if index >= len(model.instances) or number in self._calls:
            raise BadFrame("got a call of an instance that is none, or that number was used")
        requests = read_requests(bound.name, frame.head.get("requests"), frame.data)
        call = Call(number, requests, self, is_decoupled=bound.is_decoupled)
        self._calls[number] = call
        model.instances[index].submit(call)

    def _fail_call(self, number: int, error: TritonError) -> None:
        self.link.send(
            {"kind": "executed", "call": number, "compute_ns": 0, "error": [int(error.code), error.message]}
        )

    def _cancel(self, frame: Frame) -> None:
        if (call := self._calls.get(_number(frame, "call"))) is not None:
            call.cancel(_number(frame, "request"))

    def _took(self, frame: Frame) -> None:
        if (call := self._calls.get(_number(frame, "call"))) is not None:
            call.took(_number(frame, "count"), _number(frame, "byte_size"))

    def _ended(self, frame: Frame) -> None:
        again = frame.head.get("again") is True
        self._owner.ended(_number(frame, "binding"), str(frame.head.get("reason", "")), again)

    def _too_large(self, what: str, size: int) -> InvalidArg:
        return InvalidArg(
            f"{what}: got {size} bytes, and the server takes {self._most_data_bytes} in one frame "
            f"(--frontend-config=bind,max-frame-bytes)"
        )

    def _on_loop(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the program has stopped: the loop is closed
            self._loop.call_soon_threadsafe(function)


def _number(frame: Frame, key: str) -> int:
    value = frame.head.get(key)
    if type(value) is not int or value < 0:
        raise BadFrame(f"a frame of kind '{frame.kind[:32]}' has no number '{key}'")
    return value


def _versions(head: JsonObject) -> list[object]:
    versions = head.get("versions")
    return versions if isinstance(versions, list) else []
