"""Batches on their way to the executor of an instance, and back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tritonpy.errors import Cancelled, Internal, TritonError
from tritonpy.executor import Executed, Executor
from tritonpy.model.backend import hook_failure
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.execution import Execution, Times, about_batch, checked_responses
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

_log = logging.getLogger("tritonpy.model")

OnFinished = Callable[[Execution, Times | None, TritonError | list[InferResponse] | None], None]
"""Takes an execution, its times where it has been executed, and what became of it."""


class ExecutorFeed:
    """Hands executions to an executor; on the loop only.

    Args:
        executor: of the instance.
        descriptor: its descriptor.
        name: of the instance.
        bridge: to the loop.
        on_finished: called once for each execution, unless it is taken back, never from `submit`.
    """

    def __init__(
        self, executor: Executor, descriptor: int, name: str, bridge: LoopBridge, on_finished: OnFinished
    ) -> None:
        self._executor = executor
        self._name = name
        self._bridge = bridge
        self._on_finished = on_finished
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._submitted: dict[int, Execution] = {}
        self._held: list[Execution] = []
        self._number = 0
        self._fault: TritonError | None = None
        self._is_reading = True
        self._loop.add_reader(self._descriptor, self._take)

    def submit(self, execution: Execution, *, waits_for_others: bool = False) -> None:
        """Have it executed after those before it.

        Args:
            execution: the next one.
            waits_for_others: it goes at the end of the loop's turn, with those that come until then: waking a
                thread for each costs more than quick executions take.
        """
        if self._held:
            self._held.append(execution)
        elif waits_for_others:
            self._held.append(execution)
            self._loop.call_soon(self._submit_held)
        else:
            self._submit(execution)

    def _submit_held(self) -> None:
        held, self._held = self._held, []
        for execution in held:
            self._submit(execution)

    def _submit(self, execution: Execution) -> None:
        if self._fault is not None:
            self._loop.call_soon(self._on_finished, execution, None, self._fault)
            return
        self._number += 1
        try:
            self._executor.submit(self._number, execution.requests)
        except Exception as exc:
            if not isinstance(exc, TritonError):
                about = about_batch(execution.requests, self._name)
                _log.exception("instance '%s' failed to take a batch", self._name, extra=about)
            self._loop.call_soon(self._on_finished, execution, None, self._failure(exc))
        else:
            self._submitted[self._number] = execution

    def withdraw(self) -> list[Execution]:
        """Take back all that has not begun."""
        held, self._held = self._held, []
        return [
            *(self._submitted.pop(batch) for batch in tuple(self._submitted) if self._takes_back(batch)),
            *held,
        ]

    def cancel(self, request: InferRequest) -> Execution | None:
        """Answer a request that was cancelled before its execution has begun.

        Returns:
            The execution that it was in, taken back: it is to be submitted again, unless it has no requests
            left.
        """
        execution = self._take_back_with(request)
        if execution is not None:
            error = Cancelled(f"{request.label}request was cancelled while it waited")
            execution.fail_one(execution.requests.index(request), error)
        return execution

    def _take_back_with(self, request: InferRequest) -> Execution | None:
        for execution in self._held:
            if request in execution.requests:
                self._held.remove(execution)
                return execution
        for batch, execution in self._submitted.items():
            if request in execution.requests:
                return self._submitted.pop(batch) if self._takes_back(batch) else None
        return None

    def _takes_back(self, batch: int) -> bool:
        try:
            return self._executor.withdraw(batch)
        except Exception:
            _log.exception("instance '%s' failed to give a batch back", self._name)
            return False

    def fail(self, fault: BaseException | None) -> None:
        """Its executor has ended, with a fault or without: fail what it has, and what follows."""
        if self._fault is not None:
            return
        if fault is None:
            fault = Internal(
                f"the executor of instance '{self._name}' has ended without executing what it had"
            )
        self._fault = error = self._failure(fault)
        _log.error("instance '%s' executes nothing any more", self._name, exc_info=fault)
        self._stop_reading()
        submitted = list(self._submitted.values())
        self._submitted.clear()
        for execution in submitted:
            self._on_finished(execution, None, error)

    def close(self) -> None:
        """Take what it has executed last, and free the executor, which no longer runs."""
        if self._fault is None:
            self._take()
            self._stop_reading()
        if self._submitted:
            self.fail(None)
        if self._fault is None:
            self._fault = Internal(f"instance '{self._name}' is closed")
        try:
            self._executor.close()
        except Exception:
            _log.exception("the executor of instance '%s' failed to close", self._name)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)

    def _take(self) -> None:
        try:
            taken = self._executor.take()
        except Exception as exc:  # what it was about to tell is lost
            self.fail(exc)
            return
        for executed in taken:
            try:
                self._finish(executed)
            except Exception:  # costs this batch
                _log.exception("instance '%s' has executed what cannot be handed on", self._name)

    def _finish(self, executed: Executed) -> None:
        execution = self._submitted.pop(executed.batch)
        outcome: TritonError | list[InferResponse] | None
        try:
            if isinstance(executed.outcome, TritonError):
                outcome = executed.outcome
            else:
                outcome = checked_responses(executed.outcome, len(execution.requests))
        except TritonError as error:
            outcome = self._failure(error)
        if outcome is None:  # behind what it has answered by then
            self._bridge.call(self._on_finished, execution, executed.times, None)
        else:
            self._on_finished(execution, executed.times, outcome)

    def _failure(self, exc: BaseException) -> TritonError:
        text = f"Failed to process the request(s) for model instance '{self._name}', message"
        # Its traceback has frames with the requests: such a circle would keep them.
        return hook_failure(text, exc).with_traceback(None)
