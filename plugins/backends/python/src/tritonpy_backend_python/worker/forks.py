"""Processes that a model forks, as `multiprocessing` does: they reach the server through their parent.

Only one process can read the server's channel. So each child gets a socket to its parent and sends over it
what it would send to the server: calls, questions, messages. A thread of the parent passes them on under
numbers of its own, and a thread for each call brings the replies back. Tensors go through that socket, not
through shared memory. Requests are the parent's to answer: a sender raises in a child.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from triton_python_backend_utils._server_metrics import go_on_in_child
from triton_python_backend_utils._wire import discard

from .channel import Channel, Message, frame
from .inbox import Inbox, ServerGone, Waiter
from .link import ServerLink

_RECEIVE_BYTE_SIZE = 64 * 1024
_INTERNAL = 1


def stay(*_: object) -> None:
    """Ignore a signal: when a worker goes is the server's decision."""


class Forks:
    """Gives children their link to the server.

    Args:
        channel: to the server; in a child, to the parent.
        inbox: reads it.
        link: says for which batch the parent works, which is the one that its children work for.
        on_child: called in each child.
    """

    def __init__(
        self, channel: Channel, inbox: Inbox, link: ServerLink, on_child: Callable[[], None]
    ) -> None:
        self._channel = channel
        self._inbox = inbox
        self._link = link
        self._on_child = on_child
        self._pairs: dict[int, tuple[socket.socket, socket.socket]] = {}  # by the thread that forks
        self._children: set[socket.socket] = set()

    def install(self) -> None:
        """Take part in every fork of this process from now on."""
        os.register_at_fork(
            before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child
        )

    def _before(self) -> None:
        with suppress(OSError):  # no descriptors: the child has no link
            self._pairs[threading.get_ident()] = socket.socketpair()

    def _in_parent(self) -> None:
        pair = self._pairs.pop(threading.get_ident(), None)
        if pair is None:
            return
        ours, theirs = pair
        theirs.close()
        self._children.add(ours)
        relay = _Relay(ours, self._channel, self._inbox, self._link)

        def run() -> None:
            try:
                relay.run()
            finally:  # a child must not wait for one that has ended
                self._children.discard(ours)
                ours.close()

        threading.Thread(target=run, name="forked-child", daemon=True).start()

    def _in_child(self) -> None:
        own = self._pairs.pop(threading.get_ident(), None)
        for ours, theirs in self._pairs.values():  # of other threads, which fork at the same time
            ours.close()
            theirs.close()
        for other in self._children:
            other.close()
        self._pairs, self._children = {}, set()
        if signal.getsignal(signal.SIGTERM) is stay:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # or its parent could not end it
        self._inbox.start_anew()
        if own is not None:
            own[0].close()
            self._channel.continue_over(own[1])
        go_on_in_child()
        self._on_child()


class _Relay:
    """Passes on what one child sends, and brings back what it has asked for."""

    def __init__(self, child: socket.socket, channel: Channel, inbox: Inbox, link: ServerLink) -> None:
        self._child = child
        self._channel = channel
        self._inbox = inbox
        self._link = link
        self._send_lock = threading.Lock()
        self._numbers: dict[int, int] = {}  # of calls and questions: ours by the child's

    def run(self) -> None:
        """Pass on until the child has ended; then cancel what it waited for."""
        reader = frame.FrameReader()
        with suppress(OSError):  # the server is gone, or the child
            while data := self._child.recv(_RECEIVE_BYTE_SIZE):
                for message in reader.feed(data):
                    self._pass_on(message)
        for number in list(self._numbers.values()):
            with suppress(OSError):
                self._channel.send(frame.CANCEL, number)

    def _pass_on(self, message: Message) -> None:
        kind, _, *payload = message
        if kind == frame.CALL:
            number, _, decoupled, model, version, request = payload
            try:
                inputs = self._exported(request[8])
            except MemoryError as exc:  # of a child, too, it costs one call
                self._reply(frame.CALLED, number, ([], None, (_INTERNAL, str(exc))), True)
                return
            request = (*request[:8], inputs, *request[9:])
            batch = self._link.running_batch
            self._ask(number, frame.CALL, batch, decoupled, model, version, request)
        elif kind == frame.ASK:
            number, *question = payload
            self._ask(number, frame.ASK, *question)
        elif kind == frame.CANCEL:
            if payload[0] in self._numbers:
                self._channel.send(frame.CANCEL, self._numbers[payload[0]])
        elif kind == frame.TELL and payload[0] == frame.TAKEN_NOTICE:
            number, count = payload[1]
            if number in self._numbers:
                self._channel.send(frame.TELL, frame.TAKEN_NOTICE, (self._numbers[number], count))
        elif kind in (frame.TELL, frame.LOG):
            self._channel.send(kind, *payload)

    def _exported(self, tensors: Any) -> list[Any]:  # Any: see `frame.py`
        endpoint = self._channel.endpoint
        exported: list[Any] = []
        try:
            for name, datatype, shape, data in tensors:
                exported.append((name, datatype, shape, endpoint.export(data)))
        except MemoryError:
            discard([(exported, None, None)], endpoint)
            raise
        return exported

    def _ask(self, number: int, kind: int, *payload: Any) -> None:  # Any: see `frame.py`
        own, waiter = self._inbox.open()
        self._numbers[number] = own
        self._channel.send(kind, own, *payload)
        bring = threading.Thread(
            target=self._bring, args=(number, own, waiter), name="forked-child-call", daemon=True
        )
        bring.start()

    def _bring(self, number: int, own: int, waiter: Waiter) -> None:
        final = False
        with suppress(ServerGone, OSError):
            while not final:
                kind, _, _, *payload = self._inbox.next_reply(waiter)
                final = kind == frame.ANSWER or payload[1]
                if kind == frame.CALLED:
                    outputs, parameters, error = payload[0]
                    payload[0] = [self._inlined(tensor) for tensor in outputs], parameters, error
                if final:
                    self._numbers.pop(number, None)  # first: the child may end as soon as it has it
                self._reply(kind, number, *payload)
        self._numbers.pop(number, None)  # the child has ended before
        self._inbox.close(own)

    def _reply(self, kind: int, number: int, *payload: Any) -> None:  # Any: see `frame.py`
        encoded = frame.encode_frame((kind, (), number, *payload))
        with self._send_lock:
            self._child.sendall(encoded)

    def _inlined(self, tensor: Any) -> tuple[Any, ...]:  # Any: see `frame.py`
        name, datatype, shape, data = tensor
        return name, datatype, shape, bytes(self._channel.endpoint.adopt(data))
