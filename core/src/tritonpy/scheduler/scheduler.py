"""The driver of a batching policy: queues requests, feeds free instances, wakes at deadlines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from tritonpy.errors import Cancelled, TritonError
from tritonpy.model.execution import Execution, Instance, ResourceClaim
from tritonpy.request import InferRequest, not_iterative
from tritonpy.scheduler.decision import BatchingPolicy, Dispatch, Refusal, SequencePolicy, WaitUntil
from tritonpy.scheduler.ordering import ResponseOrder
from tritonpy.scheduler.rate_limiter import RateLimiter
from tritonpy.scheduler.resource_turns import Contender
from tritonpy.stats import ModelStats

Clock = Callable[[], int]


class Scheduler:
    """Moves requests of one model version from their arrival to an instance.

    Owned by the loop; no lock. A policy that is lazy is asked once per turn of the loop, so a burst that
    arrives together is seen together.

    Args:
        policy: decides which requests go together.
        stats: where waiting requests, failures in the queue and executions are counted.
        order: hands responses on in the order of arrival, for `preserve_ordering`.
        sequences: the policy once more, if it has sequences.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        policy: BatchingPolicy,
        stats: ModelStats,
        *,
        order: ResponseOrder | None = None,
        sequences: SequencePolicy | None = None,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._policy = policy
        self._stats = stats
        self._order = order
        self._sequences = sequences
        if sequences is not None:
            sequences.on_late_end = self.pump
        self._leaving: dict[Instance, asyncio.Future[None]] = {}
        self._all_ended: asyncio.Future[None] | None = None
        self._contender: Contender | None = None
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._instances: Sequence[Instance] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._is_pump_due = False
        self._refusal: TritonError | None = None

    def contend(self, limiter: RateLimiter) -> Contender:
        """Let instances execute only while they have the resources that they need."""
        self._contender = Contender(limiter, self.pump)
        return self._contender

    def use(self, instances: Sequence[Instance]) -> None:
        """Feed these instances from now on; one that is left out still ends the sequences it has."""
        if self._sequences is not None:
            self._sequences.use(instances)
        self._instances = instances
        self.pump()

    async def release(self, instance: Instance) -> None:
        """Wait until an instance that is no longer used has ended its sequences."""
        if self._sequences is not None and instance in self._sequences.instances:
            leaving = self._leaving[instance] = self._loop.create_future()
            await leaving

    @property
    def open_sequence_count(self) -> int:
        """Sequences that have begun and are not over."""
        return self._sequences.open_count if self._sequences is not None else 0

    async def end_sequences(self, error: TritonError) -> None:
        """Wait until the sequences that there are have ended; new ones are refused with `error`."""
        if self._sequences is not None:
            self._sequences.stop_starting(error)
            self._all_ended = self._loop.create_future()
            self.pump()
            await self._all_ended

    def lose(self, instance: Instance, error: TritonError) -> None:
        """The worker behind an instance has died, and with it the state of its sequences."""
        if self._sequences is not None:
            self._sequences.lose(instance, error)
        if self._sequences is not None or self._contender is not None:
            self.pump()

    def give_up_order(self) -> ResponseOrder | None:
        """Hand the line of responses over to the scheduler in front of this one."""
        order, self._order = self._order, None
        return order

    def enqueue(self, request: InferRequest) -> None:
        """Take a checked request; it is answered through its sink in any case.

        Raises:
            TritonError: nothing can run it: the scheduler is closed, or no instance is alive.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._contender is not None and request.ticket.chain:
            self._contender.note_call(request)
        request.queue_start_ns = self._clock()
        self._policy.add(request)
        request.ticket.on_cancel = self
        if self._order is not None:
            self._order.enroll(request)
        self._added()

    def enqueue_again(self, request: InferRequest) -> None:
        """Take back a request that the model has executed and wants to execute again."""
        if self._refusal is not None:
            self._fail(request, self._refusal, "OTHER")
        elif request.ticket.cancelled:
            self._fail(request, Cancelled(f"{request.label}request was cancelled"), "CANCELED")
        else:
            self._reschedule(request)

    def _reschedule(self, request: InferRequest) -> None:
        try:
            if self._sequences is None or not self._sequences.is_iterative:
                raise not_iterative(request.model_name)
            self._sequences.add_again(request)
        except TritonError as error:
            self._fail(request, error, "BACKEND")
            return
        request.queue_start_ns = self._clock()
        request.ticket.on_cancel = self
        self._added()

    def _added(self) -> None:
        self._stats.pending_count += 1
        if self._policy.is_lazy:
            if not self._is_pump_due:
                self._is_pump_due = True
                self._loop.call_soon(self._pump_when_due)
        else:
            self.pump()

    def request_cancelled(self, request: InferRequest) -> None:
        """Answer a request that was cancelled while it waited."""
        if self._policy.remove(request):
            self._stats.pending_count -= 1
            self._fail(
                request, Cancelled(f"{request.label}request was cancelled while it waited"), "CANCELED"
            )
            self.pump()

    def pump(self) -> None:
        """Dispatch as long as an instance is free and the policy has something ready."""
        deadline_ns = 0
        if self._policy.may_expire:
            deadline_ns = self._policy.expire(self._clock())
            self._let_go(self._policy.take_refused())
        if self._contender is not None:
            self._feed_in_turn(self._contender, deadline_ns)
            return
        if self._sequences is not None:
            self._feed_each(self._sequences, deadline_ns)
            return
        policy, stats = self._policy, self._stats
        # Asked only while something waits: an instance that is done finds an idle queue most of the time.
        while stats.pending_count and (instance := self._free_instance()) is not None:
            decision = policy.decide(self._clock(), instance)
            if isinstance(decision, Dispatch):
                self._dispatch(instance, decision)
            # Last: a sink that takes a refusal may cancel another request, and so come back here.
            if refused := policy.take_refused():
                self._let_go(refused)
            elif not isinstance(decision, Dispatch):
                if isinstance(decision, WaitUntil):
                    deadline_ns = min(deadline_ns or decision.deadline_ns, decision.deadline_ns)
                break
        if deadline_ns:
            self._wake_at(deadline_ns)

    def _feed_each(self, sequences: SequencePolicy, deadline_ns: int) -> None:
        """Feed each free instance from its own sequences."""
        for instance in tuple(sequences.instances):
            while instance.is_ready and instance.depth < instance.concurrency:
                decision = sequences.decide(self._clock(), instance)
                if isinstance(decision, Dispatch):
                    self._dispatch(instance, decision)
                if refused := sequences.take_refused():
                    self._let_go(refused)
                elif not isinstance(decision, Dispatch):
                    if isinstance(decision, WaitUntil):
                        deadline_ns = min(deadline_ns or decision.deadline_ns, decision.deadline_ns)
                    break
        self._note_ends(sequences)
        if deadline_ns:
            self._wake_at(deadline_ns)

    def _feed_in_turn(self, contender: Contender, deadline_ns: int) -> None:
        """Feed the instances that get the resources they need."""
        sequences = self._sequences
        if sequences is None:
            next_ns = contender.feed(self._policy, self._instances, self._clock, self._dispatch)
        else:
            fed = tuple(sequences.instances)
            next_ns = contender.feed(sequences, fed, self._clock, self._dispatch, is_bound=True)
            self._note_ends(sequences)
        self._let_go(self._policy.take_refused())
        if next_ns or deadline_ns:
            self._wake_at(min(next_ns or deadline_ns, deadline_ns or next_ns))

    def _note_ends(self, sequences: SequencePolicy) -> None:
        """Wake those that wait for the end of sequences."""
        if self._leaving:
            self._let_leave(sequences.instances)
        ended = self._all_ended
        if ended is not None and not ended.done() and not sequences.open_count:
            ended.set_result(None)

    def _let_leave(self, staying: Sequence[Instance]) -> None:
        for instance in [instance for instance in self._leaving if instance not in staying]:
            leaving = self._leaving.pop(instance)
            if not leaving.done():
                leaving.set_result(None)

    def _let_go(self, refused: Sequence[Refusal]) -> None:
        for request, error, reason in refused:
            self._stats.pending_count -= 1
            self._fail(request, error, reason)

    def refuse(self, error: TritonError | None) -> None:
        """Fail everything that waits and refuse what comes, until called with None."""
        self._refusal = error
        if error is None:
            return
        if self._contender is not None:
            self._contender.stop()
        waiting = self._policy.take_all()
        self._stats.pending_count -= len(waiting)
        for request in waiting:
            self._fail(request, error, "OTHER")

    def close(self, error: TritonError) -> None:
        """Stop for good; what still waits is answered with `error`."""
        if self._timer is not None:
            self._timer.cancel()
        self._instances = ()
        self.refuse(error)
        if self._sequences is not None:
            self._note_ends(self._sequences)
        self._let_leave(())

    def _pump_when_due(self) -> None:
        self._is_pump_due = False
        self.pump()

    def _pump_on_time(self) -> None:
        self._timer = None
        self.pump()

    def _free_instance(self) -> Instance | None:
        best: Instance | None = None
        for instance in self._instances:
            if instance.is_ready and instance.depth < instance.capacity:
                if instance.depth == 0:
                    return instance
                if best is None or instance.depth < best.depth:
                    best = instance
        if best is not None and best.depth >= best.concurrency and not self._may_wait_there():
            return None
        return best

    def _may_wait_there(self) -> bool:
        """True if the next batch may wait in front of a busy instance.

        One that may still grow is not closed early only to wait, nor one that another instance could take.
        """
        policy = self._policy
        return not policy.is_lazy or (len(self._instances) == 1 and policy.is_settled(self._clock()))

    def _dispatch(self, instance: Instance, batch: Dispatch, claim: ResourceClaim | None = None) -> None:
        self._stats.pending_count -= len(batch.requests) - batch.null_count
        self._stats.closed_counts[batch.closed] += 1
        for request in batch.requests:
            request.ticket.on_cancel = None
        execution = Execution(
            batch.requests,
            batch.batch_size,
            self._stats,
            null_count=batch.null_count,
            owner=batch.owner,
            claim=claim,
        )
        instance.submit(execution)

    def _wake_at(self, deadline_ns: int) -> None:
        if self._timer is not None:
            if self._timer_ns == deadline_ns:
                return
            self._timer.cancel()
        self._timer_ns = deadline_ns
        delay_s = max(0.0, (deadline_ns - self._clock()) / 1e9)
        self._timer = self._loop.call_later(delay_s, self._pump_on_time)

    def _fail(self, request: InferRequest, error: TritonError, reason: str) -> None:
        self._stats.count_failure(reason, self._clock() - request.queue_start_ns)
        request.fail(error)
