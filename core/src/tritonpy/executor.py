"""Executors of an instance: they execute its batches outside of the interpreter, also in a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tritonpy.errors import TritonError
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse


class Executed(NamedTuple):
    """An execution that is over.

    Attributes:
        batch: its number, as it was submitted.
        times: when the execution and the framework's own call began, and when the call and the execution
            ended; nanoseconds of `ModelInstance.now_ns`.
        outcome: what `model_instance_execute` would have returned, or the error that it would have raised.
    """

    batch: int
    times: tuple[int, int, int, int]
    outcome: TritonError | Sequence[InferResponse] | None


class Executor(Protocol):
    """What a plugin sets as `ModelInstance.executor`, in `model_instance_initialize`, to execute by itself.

    `model_instance_execute` is called once for each batch, on the instance's thread, which then fights with
    the server's loop for the interpreter. Here that thread is lent to `run` instead, which is meant to leave
    the interpreter for good; the loop submits batches and takes what has become of them. So a request costs
    the two threads no wait for each other. Where instances have processes of their own the hook is called as
    always.

    What is not said to be called elsewhere is called on the loop: it is over in microseconds and never waits.
    """

    def run(self) -> None:
        """Execute what is submitted, one batch after the other in their order, until `stop`.

        Called once, on the thread of the instance, between its hooks. What was submitted before `stop` is
        executed. An exception fails all batches that it has, and those that follow.
        """

    def stop(self) -> None:
        """Have `run` return, also where it has not begun; from any thread."""

    def fileno(self) -> int:
        """A descriptor that can be read while there is something to take; it stays until `close`.

        Asked once, on the thread of the instance, before `run`. An exception fails the load.
        """

    def submit(self, batch: int, requests: Sequence[InferRequest]) -> None:
        """Take a batch that is to be executed.

        Requests are answered as those of `model_instance_execute`: all at once by `take`, or each by
        `request.respond(…)`.

        Args:
            batch: a number that no other one has.
            requests: of the batch; kept no longer than they are needed, since an unanswered request that
                becomes garbage is answered INTERNAL.

        Raises:
            Exception: it cannot be executed, and is not: all its requests get this error.
        """

    def take(self) -> Sequence[Executed]:
        """What has been executed since this was called last, in its order; when `fileno` can be read."""

    def withdraw(self, batch: int) -> bool:
        """Take a batch back, to submit it again without a request that was cancelled, or not at all.

        Returns:
            False where it is executed, or was.
        """

    def close(self) -> None:
        """Free all that is left; `run` has returned, and the instance is finalised."""


class FrameExecutor(Protocol):
    """What a plugin sets as `ModelInstance.frame_executor`, where `executor` is set, to execute in a worker.

    There `model_instance_execute` is called once for each batch, with requests that were made from the frame
    in which they came, and its responses become a frame. Here the worker's end of the channel is lent to the
    plugin instead, which is meant to leave the interpreter for good: it reads frames, executes what it can of
    them, and writes the answers; `tritonpy.ipc.frame` says how frames look. Frames that it does not know, or
    does not want to know, it gives to the core, which does with them what it always does.

    The server cannot see a difference, and relies on none: batches are executed in their order, and each is
    answered before the next one is begun. So a crash costs no answer that could have been given, and no batch
    is executed twice.

    Decoupled models, and those in the server itself, are executed as always; so are all where the versions of
    frames differ.
    """

    @property
    def frame_version(self) -> int:
        """The `tritonpy.ipc.frame.FRAME_VERSION` that it reads and writes, as a number of its own.

        Where the core has another one, the channel is not lent and nothing else here is called but `close`.
        """

    def attach(
        self, descriptor: int, received: bytes, cancel_flags: memoryview, inline_byte_size: int
    ) -> None:
        """Take the channel over; nobody else reads it from now on. Called once; an exception fails the load.

        Args:
            descriptor: of the socket, which blocks.
            received: the beginning of a frame that was read from it already.
            cancel_flags: byte `slot` is 1 when the request in that slot was cancelled; they stay while they
                are held.
            inline_byte_size: outputs up to this size may stand in a frame; larger ones are the core's affair.
        """

    def next(self) -> bytes | None:
        """Execute until there is a frame for the core to handle, and return it; None for a closed channel.

        Called on the thread of the instance, again and again. A frame with a batch goes to
        `model_instance_execute`, before this is called again.
        """

    def next_reply(self) -> bytes | None:
        """The next frame that answers a question or a call of this process; None for a closed channel.

        Called by one other thread, also while `next` executes, and only where such an answer is expected.
        """

    def write(self, frame: bytes) -> None:
        """Send a frame, never in the midst of another one; from any thread, also when this is closed.

        Raises:
            OSError: the server is gone.
        """

    @property
    def running_batch(self) -> int:
        """The batch that is executed now by `next`; 0 for none. From any thread."""

    def close(self) -> None:
        """Let go of the model, which is finalised; `next` is not called any more."""
