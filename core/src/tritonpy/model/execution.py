"""One batch on its way through an instance."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tritonpy.errors import ErrorCode, Internal, TritonError
from tritonpy.handles import MemoryUsage
from tritonpy.latencies import QUEUE, REQUEST, Latencies
from tritonpy.request import COUNTS_AS_SUCCESS, InferRequest
from tritonpy.response import InferResponse
from tritonpy.stats import ModelStats

_MOST_NAMED = 8

PROBE_TIMEOUT_S = 5.0
"""How long a model may take to say whether it is ready."""

Times = Sequence[int]
"""Monotonic nanoseconds: start of the execution, start and end of the framework's call, end of it all."""


class BatchOwner(Protocol):
    """A scheduler that has sequences: what comes next depends on what becomes of a batch."""

    def batch_finished(self, execution: Execution) -> None:
        """The model has executed it, or never will; its requests are answered as far as they will be."""

    def stand_in(self, request: InferRequest) -> InferRequest | None:
        """One request of the batch failed because it cannot be executed.

        Returns:
            What takes its place; None when the others may move up.
        """


class ResourceClaim(Protocol):
    """The resources that an instance holds while it executes a batch; see `scheduler.rate_limiter`."""

    def give_back(self) -> None:
        """The execution is over."""


class Execution:
    """A formed batch: handed to an instance, then answered and counted; on the loop only.

    Args:
        requests: the batch.
        batch_size: its rows.
        stats: where it is counted.
        null_count: how many of the requests are null requests.
        owner: notified of its end.
        claim: given back at its end.

    Attributes:
        requests: in the order the model sees them.
        batch_size: their rows.
        rescheduled_count: requests of it that the model wants to execute again.
        has_states: some of them have states among their inputs.
        claim: what its instance has taken for it; None when nothing is left to give back.
    """

    __slots__ = (
        "_null_count",
        "_owner",
        "_queued_since",
        "_stats",
        "batch_size",
        "claim",
        "has_states",
        "requests",
        "rescheduled_count",
    )

    def __init__(
        self,
        requests: list[InferRequest],
        batch_size: int,
        stats: ModelStats,
        *,
        null_count: int = 0,
        owner: BatchOwner | None = None,
        claim: ResourceClaim | None = None,
    ) -> None:
        self.requests = requests
        self.batch_size = batch_size
        self.rescheduled_count = 0
        self.has_states = False
        self.claim = claim
        self._stats = stats
        self._null_count = null_count
        self._owner = owner
        queued_since = 0  # the sum: one that is rescheduled waits anew before this execution is counted
        for request in requests:
            queued_since += request.queue_start_ns
            states = request.ticket.states
            if states is not None:
                request.inputs = states.enter(request.inputs)
                self.has_states = True
        self._queued_since = queued_since

    @property
    def has_sequences(self) -> bool:
        """True if it depends on what the instance knows of earlier requests; no other can execute it."""
        return self._owner is not None

    def finish(self, times: Times, responses: Sequence[InferResponse]) -> None:
        """The model has run, and this is what it answers."""
        failed: list[InferRequest] = []
        for request, response in zip(self.requests, responses, strict=True):
            ticket = request.ticket
            if ticket.is_failure:
                failed.append(request)
            if ticket.clock is not None:
                request.count_response(response, _durations(times))
            if ticket.trace is not None:
                ticket.trace.computed(times)
            if ticket.on_executed is not None:
                ticket.on_executed(*_phases(times))
            request.deliver(response)
        null_count = self._null_count
        count, row_count, since = (
            len(self.requests) - null_count,
            self.batch_size - null_count,
            self._queued_since,
        )
        succeeded = self.requests
        if failed:
            count, row_count, since = self._count_failed(failed, count, row_count, since)
            succeeded = [request for request in succeeded if not request.ticket.is_failure]
        self._count(times, count, row_count, since)
        if self._stats.latencies is not None:
            self._observe(self._stats.latencies, times[0], self.requests, succeeded)
        if self._owner is not None or self.claim is not None:
            self._finished()

    def leave(self, times: Times, left_open: Sequence[InferRequest]) -> None:
        """The model has run, and answers by itself; a request that is open counts when it is answered.

        Args:
            times: of the execution.
            left_open: the requests that have no final response.
        """
        null_count = self._null_count
        count, since = len(self.requests) - null_count, self._queued_since
        row_count = self.batch_size - null_count
        failed = [request for request in self.requests if request.ticket.is_failure]
        if failed:
            count, row_count, since = self._count_failed(failed, count, row_count, since)
        self._stats.count_execution(count, row_count, self.batch_size, times[0] * count - since, times)
        for request in left_open:
            if not request.is_null and not request.ticket.is_failure:
                request.ticket.tally = COUNTS_AS_SUCCESS
                count -= 1
                since -= request.queue_start_ns
        now = time.monotonic_ns()
        for request in self.requests:
            ticket = request.ticket
            if ticket.trace is not None:
                ticket.trace.computed(times)
            if ticket.on_executed is not None:
                ticket.on_executed(*_phases(times))
            if ticket.is_given_up and not ticket.tally and not ticket.is_failure:
                self._stats.count_failure("CANCELED", now - request.queue_start_ns)
                count -= 1
                since -= request.queue_start_ns
        self._count_successes(count, since)
        if self._stats.latencies is not None:
            over = [
                request
                for request in self.requests
                if not request.ticket.tally
                and not request.ticket.is_given_up
                and not request.ticket.is_failure
            ]
            self._observe(self._stats.latencies, times[0], self.requests, over)
        if self._owner is not None or self.claim is not None:
            self._finished()

    def fail(self, error: TritonError, times: Times | None = None) -> None:
        """The batch failed: in the model (with `times`), or because its instance died.

        That fails the requests which the model has not answered finally by then.
        """
        answered = [request for request in self.requests if request.ticket.answered and not request.is_null]
        queued_since = sum(request.queue_start_ns for request in answered)
        if times is not None:
            row_count = sum(request.batch_size for request in answered)
            self._count(times, len(answered), row_count, queued_since)
            if self._stats.latencies is not None:
                self._observe(self._stats.latencies, times[0], answered, answered)
        elif answered:
            self._count_successes(len(answered), queued_since)
        now = time.monotonic_ns()
        reason = "CANCELED" if error.code is ErrorCode.CANCELLED else "BACKEND"
        response = InferResponse(error=error)
        for request in self.requests:
            ticket = request.ticket
            if ticket.trace is not None and times is not None:
                ticket.trace.computed(times)
            if ticket.answered:
                continue
            self._stats.count_failure(reason, now - request.queue_start_ns)
            if times is not None:
                request.count_response(response, _durations(times))
            request.deliver(response)
        if self._owner is not None or self.claim is not None:
            self._finished()

    def fail_one(self, index: int, error: TritonError) -> None:
        """One request cannot be executed; the others go on without it."""
        request = self.requests.pop(index)
        self.batch_size -= request.batch_size
        self._null_count -= request.is_null
        self._queued_since -= request.queue_start_ns
        stand_in = self._owner.stand_in(request) if self._owner is not None else None
        if stand_in is not None:
            states = stand_in.ticket.states
            if states is not None:
                stand_in.inputs = states.enter(stand_in.inputs)
            self.requests.insert(index, stand_in)
            self.batch_size += stand_in.batch_size
            self._null_count += 1
        Execution([request], request.batch_size, self._stats).fail(error)
        if not self.requests:
            self._finished()

    def _count_failed(
        self, failed: Sequence[InferRequest], count: int, row_count: int, since: int
    ) -> tuple[int, int, int]:
        """Count requests that the model reports as failed; returns what is left of all three for others."""
        now = time.monotonic_ns()
        for request in failed:
            if not request.is_null:
                self._stats.count_failure("BACKEND", now - request.queue_start_ns)
                count -= 1
                row_count -= request.batch_size
                since -= request.queue_start_ns
        return count, row_count, since

    def _finished(self) -> None:
        # One that is closed by force ends twice.
        owner, self._owner = self._owner, None
        claim, self.claim = self.claim, None
        if claim is not None:
            claim.give_back()
        if owner is not None:
            owner.batch_finished(self)

    def _count(self, times: Times, success_count: int, row_count: int, queued_since: int) -> None:
        queued_ns = times[0] * success_count - queued_since
        self._stats.count_execution(success_count, row_count, self.batch_size, queued_ns, times)
        self._count_successes(success_count, queued_since)

    def _observe(
        self,
        latencies: Latencies,
        start_ns: int,
        waited: Sequence[InferRequest],
        succeeded: Sequence[InferRequest],
    ) -> None:
        """Keep how long each request waited for the execution, and how long each took that is over."""
        now = time.monotonic_ns()
        # One that is to be executed again waits anew already: it is not over.
        for phase, until_ns, requests in ((QUEUE, start_ns, waited), (REQUEST, now, succeeded)):
            latencies.add_each(
                phase,
                [
                    until_ns - since_ns
                    for request in requests
                    if (since_ns := request.queue_start_ns) <= start_ns and not request.is_null
                ],
            )

    def _count_successes(self, count: int, queued_since: int) -> None:
        self._stats.success_count += count - self.rescheduled_count
        self._stats.success_ns += time.monotonic_ns() * count - queued_since


def _durations(times: Times) -> tuple[int, int]:
    """The time that the only response of a request took to compute, and to hand over."""
    return times[2] - times[0], times[3] - times[2]


def _phases(times: Times) -> tuple[int, int, int]:
    """The durations of input, inference and output."""
    return times[1] - times[0], times[2] - times[1], times[3] - times[2]


def about_batch(requests: Sequence[InferRequest], instance: str) -> dict[str, str]:
    """The `extra` of log lines about requests that are executed together; of many the first ids."""
    if not requests:
        return {"instance": instance}
    named = [request.id for request in requests if request.id]
    ids = ",".join(named[:_MOST_NAMED])
    more = len(named) - _MOST_NAMED
    request_id = f"{ids},… {more} more" if more > 0 else ids
    return requests[0].about | {"instance": instance, "request_id": request_id}


def checked_responses(outcome: object, request_count: int) -> list[InferResponse] | None:
    """The responses that a backend returned, if they are as `model_instance_execute` promises.

    Raises:
        Internal: it is something else; says what came and what was expected.
    """
    if outcome is None:
        return None
    if not isinstance(outcome, list | tuple):
        raise Internal(f"the model returned {type(outcome).__name__}, expected a list of InferResponse")
    for response in outcome:
        if not isinstance(response, InferResponse):
            kind = type(response).__name__
            raise Internal(f"the model returned a list with {kind} in it, expected InferResponse")
    if len(outcome) != request_count:
        raise Internal(
            f"the model returned {len(outcome)} responses for {request_count} requests; expected one for each"
        )
    return list(outcome)


def own_states(requests: Sequence[InferRequest], responses: Sequence[InferResponse]) -> None:
    """Give the states that a model has returned memory of their own; on the thread that ran it."""
    for request, response in zip(requests, responses, strict=True):
        states = request.ticket.states
        if states is not None:
            states.own(response)


class Instance(Protocol):
    """One execution slot, whether a thread of this process or a process of its own.

    Attributes:
        name: as Triton names it, such as `resnet_0_1`.
        depth: executions it has been given and not returned.
        capacity: executions it may be given; more than one lets the next batch travel while one computes.
        concurrency: executions that run side by side; the model decides.
    """

    name: str
    depth: int
    capacity: int
    concurrency: int

    @property
    def is_ready(self) -> bool:
        """True if it takes executions now."""

    @property
    def memory_usage(self) -> Sequence[MemoryUsage]:
        """Memory that it has reported to use; that of its model is in it only where it has a process."""

    async def probe(self) -> bool:
        """True if it takes executions and its model reports that it is ready; a busy one is not disturbed."""

    def running_executions(self) -> Sequence[tuple[Execution, Sequence[InferRequest]]]:
        """The executions now, each with the unanswered calls of other models that it waits for."""

    def submit(self, execution: Execution) -> None:
        """Start the execution; returns at once. The instance answers it and then tells its scheduler."""

    async def drain(self) -> None:
        """Wait until everything it has been given is answered; there must be no more."""

    async def close(self, error: TritonError | None = None) -> None:
        """Finalize after the execution that runs now, and free everything.

        With `error`, what runs now is answered with it and not waited for.
        """


WarmUp = Callable[[Instance], Awaitable[None]]
"""Has an initialised instance execute what it should have executed before it takes requests.

Raises:
    TritonError: it cannot be used.
"""
