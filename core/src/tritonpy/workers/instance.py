"""One execution slot in a worker of its own: feed, supervise and restart the worker.

A worker that dies costs the batches it was executing and the requests it still had to answer; a batch that
had already been sent but not begun goes to its successor. No request is executed twice, so none ends two
workers. An instance that has completed a batch at any time is restarted at once when a batch ends its worker:
the fault is the batch's. Pauses grow where workers end before any batch is completed, or without one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from tritonpy.errors import ErrorCode, Internal, TritonError, Unavailable
from tritonpy.handles import MemoryUsage, Model
from tritonpy.ipc import frame
from tritonpy.ipc.arena import CONTROL_SLOTS, SharedMemoryExhausted
from tritonpy.ipc.frame import Message
from tritonpy.model.execution import PROBE_TIMEOUT_S, Execution, Instance, WarmUp, about_batch
from tritonpy.model.placement import Slot
from tritonpy.model.read_ahead import ReadAhead, SpinWait
from tritonpy.request import COUNTED, InferRequest
from tritonpy.workers.in_flight import InFlight, UnansweredWatch
from tritonpy.workers.request_frames import decode_response, discard, encode_request
from tritonpy.workers.worker_process import WorkerProcess

_log = logging.getLogger("tritonpy.worker")

INTERNAL = int(ErrorCode.INTERNAL)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


OnIdle = Callable[[], None]
OnReschedule = Callable[[InferRequest], None]

StartWorker = Callable[[WorkerProcess | None, Callable[[WorkerProcess], None]], Awaitable[WorkerProcess]]
"""Starts a worker, unless one is given, and initialises the instance in it.

Between the two it hands the worker over, by calling what it is given. When it raises, the worker is gone.
"""


@dataclass(frozen=True, slots=True)
class WorkerEvents:
    """Callbacks of the instances of one model version; all of them on the loop.

    Attributes:
        on_down: an instance is dead and could not be restarted at once.
        on_restart: a worker was started again and executes.
        on_unanswered: a request has been open for long after its `execute` returned.
        on_death: a worker has died, and with it all that its model knew.
    """

    on_down: Callable[[TritonError], None]
    on_restart: Callable[[], None]
    on_unanswered: Callable[[], None] = lambda: None
    on_death: Callable[[Instance, TritonError], None] = lambda instance, error: None


class ProcessInstance:
    """One execution slot in a worker of its own; on the loop only; see `Instance`.

    A quick model is fed ahead: the next batches wait in the worker's socket while one computes, so that it
    never waits for the loop, and the two processes wake each other once for many batches. A model that calls
    other models is not: a batch that waits behind one that calls could be what the call waits for.

    Args:
        start_worker: starts the first worker and those that follow it.
        slot: which instance this is.
        model: the model.
        concurrency: executions that the model runs side by side.
        events: callbacks for deaths and restarts.
        on_idle: it takes executions again.
        on_reschedule: takes a request that the model wants to execute again.
        unanswered: watches requests that are open when `execute` returns.
        warm_up: what every worker goes through before it takes requests, one that was restarted too.
    """

    def __init__(
        self,
        start_worker: StartWorker,
        slot: Slot,
        model: Model,
        concurrency: int,
        *,
        events: WorkerEvents,
        on_idle: OnIdle,
        on_reschedule: OnReschedule,
        unanswered: UnansweredWatch,
        warm_up: WarmUp | None = None,
    ) -> None:
        self.name = slot.name
        self.depth = 0
        self.capacity = concurrency
        self.concurrency = concurrency
        self._read_ahead = ReadAhead()
        self._loop = asyncio.get_running_loop()
        self._spin_wait = SpinWait(self._loop, self)
        self._is_open = False
        self._start_worker = start_worker
        self._rows = min(max(1, model.max_batch_size), CONTROL_SLOTS)
        self._on_idle = on_idle
        self._events = events
        self._on_reschedule = on_reschedule
        self._unanswered = unanswered
        self._warm_up = warm_up
        self._is_warming_up = False
        self._drained: asyncio.Future[None] | None = None
        self._worker: WorkerProcess | None = None
        self._is_closing = False
        self._restarting: asyncio.Task[None] | None = None
        self._early_deaths = 0
        self._has_worked = False
        self._unsent: list[Execution] = []  # batches that wait for the next worker, in their order
        self._batch = 0
        self._work = InFlight(unanswered)

    @property
    def is_ready(self) -> bool:
        """See `Instance`; also False while too few slots are free for a batch."""
        return self._is_open and self._worker is not None and self._worker.is_connected

    @property
    def pid(self) -> int:
        """Process id of the worker; 0 while there is none."""
        return self._worker.pid if self._worker is not None else 0

    @property
    def memory_usage(self) -> Sequence[MemoryUsage]:
        """See `Instance`."""
        return self._worker.memory_usage if self._worker is not None else ()

    async def open(self, worker: WorkerProcess | None = None) -> None:
        """Start the worker (or take a started one), initialise the instance in it and warm it up."""
        self._worker = worker = await self._start_worker(worker, self._hold)
        if self._warm_up is not None:
            self._is_warming_up = True
            try:
                await self._warm_up(self)
            except BaseException:
                await self._give_up(worker)
                raise
            finally:
                self._is_warming_up = False
        worker.finish_loading()
        self._is_open = True

    def _hold(self, worker: WorkerProcess) -> None:
        """Take a started worker over, before the model's own code runs in it."""
        self._work = InFlight(self._unanswered, worker.cancel_flags)
        worker.adopt(self.name, self._work, self._take, self._died)

    async def _give_up(self, worker: WorkerProcess) -> None:
        """Close a worker that could not be warmed up; its executions are only those of the warm-up."""
        if self._work.batches:
            worker.kill()
            self._fail_sent(Internal(f"instance '{self.name}' was closed while it was warmed up"))
        await worker.close()
        self._work = InFlight(self._unanswered)
        self._worker = None

    async def probe(self) -> bool:
        worker = self._worker
        if worker is None or not self.is_ready:
            return False
        if self.depth or not worker.is_probed:
            return True
        return await worker.probe(PROBE_TIMEOUT_S)

    def running_executions(self) -> Sequence[tuple[Execution, Sequence[InferRequest]]]:
        if self._worker is None:
            return ()
        awaited = self._worker.awaited_calls()
        return [
            (execution, awaited.get(batch, ()))
            for batch, (execution, _) in islice(self._work.batches.items(), self.concurrency)
        ]

    def submit(self, execution: Execution) -> None:
        self.depth += 1
        worker = self._worker
        if worker is None or not worker.is_connected:
            self._keep(execution)
            return
        self._send(worker, execution)

    def _keep(self, execution: Execution) -> None:
        """Keep a batch for the successor of a worker that is gone."""
        if self._is_warming_up:  # the batch is what has to be done before there is a successor
            self.depth -= 1
            execution.fail(Internal(f"instance '{self.name}': its worker has ended while it was warmed up"))
        else:
            self._unsent.append(execution)

    async def drain(self) -> None:
        while self.depth or self._work.requests:
            self._drained = self._loop.create_future()
            await self._drained
            self._drained = None

    def _check_drained(self) -> None:
        waiting = self._drained
        if waiting is not None and not waiting.done() and not self.depth and not self._work.requests:
            waiting.set_result(None)

    async def close(self, error: TritonError | None = None) -> None:
        self._is_closing = True
        self._is_open = False
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait((self._restarting,))
        if error is not None:
            self._fail_open(error)
            if self._worker is not None:
                self._worker.kill()
        if self._worker is not None:
            await self._worker.close()
            self._worker = None
        self._fail_open(Internal(f"instance '{self.name}' was closed before it answered"))
        self._work = InFlight(self._unanswered)  # the flags of the last one are shared memory

    def _fail_open(self, error: TritonError) -> None:
        """Answer everything that was given to this instance."""
        self._fail_unsent(error)
        self._fail_sent(error)

    def _fail_sent(self, error: TritonError) -> None:
        self.depth -= len(self._work.batches)
        self._work.fail(error)
        self._check_drained()

    def request_cancelled(self, request: InferRequest) -> None:
        """Tell the worker through shared memory."""
        worker = self._worker
        if request.ticket.slot >= 0 and worker is not None:
            unwanted = self._work.cancel(request)
            if unwanted is not None:
                worker.give_up_calls(unwanted)

    def _send(self, worker: WorkerProcess, execution: Execution) -> None:
        slots: list[int] = []
        work = self._work
        work.reserve(len(execution.requests))
        encoded: list[Message] = []
        endpoint = worker.endpoint
        try:
            for request in execution.requests:
                slot = work.add(request)
                slots.append(slot)
                encoded.append(encode_request(slot, request, endpoint))
                request.ticket.on_cancel = self
            self._batch += 1
            worker.send(frame.EXECUTE, self._batch, encoded)
        except Exception as exc:
            for sent in encoded:
                discard(sent[8], endpoint)
            for slot in slots:
                work.release(slot)
            if isinstance(exc, TritonError) and len(encoded) < len(execution.requests):
                # One request's input cannot be read, such as shared memory that its client has cut meanwhile.
                execution.fail_one(len(encoded), exc)
                if execution.requests:
                    self._send(worker, execution)
                else:
                    self.depth -= 1
                    self._loop.call_soon(self._on_idle)
                return
            self._not_sent(execution, exc)
            return
        work.batches[self._batch] = execution, slots
        if self.depth == 1 and self._read_ahead.is_quick:
            self._spin_wait.begin()
        if work.room < self._rows:
            self._is_open = False  # until open requests are answered: decoupled models may keep many

    def _not_sent(self, execution: Execution, reason: Exception) -> None:
        if isinstance(reason, ConnectionError):
            self._keep(execution)
            return
        self.depth -= 1
        if isinstance(reason, SharedMemoryExhausted):
            execution.fail(Unavailable(f"instance '{self.name}': {reason}"))
        else:
            about = about_batch(execution.requests, self.name)
            _log.error("instance '%s' cannot be sent a batch", self.name, exc_info=reason, extra=about)
            execution.fail(Internal(f"instance '{self.name}' cannot be sent the request: {reason}"))
        self._loop.call_soon(self._on_idle)

    def _take(self, message: Message) -> None:
        """Handle EXECUTED, RESPONSE and RESCHEDULE."""
        assert self._worker is not None
        endpoint, work = self._worker.endpoint, self._work
        if message[0] == frame.EXECUTED:
            _, _, batch, times, responses, failure, *rest = message
            sent = work.batches.pop(batch, None)
            if sent is None:  # answered when the instance was closed by force
                return
            execution, slots = sent
            self.depth -= 1
            for index in rest[0] if rest else ():
                execution.requests[index].report_failure()
            if responses is not None and len(responses) != len(slots):
                count = len(responses)
                responses = None
                failure = INTERNAL, f"{count} responses for a batch of {len(slots)} requests"
            if self.concurrency > 1 or work.has_called:
                self.capacity = self.concurrency
            else:
                self.capacity = self._read_ahead.learn(times[3] - times[0])
            if not self._is_warming_up:
                self._early_deaths = 0
                self._has_worked = True
            if failure is None and responses is None:
                execution.leave(times, work.leave(batch, execution, slots))
            else:
                work.release_all(execution, slots)
                if not self._is_open:
                    self._reopen()
                error: TritonError | None = None
                try:
                    if failure is not None:
                        error = TritonError(failure[1], ErrorCode(failure[0]))
                    else:
                        decoded = [decode_response(encoded, endpoint) for encoded in responses]
                except Exception as exc:  # it comes from a program that is not ours
                    error = Internal(f"instance '{self.name}' answered with what cannot be read: {exc}")
                if error is not None:
                    execution.fail(error, times)
                else:
                    execution.finish(times, decoded)
            self._on_idle()
        elif message[0] == frame.RESPONSE:
            _, _, slot, encoded, final, durations = message
            request = work.requests.get(slot)
            if request is None:
                return
            response = decode_response(encoded, endpoint) if encoded is not None else None
            if durations is not None:
                request.count_response(response, durations)
            if final:
                work.release(slot)
                self._reopen()
            request.deliver(response, final)
        else:
            self._reschedule(message[2])
        if self._drained is not None:
            self._check_drained()

    def _reschedule(self, slot: int) -> None:
        request = self._work.reschedule(slot)
        if request is not None:
            self._work.release(slot)
            self._reopen()
            request.ticket.tally = COUNTED
            self._on_reschedule(request)

    def _reopen(self) -> None:
        """Take executions again after all slots were in use."""
        if self._is_open or self._is_closing or self._is_warming_up:
            return
        if self._work.room >= self._rows:
            self._is_open = True
            self._on_idle()

    def _died(self, error: TritonError) -> None:
        """The worker has ended without having been asked to."""
        self._is_open = False
        work, self._work = self._work, InFlight(self._unanswered)
        about = about_batch(list(work.requests.values()), self.name)
        _log.error("%s; %d requests were at it", error.message, len(work.requests), extra=about)
        self._worker = None
        if self._has_worked and work.batches:
            self._early_deaths = 0
        self.depth -= min(self.concurrency, len(work.batches))
        self._unsent[:0] = work.lose(error, self.concurrency)
        self._fail_unsent(error, only_sequences=True)
        self._check_drained()
        self._events.on_death(self, error)
        if not self._is_closing and not self._is_warming_up:  # else the warm-up fails with it
            self._restarting = self._loop.create_task(self._restart(error))

    async def _restart(self, reason: TritonError) -> None:
        while not self._is_closing:
            self._early_deaths += 1
            if self._early_deaths > 1:
                self._fail_unsent(reason)
                self._events.on_down(reason)
                await asyncio.sleep(pause_s(self._early_deaths))
            started = time.monotonic()
            try:
                await self.open()
            except Exception as exc:  # such as the system's, which may have threads again later
                reason = exc if isinstance(exc, TritonError) else Internal(f"{type(exc).__name__}: {exc}")
                _log.error("restart of instance '%s' failed: %s", self.name, exc)
                continue
            _log.info("instance '%s' restarted in %.3f s", self.name, time.monotonic() - started)
            assert self._worker is not None
            unsent, self._unsent = self._unsent, []
            for execution in unsent:
                self._send(self._worker, execution)
            self._events.on_restart()
            self._on_idle()
            return

    def _fail_unsent(self, reason: TritonError, *, only_sequences: bool = False) -> None:
        """Answer the batches that wait for a worker, or only those that needed the state of the last one."""
        unsent, self._unsent = self._unsent, []
        for execution in unsent:
            if only_sequences and not execution.has_sequences:
                self._unsent.append(execution)
            else:
                self.depth -= 1
                execution.fail(reason)
        self._check_drained()


def pause_s(early_deaths: int) -> float:
    """The time before a worker is started again that has died so often before it worked; from 2 on."""
    doublings = min(early_deaths - 2, 30)  # after hours of deaths no float could hold it
    return min(_FIRST_PAUSE_S * 2.0**doublings, _LONGEST_PAUSE_S)
