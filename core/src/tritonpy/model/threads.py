"""Instances on threads of the server's process, for backends that release the GIL."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from tritonpy.devices.host_policy import HostPolicies, HostPolicy, bind, run_under
from tritonpy.errors import Cancelled, TritonError, Unavailable
from tritonpy.executor import Executor
from tritonpy.handles import JsonObject, MemoryUsage, Model, ModelInstance
from tritonpy.ipc.window import SendWindow, execute_several
from tritonpy.model.async_hooks import AsyncHooks
from tritonpy.model.backend import Aside, BoundBackend, hook_failure
from tritonpy.model.bridge import LoopBridge, StreamOutbox
from tritonpy.model.execution import (
    PROBE_TIMEOUT_S,
    Execution,
    Times,
    WarmUp,
    about_batch,
    checked_responses,
    own_states,
)
from tritonpy.model.executor_feed import ExecutorFeed
from tritonpy.model.placement import Slot
from tritonpy.model.read_ahead import ReadAhead, ThreadReadAhead
from tritonpy.own_thread import on_own_thread
from tritonpy.plugin_manager import Hook
from tritonpy.request import COUNTED, InferRequest, RequestOwner
from tritonpy.response import InferResponse
from tritonpy.server_link import ServerLink

_log = logging.getLogger("tritonpy.model")

OnIdle = Callable[[], None]
OnReschedule = Callable[[InferRequest], None]
Result = TypeVar("Result")

_LEAVE_BEHIND_S = 1.0
_MANY_AHEAD = 3
"""Batches of an executor whose calls are over in less than half a millisecond."""


class ExecutionLink(ServerLink, Protocol):
    """The server behind a model, which wants to know who waits for its answers; on the loop."""

    def opened(self, instance: str, running: Callable[[], Execution | None]) -> None:
        """The model has an instance; `running` is what it executes."""

    @property
    def has_called(self) -> bool:
        """True once the model has called another one: a batch that waits could be what a call waits for."""
        ...

    def awaited(self, instance: str) -> Sequence[InferRequest]:
        """The unanswered calls of other models that its execution waits for."""

    def close(self) -> None:
        """The model is gone: give up its calls."""


class ThreadLauncher:
    """Runs the hooks of one model version in this process.

    Args:
        backend: the bound backend; acquired here, released by `close`.
        model: the handle its hooks receive.
        bridge: the way back to the loop.
        policies: say which processors instances keep to.
        first_policy: that of the first instance; hooks of the model keep to it too, because what they open
            often has threads of its own that stay.
        is_parallel: loading hooks do not wait for those of other models and instances of the backend.
        aside: where they wait.
        link: the server that the hooks reach; None for none.
    """

    def __init__(
        self,
        backend: BoundBackend,
        model: Model,
        bridge: LoopBridge,
        *,
        policies: HostPolicies | None = None,
        first_policy: HostPolicy | None = None,
        is_parallel: bool = False,
        aside: Aside = nullcontext,
        link: ExecutionLink | None = None,
    ) -> None:
        self._backend = backend
        self._open_turn = partial(backend.open_turn.take, backend.open_turn.number(), aside)
        turn = backend.load_turn
        self._turn: Aside = nullcontext if is_parallel else partial(turn.take, turn.number(), aside)
        model.server = link
        self._link = link
        self._model = model
        self._bridge = bridge
        self._policies = policies or HostPolicies()
        self._first_policy = first_policy
        self._is_acquired = False
        self._is_initialized = False
        self._hook: asyncio.Future[Any] | None = None  # Any: whatever it returns
        self._instances: list[ThreadInstance] = []

    async def open(self) -> None:
        """Initialise the backend if this is its first model."""
        if self._backend.has_life:
            async with self._open_turn():
                await self._finish(self._acquire())

    async def _acquire(self) -> None:
        await on_own_thread(self._backend.acquire, "hook")
        self._is_acquired = True

    async def complete_config(self) -> JsonObject | None:
        """Ask the backend to fill in what the configuration leaves out."""
        hook = self._backend.model_auto_complete_config
        if hook is None:
            return None
        try:
            async with self._turn():
                completed: JsonObject | None = await self._finish(
                    run_under(self._first_policy, hook, self._model)
                )
        except Exception as exc:
            raise hook_failure(f"autofill failed for model '{self._model.name}'", exc) from exc
        return completed

    async def initialize_model(self, config: JsonObject) -> None:
        """Run `model_initialize` with the final configuration."""
        self._model.config = config
        hook = self._backend.model_initialize
        if hook is not None:
            try:
                async with self._turn():
                    await self._finish(self._initialize(hook))
            except Exception as exc:
                raise hook_failure(f"failed to initialize model '{self._model.name}'", exc) from exc
        self._is_initialized = True

    async def _initialize(self, hook: Hook) -> None:
        await run_under(self._first_policy, hook, self._model)
        self._is_initialized = True

    async def _finish(self, hook: Coroutine[object, object, Result]) -> Result:
        """Run a hook to its end, also if the load is given up meanwhile: `close` waits for it."""
        self._hook = running = asyncio.ensure_future(hook)
        running.add_done_callback(_look_at)
        return await asyncio.shield(running)

    async def start_instance(
        self,
        slot: Slot,
        on_idle: OnIdle,
        on_reschedule: OnReschedule,
        warm_up: WarmUp | None = None,
    ) -> ThreadInstance:
        """Start a thread and wait until its `model_instance_initialize` has run and it is warm."""
        policy = self._policies.find(slot.host_policy)
        async with self._turn():
            handle = slot.handle(self._model, policy)
            instance = ThreadInstance(
                self._backend,
                handle,
                self._bridge,
                on_idle,
                policy,
                on_reschedule,
                self._link,
                is_alone=self._has_one_instance,
            )
            self._instances = [other for other in self._instances if other.is_left_behind]
            self._instances.append(instance)  # not before: one that never began would count as left behind
            await instance.open()
        if warm_up is not None:
            try:
                await warm_up(instance)
            except BaseException:  # what it still executes is a part of that
                await instance.close(Unavailable("the load was given up") if instance.depth else None)
                raise
        return instance

    def _has_one_instance(self) -> bool:
        return sum(instance.is_left_behind for instance in self._instances) == 1

    async def close(self) -> None:
        """Finalise the model, then the backend if this was its last one; instances are closed before."""
        if self._hook is not None and not self._hook.done():  # the load was given up
            await asyncio.wait((self._hook,), timeout=_LEAVE_BEHIND_S)
            if not self._hook.done():
                _log.warning("model '%s' still loads and is left behind", self._model.name)
                return
        if any(instance.is_left_behind for instance in self._instances):
            return  # it may still use what the hooks would free
        hook = self._backend.model_finalize
        if self._is_initialized and hook is not None:
            try:
                await on_own_thread(partial(hook, self._model), "hook")
            except Exception:
                _log.exception("model_finalize of '%s' failed", self._model.name)
        self._is_initialized = False
        if self._link is not None:
            self._link.close()
        if self._is_acquired:
            self._is_acquired = False
            try:
                await on_own_thread(self._backend.release, "hook")
            except Exception:
                _log.exception("backend_finalize of '%s' failed", self._backend.name)


class ThreadInstance:
    """One execution slot on a thread of its own, which keeps to `policy`; see `Instance`.

    The only instance of a model may be fed one batch ahead: else its thread computes nothing from the end of
    a batch until the loop has answered it and sent the next one. Several instances fill such gaps of each
    other. `ThreadReadAhead` says which calls are worth it. A plugin's executor has the thread for itself, and
    is fed ahead as workers are.

    Args:
        is_alone: says on the loop whether it is the only one.
    """

    def __init__(
        self,
        backend: BoundBackend,
        handle: ModelInstance,
        bridge: LoopBridge,
        on_idle: OnIdle,
        policy: HostPolicy | None = None,
        on_reschedule: OnReschedule = lambda request: None,
        link: ExecutionLink | None = None,
        *,
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        assert backend.execute is not None  # checked when it was bound
        self.name = handle.name
        self.depth = 0
        self.capacity = 1
        self.concurrency = 1
        self.is_ready = False
        self._execute_hook = backend.execute
        self._backend = backend
        self._handle = handle
        self._is_decoupled = handle.model.is_decoupled
        batching = handle.model.config.get("sequence_batching", {})
        self._is_iterative: bool = batching.get("iterative_sequence", False)
        self._on_reschedule = on_reschedule
        self._bridge = bridge
        self._on_idle = on_idle
        self._policy = policy
        self._link = link
        self._is_alone = is_alone
        self._given: deque[Execution] = deque()
        self._feed: ExecutorFeed | None = None
        self._read_ahead = ReadAhead()
        self._thread_read_ahead = ThreadReadAhead()
        self._probing: asyncio.Future[bool] | None = None
        self._open: set[_OpenRequest] = set()  # not answered when their execution was over
        self._drained: asyncio.Future[None] | None = None
        self._queue: SimpleQueue[Execution | None] = SimpleQueue()
        self._async_hooks = AsyncHooks()
        self._thread = threading.Thread(target=self._run, name=handle.name, daemon=True)
        self._opened: asyncio.Future[TritonError | None] = asyncio.get_running_loop().create_future()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Start the thread; raises what `model_instance_initialize` raised."""
        self._thread.start()
        try:
            error = await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self._stop()  # a hook cannot be ended from outside: the thread goes when it is over
            raise
        if error is not None:
            raise error
        if self._link is not None:
            self._link.opened(self.name, lambda: self._given[0] if self._given else None)
        self.is_ready = True

    @property
    def memory_usage(self) -> Sequence[MemoryUsage]:
        """See `Instance`."""
        return self._handle.memory_usage

    async def probe(self) -> bool:
        """See `Instance`; the hook runs beside the instance's thread."""
        hook = self._backend.instance_ready
        if not self.is_ready or hook is None or self.depth:
            return self.is_ready
        if self._probing is None or self._probing.done():  # one at a time, however long it takes
            work = on_own_thread(partial(hook, self._handle), "hook")
            self._probing = asyncio.ensure_future(work)
            self._probing.add_done_callback(_look_at)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return bool(await asyncio.shield(self._probing))
        except Exception as exc:  # a probe that fails, or takes too long, is an answer too
            _log.error("instance '%s' failed to say whether it is ready: %r", self.name, exc)
            return False

    def running_executions(self) -> Sequence[tuple[Execution, Sequence[InferRequest]]]:
        """See `Instance`."""
        if not self._given or self._link is None:
            return ()
        return [(self._given[0], self._link.awaited(self.name))]

    def submit(self, execution: Execution) -> None:
        self.depth += 1
        self._given.append(execution)
        feed = self._feed
        for request in execution.requests:
            ticket = request.ticket
            if self._is_decoupled:
                ticket.window = SendWindow()
                ticket.outbox = StreamOutbox(self._bridge, ticket.window)
            else:
                ticket.outbox = self._bridge
            if self._is_iterative:
                ticket.again = self
            if self.depth > 1 or feed is not None:
                ticket.on_cancel = self
        if feed is None:
            self._queue.put(execution)
            return
        feed.submit(execution, waits_for_others=self._read_ahead.is_quick)

    def request_cancelled(self, request: InferRequest) -> None:
        """Answer a request of a batch that waits; of the one that is executed, the model can see it."""
        if self._feed is not None:
            self._cancel_in(self._feed, request)
            return
        try:
            waiting = self._queue.get_nowait()
        except Empty:
            return
        if waiting is not None and request in waiting.requests:
            error = Cancelled(f"{request.label}request was cancelled while it waited")
            waiting.fail_one(waiting.requests.index(request), error)
            if not waiting.requests:
                self._given.remove(waiting)
                self.depth -= 1
                self._check_drained()
                self._on_idle()
                return
        self._queue.put(waiting)

    def _cancel_in(self, feed: ExecutorFeed, request: InferRequest) -> None:
        execution = feed.cancel(request)
        if execution is None:
            return
        self.depth -= 1
        self._given.remove(execution)
        if execution.requests:
            self.submit(execution)
        else:
            self._check_drained()
            self._on_idle()

    def reschedule(self, request: InferRequest) -> None:
        """See `Rescheduler`."""
        self._bridge.call(self._reschedule, request)

    async def drain(self) -> None:
        while self.depth or self._open:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
            self._drained = None

    def _check_drained(self) -> None:
        waiting = self._drained
        if waiting is not None and not waiting.done() and not self.depth and not self._open:
            waiting.set_result(None)

    async def close(self, error: TritonError | None = None) -> None:
        """See `Instance`; a thread cannot be ended from outside: one that does not return is left behind."""
        self.is_ready = False
        if error is None:
            self._stop()
            await asyncio.shield(self._closed)
            return
        given = tuple(self._given)
        self._take_back()
        self._stop()
        for execution in given:
            execution.fail(error)
        for each in tuple(self._open):
            each.fail(error)
        await asyncio.wait((self._closed,), timeout=_LEAVE_BEHIND_S)
        if not self._closed.done():
            _log.warning("instance '%s' still executes and is left behind", self.name)

    def _stop(self) -> None:
        """Have the thread end when it has executed what it has."""
        # First, then the executor: the thread makes the executor before it looks into the queue.
        self._queue.put(None)
        if self._handle.executor is not None:
            self._handle.executor.stop()

    def _take_back(self) -> None:
        """Have what waits not executed."""
        taken_back = self._feed.withdraw() if self._feed is not None else []
        with suppress(Empty):
            while True:
                execution = self._queue.get_nowait()
                assert execution is not None  # that is put only once, at the end
                taken_back.append(execution)
        for each in taken_back:
            self._given.remove(each)
            self.depth -= 1

    @property
    def is_left_behind(self) -> bool:
        """True while its thread still runs a hook."""
        return not self._closed.done()

    # On the loop.

    def _reschedule(self, request: InferRequest) -> None:
        for execution in self._given:
            if request in execution.requests:
                execution.rescheduled_count += 1
        request.ticket.tally = COUNTED
        self._on_reschedule(request)

    def _finished(
        self, execution: Execution, times: Times | None, outcome: TritonError | list[InferResponse] | None
    ) -> None:
        self.depth -= 1
        self._given.remove(execution)
        if times is not None and not self._is_decoupled:
            self._learn(times[3] - times[0])
        if isinstance(outcome, TritonError):
            execution.fail(outcome, times)
        elif times is None:
            raise ValueError("it was not executed, and has no error")
        elif outcome is None:
            execution.leave(times, self._note_open(execution))
        else:
            execution.finish(times, outcome)
        if self._drained is not None:
            self._check_drained()
        self._on_idle()

    def _learn(self, duration_ns: int) -> None:
        """Take as many batches as executions are short, unless one may call another model and wait for it."""
        if self._feed is None:
            ahead = self._thread_read_ahead.learn(duration_ns)
            self.capacity = ahead if self._is_alone() else 1
            return
        ahead = self._read_ahead.learn(duration_ns)
        has_called = self._link is not None and self._link.has_called
        # In front of one of several, only what is over in no time may wait.
        may_wait = not has_called and (ahead > _MANY_AHEAD or self._is_alone())
        self.capacity = ahead if may_wait else self.concurrency

    def _open_feed(self, executor: Executor, descriptor: int) -> None:
        self._feed = ExecutorFeed(executor, descriptor, self.name, self._bridge, self._finished)

    def _end(self) -> None:
        if self._feed is not None:
            self._feed.close()
        elif self._handle.executor is not None:  # its instance could not be initialised
            self._handle.executor.close()
        self._closed.set_result(None)

    def _note_open(self, execution: Execution) -> list[InferRequest]:
        """The requests that the model answers later; not held: one may become garbage."""
        left_open = [
            request
            for request in execution.requests
            if not request.ticket.answered
            and request.ticket.owner is not None
            and request.ticket.outbox is not None  # else it is to be executed again
        ]
        for request in left_open:
            ticket = request.ticket
            assert ticket.owner is not None  # as above
            ticket.owner = each = _OpenRequest(self, request, ticket.owner)
            self._open.add(each)
        return left_open

    def request_finished(self, answered: _OpenRequest) -> None:
        """One that was open has its final answer."""
        self._open.discard(answered)
        self._check_drained()

    # On the thread.

    def _run(self) -> None:
        initialize = self._backend.instance_initialize
        error: TritonError | None = None
        try:
            if self._policy is not None:
                bind(self._policy)
            if initialize is not None:
                initialize(self._handle)
        except BaseException as exc:  # sys.exit() in a hook ends a load, and is logged
            error = hook_failure(f"failed to initialize instance '{self.name}'", exc)
            if error is not exc:
                error.__cause__ = exc
        executor = self._handle.executor
        if executor is not None and error is None:
            try:
                self._bridge.call(self._open_feed, executor, executor.fileno())
            except Exception as exc:
                error = hook_failure(f"failed to initialize instance '{self.name}'", exc)
                self._finalize()
        self._bridge.call(self._opened.set_result, error)
        try:
            if error is None:
                if executor is not None:
                    self._run_executor(executor)
                # No local variable may outlive an execution: an unanswered request has to become garbage.
                while self._execute(self._async_hooks.next(self._queue.get)):
                    pass
                self._finalize()
            self._async_hooks.close()
        finally:
            self._bridge.call(self._end)

    def _run_executor(self, executor: Executor) -> None:
        fault: BaseException | None = None
        if self._queue.empty():  # it is not to end at once
            try:
                executor.run()
            except BaseException as exc:  # costs this instance
                fault = exc.with_traceback(None)
        if fault is not None or self._queue.empty():
            self._bridge.call(self._fail_feed, fault)

    def _fail_feed(self, fault: BaseException | None) -> None:
        if self._feed is not None:
            self._feed.fail(fault)

    def _execute(self, execution: Execution | None) -> bool:
        if execution is None:
            return False
        handle = self._handle
        handle.compute_start_ns = handle.compute_end_ns = 0
        outcome: TritonError | list[InferResponse] | None
        start = time.monotonic_ns()
        if self._is_decoupled:
            for request in execution.requests:
                clock = request.ticket.clock
                if clock is not None:
                    clock.mark_ns = start
            del request  # or it would outlive the execution
            execute_several(len(execution.requests) > 1)
        try:
            outcome = self._execute_hook(handle, execution.requests)
            if not isinstance(outcome, list) and inspect.isawaitable(outcome):
                outcome = self._async_hooks.wait(outcome)
            outcome = checked_responses(outcome, len(execution.requests))
            if execution.has_states and outcome is not None:
                own_states(execution.requests, outcome)
        except BaseException as exc:  # sys.exit() in a hook ends a batch, not the instance
            outcome = hook_failure(
                f"Failed to process the request(s) for model instance '{self.name}', message", exc
            )
            if not isinstance(exc, TritonError):
                about = about_batch(execution.requests, self.name)
                _log.exception("instance '%s' failed to execute a batch", self.name, extra=about)
            # Its traceback has this frame, which has the error: such a circle would keep the requests, and
            # the collector may crash over views of their bytes that others look at.
            outcome = outcome.with_traceback(None)
        if self._is_decoupled:
            execute_several(False)
        end = time.monotonic_ns()
        times = (start, handle.compute_start_ns or start, handle.compute_end_ns or end, end)
        self._bridge.call(self._finished, execution, times, outcome)
        return True

    def _finalize(self) -> None:
        finalize = self._backend.instance_finalize
        if finalize is None:
            return
        try:
            finalize(self._handle)
        except BaseException:
            _log.exception("model_instance_finalize of '%s' failed", self.name)


def _look_at(hook: asyncio.Future[Any]) -> None:  # Any: whatever it returns
    if not hook.cancelled():
        hook.exception()  # there may be no waiter left


class _OpenRequest:
    """A `RequestOwner` between a request and its model, so that the instance is notified of the end, too."""

    def __init__(self, instance: ThreadInstance, request: InferRequest, owner: RequestOwner) -> None:
        self._instance = instance
        self._request = weakref.ref(request)
        self._owner = owner

    def fail(self, error: TritonError) -> None:
        """Answer the request, unless it has just become garbage, which answers it too."""
        request = self._request()
        if request is not None:
            request.fail(error)

    def check_outputs(self, request: InferRequest, response: InferResponse) -> InferResponse:
        return self._owner.check_outputs(request, response)

    def request_finished(self, request: InferRequest, error: TritonError | None) -> None:
        self._instance.request_finished(self)
        self._owner.request_finished(request, error)
