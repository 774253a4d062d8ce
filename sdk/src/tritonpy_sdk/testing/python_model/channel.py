"""The server's side of a Python model under test: takes what the worker's code sends, in the same thread.

The code that runs a model in a worker (`ModelInstance`) runs it here too, but the frames it sends end in this
process. So checks, senders, coroutines and the texts of errors are those of a server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from tritonpy.ipc import frame
from tritonpy.request import SEQUENCE_START, InferRequest

from tritonpy_sdk.testing.python_model.arrays import WireAnswer
from tritonpy_sdk.testing.python_model.replies import Replies

WireRequest = tuple[Any, ...]
"""A request as it travels. Any: each place has its own type, see `tritonpy.ipc.frame`."""

MakeError = Callable[[int, str], BaseException]
Log = Callable[[int, str], None]


class LocalEndpoint:
    """Bytes stay bytes; satisfies the `Endpoint` of workers."""

    arena: Any = None  # Any: where blocks would come from; there are none

    def export(self, data: bytes | memoryview) -> bytes:
        return bytes(data)

    def adopt(self, data: Any) -> Any:  # Any: here it is always bytes
        return data


class LocalChannel:
    """Satisfies the `Channel` of workers, as far as an instance uses it.

    Args:
        make_error: makes the exception for an error's code and text.
        log: takes level and text of a line for the log.

    Attributes:
        raised: exceptions that came out of `execute`, by the slots of its requests.
    """

    def __init__(self, make_error: MakeError, log: Log) -> None:
        self.endpoint = LocalEndpoint()
        self.raised: dict[int, BaseException] = {}
        self._make_error = make_error
        self._log = log
        self._slots = count(1)
        self._batches = count(1)
        self._lock = threading.Condition()  # guards all below; tells of final answers
        self._replies: dict[int, Replies] = {}
        self._wires: dict[int, WireRequest] = {}
        self._executing: dict[int, list[int]] = {}
        self._cancelled: set[int] = set()
        self._rescheduled: list[int] = []

    def open(self, request: InferRequest, replies: Replies) -> int:
        """Give a request a slot, where its answers will go."""
        inputs = [
            (tensor.name, tensor.datatype, tensor.shape, bytes(tensor.wire()))
            for tensor in request.inputs.values()
        ]
        with self._lock:
            slot = next(self._slots)
            self._replies[slot] = replies
            self._wires[slot] = (
                slot,
                request.id,
                request.flags,
                request.correlation_id,
                request.timeout_us,
                request.priority,
                dict(request.parameters) or None,
                request.requested_outputs,
                inputs,
            )
            return slot

    def batch_of(self, slots: Sequence[int]) -> tuple[int, list[WireRequest]]:
        """Number a batch of open requests; returns it as `ModelInstance.execute` takes it."""
        with self._lock:
            batch = next(self._batches)
            self._executing[batch] = list(slots)
            return batch, [self._wires[slot] for slot in slots]

    def take_rescheduled(self) -> list[int]:
        """The open requests that the model wants to execute again."""
        with self._lock:
            taken, self._rescheduled = self._rescheduled, []
            return taken

    def go_on(self, slot: int) -> None:
        """Execute a request again, as the continuation of its sequence."""
        with self._lock:
            wire = self._wires[slot]
            self._wires[slot] = (*wire[:2], wire[2] & ~SEQUENCE_START, *wire[3:])

    def cancel(self, slot: int) -> None:
        """The answers to a request are no longer wanted."""
        with self._lock:
            if slot in self._replies:
                self._cancelled.add(slot)

    def cancel_all(self, timeout_s: float) -> int:
        """No answers are wanted any more: wait for those that the model still sends.

        Returns:
            How many requests the model has not answered within `timeout_s` seconds.
        """
        with self._lock:
            self._cancelled.update(self._replies)
            self._lock.wait_for(lambda: not self._awaited(), timeout_s)
            return len(self._awaited())

    def close(self, error: BaseException) -> None:
        """Answer what is still open with `error`."""
        with self._lock:
            slots = list(self._replies)
        self.fail(slots, error)

    def fail(self, slots: Sequence[int], error: BaseException) -> None:
        """Answer what is unanswered of these requests with `error`."""
        for slot in slots:
            self._answer(slot, error, final=True)

    # For the worker's code.

    def send(self, kind: int, *payload: Any) -> None:  # Any: see frame
        """Take one message; from any thread."""
        if kind == frame.RESPONSE:
            slot, answer, final, _ = payload
            if answer is not None and answer[2] is not None:  # what `execute` raised, if it did, says more
                answer = self.raised.get(slot, answer)
            self._answer(slot, answer, final=final)
        elif kind == frame.EXECUTED:
            self._executed(*payload)
        elif kind == frame.LOG:
            level, text, *_ = payload
            self._log(level, text)
        elif kind == frame.RESCHEDULE:
            with self._lock:
                self._rescheduled.append(payload[0])
        else:
            raise AssertionError(f"a model under test sent a message of kind {kind}")

    def is_cancelled(self, slot: int) -> bool:
        """True if a request has been cancelled; from any thread."""
        return slot in self._cancelled

    def _executed(
        self, batch: int, _: Any, answers: Sequence[WireAnswer] | None, failure: tuple[int, str] | None
    ) -> None:  # Any: times
        with self._lock:
            slots = self._executing.pop(batch)
        error = None if failure is None else self._make_error(*failure)
        for index, slot in enumerate(slots):
            if error is not None:
                self._answer(slot, self.raised.get(slot, error), final=True)
            elif answers is not None:
                self._answer(slot, answers[index], final=True)

    def _awaited(self) -> list[int]:
        return [slot for slot, replies in self._replies.items() if not replies.is_given_up]

    def _answer(self, slot: int, answer: WireAnswer | BaseException | None, *, final: bool) -> None:
        with self._lock:
            replies = self._replies.get(slot)
            if final and replies is not None:
                del self._replies[slot], self._wires[slot]
                self._cancelled.discard(slot)
                self.raised.pop(slot, None)
                self._lock.notify_all()
        if replies is not None:
            replies.put(answer, final=final)
