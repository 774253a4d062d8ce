"""The program that reads and writes large JSON: `python -m tritonpy.frontends.http.codec.worker`.

Started by the server, which it serves over a channel like a model's worker; not meant to be started by hand.
It knows neither models nor clients, does one thing at a time, and goes when the server does.

From the server

    TAKE_APART  (job, (text,))
    TAKE_FLAT   (job, (text, forms))       see `flat_json.InputForms`
    WRITE_DATA  (job, tensors)             a tensor is (name, datatype, shape, data)

From here

    STARTED     ()
    DONE        (job, rest, data)          of TAKE_APART: see `large_json.Parts`; an outcome is a tensor,
                                           (code, message) or None
    DONE        (job, rest, inputs)        of TAKE_FLAT: see `flat_json.FlatParts`
    DONE        (job, None, texts)         of WRITE_DATA
    FAILED      (job, code, message)

What is called data or text is bytes, or the reference and size of a block of shared memory.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Callable
from typing import Any

from tritonpy.errors import Internal, TritonError
from tritonpy.frontends.http.codec.flat_json import take_apart_flat
from tritonpy.frontends.http.codec.large_json import Outcome, take_apart, write_data
from tritonpy.ipc import frame
from tritonpy.ipc.channel import WorkerChannel
from tritonpy.ipc.frame import Message
from tritonpy.tensor import Tensor

TAKE_APART, WRITE_DATA, DONE, FAILED, TAKE_FLAT = 40, 41, 42, 43, 44

KEPT_BYTE_SIZE = 128 * 1024 * 1024
"""Shared memory that each end keeps for the next large text."""


class CodecWorker:
    """Answers the server's frames."""

    def __init__(self, channel: WorkerChannel) -> None:
        self._channel = channel
        self._endpoint = channel.endpoint
        self._endpoint.arena.keep_byte_size = KEPT_BYTE_SIZE

    def serve(self) -> None:
        """Work until the server closes the channel."""
        work: dict[int, Callable[[Message], Message]] = {
            TAKE_APART: self._take_apart,
            TAKE_FLAT: self._take_flat,
            WRITE_DATA: self._write_data,
        }
        self._channel.send(frame.STARTED)
        while (message := self._channel.receive()) is not None:
            kind, _, job, payload = message
            del message
            try:
                answer = (DONE, job, *work[kind](payload))
            except Exception as exc:  # answered, of any kind: the server waits
                error = exc if isinstance(exc, TritonError) else Internal(f"{type(exc).__name__}: {exc}")
                answer = (FAILED, job, int(error.code), error.message)
            del payload
            self._channel.send(*answer)

    def _take_apart(self, payload: Message) -> Message:
        parts = take_apart(_host_view(self._endpoint.adopt(payload[0])))
        return parts.rest, [(index, self._pack_outcome(outcome)) for index, outcome in parts.data]

    def _take_flat(self, payload: Message) -> Message:
        parts = take_apart_flat(_host_view(self._endpoint.adopt(payload[0])), payload[1])
        return parts.rest, [
            (is_nested, name, self._pack_outcome(outcome)) for is_nested, name, outcome in parts.inputs
        ]

    def _pack_outcome(self, outcome: Outcome | None) -> Message | None:
        if isinstance(outcome, TritonError):
            return int(outcome.code), outcome.message
        if outcome is None:
            return None
        data = self._endpoint.export(outcome.wire())
        return outcome.name, outcome.datatype, outcome.shape, data

    def _write_data(self, payload: Message) -> Message:
        tensors = [
            Tensor(name, datatype, shape, self._endpoint.adopt(data))
            for name, datatype, shape, data in payload
        ]
        return None, [self._endpoint.export(text) for text in write_data(tensors)]


def _host_view(data: Any) -> bytes | memoryview:  # Any: an array of bytes of any library
    return data if isinstance(data, bytes) else data.data


def main() -> None:
    """Serve the channel this process was started with."""
    # Signals of a terminal or a service manager reach the whole group; the server says when to go.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.stderr is not None:
        faulthandler.enable()
    channel = WorkerChannel.from_environment()
    channel.exit_with_server()
    CodecWorker(channel).serve()


if __name__ == "__main__":
    main()
