"""Frames: a length, then one tuple in marshal form.

marshal is what every CPython has that turns tuples of str, bytes, int, float, bool, None and dict into bytes
at C speed (about 1 µs for a request); its version 2 is written and read alike by 3.9 and newer. It is not
meant for data from strangers: both ends of a channel run as the same user, one of them started by the other.

Every frame is `(kind, releases, *payload)`. `releases` are references of shared-memory blocks that the sender
has finished reading and the receiver may use again. The kinds and their payloads:

From the server to the worker

    SETUP       (model: str)                 JSON: name, version, directory, backend, settings, config
    COMPLETE    ()                           asks for the auto-completed configuration
    INITIALIZE  (instance: str)              JSON: name, index, kind, device_id, config
    EXECUTE     (batch, requests)            see below
    FINALIZE    ()
    CALLED      (call, response, final)      one response to a call of the worker's model; or None, the final
                                             flag alone
    ANSWER      (ask, value, error)          answers ASK; `error` is None or (code, message)
    PROBE       ()                           asks whether the instance is ready
    FORGET      (segment)                    nothing in this segment will be referred to any more

From the worker to the server

    STARTED     ()                           the program runs and reads; the model's own code comes after this
    COMPLETED   (config: str | None)         JSON of the completed configuration, None for "as it was"
    INITIALIZED (is_probed)                  whether its readiness is to be asked for by PROBE
    PROBED      (ready, error: str | None)   answers PROBE; with the text of an exception, if any
    FAILED      (code, message, traceback)   answers SETUP, COMPLETE or INITIALIZE
    EXECUTED    (batch, times, responses, error[, indices of requests that count as failed])
                                             the instance is free; `responses` is None or one per request;
                                             `error` is None, or (code, message) when the whole batch failed
    RESPONSE    (slot, response, final, durations)
                                             one answer of a request that answers by itself; `durations` is
                                             (to compute it, to encode it) in nanoseconds, None from a model
                                             that is not decoupled
    LOG         (level, message, request_id, file, line, traceback)
                                             level 0 info, 1 warning, 2 error, 3 verbose; `file` is `stdout`
                                             or `stderr` for what a model prints; `traceback` may be ""
    FINALIZED   (message: str | None)        then the worker exits; the text of an exception, if any
    CALL        (call, batch, decoupled, model, version, request)
                                             the model calls another one; `batch` is the batch that waits for
                                             it, 0 for none; `version` is -1 for the newest
    CANCEL      (call)                       the model no longer wants the answers to a call
    RESCHEDULE  (slot)                       the request is to be executed again; its slot is free
    ASK         (ask, what, args)            a question to the server, such as `metrics.value`; see ANSWER
    TELL        (what, args)                 the same without an answer; `metrics.state` has all metrics of
                                             the worker, `(name, description, kind, samples)` each, where a
                                             sample is `(labels, value, bounds, counts, set_count)`

A request is `(slot, id, flags, correlation_id, timeout_us, priority, parameters, requested, inputs)`: `slot`
names it until its final response and is its index into the cancellation flags; `parameters` is a dict or
None, `requested` a tuple of names or None. A request that is traced has one element more: to the worker
`(trace, context, parent)`, its number, JSON or None, and the number of its parent or 0; in a CALL that
belongs to that trace `(slot, trace)`.

A tensor is `(name, datatype, shape, data)`; `data` is bytes, or `(reference, byte_size)` of a block in the
sender's shared memory. A response is
`(outputs, parameters | None, error | None)` with `error = (code, message)`; None stands for "no response,
only the final flag". The question `flow.open`, with a slot, is answered when the request in it may have more
responses (see `window.py`); `call.taken` tells how many more responses of a call its caller has taken;
`memory.usage` tells what the model and its instance use now, `(memory_type, device_id, byte_size)` each;
`trace.activity` brings `(slot, trace, name, nanoseconds)` to the trace of a request.
`times` is `(exec_start, compute_start, compute_end, exec_end)` of the monotonic clock,
which all processes of a machine share, in nanoseconds.

tritonpy-abi reads EXECUTE and writes EXECUTED in C++ (ADR 0042), as marshal's version 2 has them, and tells
CALLED and ANSWER from others. It states the FRAME_VERSION that it knows.
"""

from __future__ import annotations

import marshal
import struct
from typing import Any

SETUP, COMPLETE, INITIALIZE, EXECUTE, FINALIZE, CALLED, ANSWER, FORGET, PROBE = 1, 2, 3, 4, 5, 6, 7, 8, 9
COMPLETED, INITIALIZED, FAILED, EXECUTED, RESPONSE, LOG, FINALIZED, PROBED = 11, 12, 13, 14, 15, 16, 17, 10
CALL, CANCEL, ASK, TELL, RESCHEDULE, STARTED = 18, 19, 20, 21, 22, 23

FRAME_VERSION = 1
"""Of all that is said above, marshal's version included: goes up when a `FrameExecutor` would misread it."""

OPEN_QUESTION, TAKEN_NOTICE = "flow.open", "call.taken"
MEMORY_NOTICE, TRACE_NOTICE = "memory.usage", "trace.activity"

_MARSHAL_VERSION = 2
_LENGTH = struct.Struct("<I")

Message = tuple[Any, ...]  # Any: the payload differs by kind, see above


def encode_frame(message: Message) -> bytes:
    """Turn one message into the bytes that travel."""
    body = marshal.dumps(message, _MARSHAL_VERSION)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a byte stream into messages; keeps what is incomplete until more comes."""

    __slots__ = ("_missing", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[Message]:
        """Return every message that `data` completes, in order."""
        parts = self._parts
        if parts:
            parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:  # a long frame is joined once, not again with every piece that comes
                return []
            data = b"".join(parts)
            parts.clear()
        # A list and not a generator: a receiver that fails at one message must not leave the rest uncut.
        messages = []
        size = len(data)
        start = 0
        missing = 4
        while size - start >= 4:
            end = start + 4 + _LENGTH.unpack_from(data, start)[0]
            if end > size:
                missing = end - start
                break
            messages.append(marshal.loads(data[start + 4 : end]))
            start = end
        if start < size:
            parts.append(data[start:])
            self._missing = missing - (size - start)
        return messages

    def take_rest(self) -> bytes:
        """The beginning of a frame whose rest has not come: another reader goes on from there."""
        rest = b"".join(self._parts)
        self._parts.clear()
        self._missing = 0
        return rest
