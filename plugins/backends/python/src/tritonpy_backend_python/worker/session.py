"""The conversation with the server: one message after the other, until it says goodbye."""

from __future__ import annotations

import faulthandler
import gc
import json
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from triton_python_backend_utils._link import forget_link, set_link
from triton_python_backend_utils._logger import forget_sink, set_sink
from triton_python_backend_utils._model_control import running
from triton_python_backend_utils._server_metrics import close_metrics, flush_metrics
from triton_python_backend_utils._strings import printable

from .channel import Channel, frame, open_channel
from .failure import as_failure, describe, full_traceback
from .forks import Forks, stay
from .inbox import Inbox
from .instance import ModelInstance
from .link import ServerLink
from .model_file import ModelFile
from .output import current_request_id, end_all_lines, end_line, install_streams

_packages = count(1)

Reply = tuple[Any, ...]  # Any: see `frame.py`


class Session:
    """One model and one instance of it, at the far end of a channel.

    Args:
        channel: the worker's end of it.
        owns_process: nothing but this model runs in this process.
    """

    def __init__(self, channel: Channel, *, owns_process: bool) -> None:
        self._channel = channel
        self._owns_process = owns_process
        self._inbox = Inbox(channel)
        self._link = ServerLink(channel, self._inbox)
        self._file: ModelFile | None = None
        self._instance: ModelInstance | None = None

    def run(self) -> None:
        """Handle messages until the server asks to finalize or closes the channel."""
        set_link(self._link)
        if self._owns_process:
            Forks(self._channel, self._inbox, self._link, self._on_child).install()
        self._channel.send(frame.STARTED)
        receive = self._inbox.next_command
        while True:
            message = receive()
            if message is None:
                return
            kind = message[0]
            if kind == frame.EXECUTE:
                assert self._instance is not None  # the server waits for INITIALIZED
                self._instance.execute(message[2], message[3])
            elif kind == frame.SETUP:
                self._set_up(json.loads(message[2]))
            elif kind == frame.COMPLETE:
                with running("auto_complete_config"):
                    self._answer(self._complete)
            elif kind == frame.INITIALIZE:
                with running("initialize"):
                    self._answer(self._initialize, json.loads(message[2]))
            elif kind == frame.PROBE:
                assert self._instance is not None  # the server waits for INITIALIZED
                self._channel.send(frame.PROBED, *self._instance.probe())
            elif kind == frame.FINALIZE:
                with running("finalize"):
                    failure = self._finalize()
                end_all_lines()
                close_metrics(self._link)
                self._channel.send(frame.FINALIZED, failure)
                return

    def _on_child(self) -> None:
        if self._instance is not None:
            self._instance.refuse_responses()

    def forget(self) -> None:
        """Leave the process to others that go on in it."""
        forget_link(self._link)
        if self._file is not None:
            self._file.forget()

    def _set_up(self, spec: dict[str, Any]) -> None:  # Any: JSON
        arena = self._channel.endpoint.arena
        arena.first_byte_size, arena.growth_byte_size, arena.most_byte_size = spec["shared_memory"]
        if self._owns_process:
            self._file = ModelFile(spec)
        else:
            package = f"tritonpy_model_{next(_packages)}"  # version 1 of others is there as well
            self._file = ModelFile(spec, package, keeps_apart=True)

    def _answer(self, step: Callable[..., Reply], *args: Any) -> None:  # Any: the step's own
        try:
            reply = step(*args)
        except BaseException as exc:  # SystemExit too: the server decides when this process ends
            end_line()
            self._channel.send(frame.FAILED, *as_failure(exc), full_traceback(exc))
        else:
            end_line()
            flush_metrics()
            self._channel.send(*reply)

    def _complete(self) -> Reply:
        assert self._file is not None  # SETUP comes first
        return frame.COMPLETED, self._file.complete()

    def _initialize(self, spec: dict[str, Any]) -> Reply:  # Any: JSON
        assert self._file is not None  # SETUP comes first
        model = self._file.instantiate(spec)
        self._instance = ModelInstance(self._channel, self._link, self._file, model, spec)
        if self._owns_process:
            gc.freeze()  # what is loaded now stays: no later collection need look at it
        return frame.INITIALIZED, self._instance.is_probed

    def _finalize(self) -> str | None:
        if self._instance is None:
            return None
        try:
            self._instance.finalize()
        except BaseException as exc:
            return describe(exc)
        return None


def serve() -> None:
    """Serve the channel this process was started with."""
    if sys.stderr is not None:
        faulthandler.enable()  # a crash in native code shows the model's line on standard error
    # Ctrl-C and a service manager's SIGTERM reach the whole group; when to go is the server's decision. A
    # handler, not SIG_IGN: programs that a model starts would inherit the latter.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stay)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)  # what a model prints is to be seen when it prints it
    channel = open_channel()
    channel.exit_with_server()
    install_streams(partial(channel.send, frame.LOG))
    serve_channel(channel, owns_process=True)


def serve_channel(channel: Channel, *, owns_process: bool) -> None:
    """Serve a channel on this thread, until the server has no more use for it.

    Args:
        channel: the worker's end of it.
        owns_process: False on a thread of the server.
    """
    channel.endpoint.peer.segment(0)  # the cancellation flags, mapped before other threads may ask for them

    def say(level: int, message: str, file: str, line: int) -> None:
        channel.send(
            frame.LOG, int(level), printable(message), current_request_id(), printable(file), line, ""
        )

    set_sink(say)
    session = Session(channel, owns_process=owns_process)
    try:
        session.run()
    finally:
        session.forget()
        forget_sink(say)
