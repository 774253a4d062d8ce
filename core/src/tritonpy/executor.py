"""The executor of an instance: executes batches on the instance's thread, outside of the interpreter."""

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
