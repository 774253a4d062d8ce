"""The executor of an instance: its thread executes in C, and the interpreter has no part in it."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence

from tritonpy.plugin import Executed, InferRequest, InferResponse, Internal, TritonError

from tritonpy_abi.backends.answers import Answers, Asked
from tritonpy_abi.shim import CData, Shim
from tritonpy_abi.strategies.request_blocks import RequestBlocks

_log = logging.getLogger("tritonpy.abi")

_EXECUTED = struct.Struct("=QQQQQQQ")
"""A `TRITONPY_Executed`: batch, four times, error and whether memory was reported."""

_MOST_TAKEN = 64
"""Of executions, at once; others on the loop have their turn before the next ones."""


class NativeExecutor:
    """Satisfies `Executor`.

    Args:
        shim: the library.
        handle: the `TRITONBACKEND_ModelInstance *`, initialised.
        blocks: makes those of the model's requests.
        open_answers: makes the answers to requests whose events are in a `TRITONPY_Events *`.
        note_memory: called when the library has reported its use of memory.
    """

    def __init__(
        self,
        shim: Shim,
        handle: CData,
        blocks: RequestBlocks,
        open_answers: Callable[[CData], Answers],
        note_memory: Callable[[], None],
    ) -> None:
        self._shim = shim
        self._lib = shim.lib
        self._handle = handle
        self._blocks = blocks
        self._open_answers = open_answers
        self._note_memory = note_memory
        self._batches: dict[int, list[Asked]] = {}
        self._taken: CData = shim.ffi.new("TRITONPY_Executed[]", _MOST_TAKEN)
        self._no_error: CData = shim.ffi.cast("TRITONSERVER_Error *", 0)
        self._executor: CData = None
        self._answers: Answers  # opened with it

    def fileno(self) -> int:
        """See `Executor`; makes it, which workers have no need for.

        Raises:
            TritonError: the process has no descriptor left.
        """
        out: CData = self._shim.ffi.new("TRITONPY_Executor **")
        self._shim.check(self._lib.TRITONPY_ExecutorNew(self._handle, out))
        self._executor = out[0]
        self._answers = self._open_answers(self._lib.TRITONPY_ExecutorEvents(self._executor))
        descriptor: int = self._lib.TRITONPY_ExecutorDescriptor(self._executor)
        return descriptor

    def run(self) -> None:
        """See `Executor`."""
        self._lib.TRITONPY_ExecutorRun(self._executor)

    def stop(self) -> None:
        """See `Executor`."""
        if self._executor is not None:
            self._lib.TRITONPY_ExecutorStop(self._executor)

    def submit(self, batch: int, requests: Sequence[InferRequest]) -> None:
        """See `Executor`."""
        blocks = [self._blocks.fill(request) for request in requests]
        asked = self._answers.ask(requests, blocks)
        self._batches[batch] = asked
        try:
            error = self._lib.TRITONPY_ExecutorSubmit(
                self._executor,
                batch,
                [block[0] for block in blocks],
                [each.tag for each in asked],
                len(asked),
            )
            self._shim.check(error)
        except BaseException:
            self._forget(batch)
            raise

    def withdraw(self, batch: int) -> bool:
        """See `Executor`."""
        if not self._lib.TRITONPY_ExecutorWithdraw(self._executor, batch):
            return False
        self._forget(batch)
        return True

    def _forget(self, batch: int) -> None:
        self._answers.forget(self._batches.pop(batch))

    def take(self) -> list[Executed]:
        """See `Executor`."""
        count = self._lib.TRITONPY_ExecutorTake(self._executor, self._taken, _MOST_TAKEN)
        self._answers.take()
        if not count:
            return []
        content = self._shim.ffi.buffer(self._taken, count * _EXECUTED.size)
        executed = []
        for batch, start, compute_start, compute_end, end, error, reports_memory in _EXECUTED.iter_unpack(
            content
        ):
            outcome = self._settle(self._batches.pop(batch), error)
            executed.append(Executed(batch, (start, compute_start, compute_end, end), outcome))
            if reports_memory:
                self._note_memory()
        return executed

    def _settle(self, asked: Sequence[Asked], address: int) -> TritonError | list[InferResponse] | None:
        try:
            error = self._shim.ffi.cast("TRITONSERVER_Error *", address) if address else self._no_error
            return self._answers.settle(asked, error)
        except TritonError as error:
            return error.with_traceback(None)  # which has this frame, and that the requests
        except Exception as exc:  # costs this batch
            _log.exception("the responses to a batch cannot be handed on")
            return Internal(f"the responses to a batch cannot be handed on: {type(exc).__name__}: {exc}")

    def close(self) -> None:
        """See `Executor`."""
        if self._executor is not None:
            self._answers.close()
            self._lib.TRITONPY_ExecutorEnd(self._executor)
            self._executor = None
