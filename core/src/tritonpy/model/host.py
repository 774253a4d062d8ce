"""Instances in processes of their own: start, feed, supervise and restart the worker behind each.

A worker that dies costs the batch it was executing and the requests it still had to answer; a batch that had
already been sent but not begun goes to its successor. The first restart is immediate; pauses grow only while
workers die without ever completing a batch.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tritonpy.errors import ErrorCode, Internal, TritonError
from tritonpy.handles import JsonObject, Model, WorkerCommand
from tritonpy.ipc import frame
from tritonpy.ipc.arena import CONTROL_SLOTS
from tritonpy.ipc.channel import Endpoint
from tritonpy.ipc.frame import Message
from tritonpy.model.backend import BoundBackend, hook_failure
from tritonpy.model.execution import Execution
from tritonpy.model.placement import Slot
from tritonpy.model.worker_process import WorkerProcess
from tritonpy.model.worker_settings import SharedMemorySettings
from tritonpy.plugin_manager import Hook
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor

_log = logging.getLogger("tritonpy.worker")

OnIdle = Callable[[], None]
OnDown = Callable[[TritonError], None]

# How far a worker may be fed ahead. What waits in its socket can be neither cancelled in the queue nor given
# to another instance, so no more than about a millisecond of work is sent ahead; a model that needs up to ten
# gets one batch ahead, which hides the way there and back.
_MOST_AHEAD = 15
_AHEAD_NS = 1_000_000
_ONE_AHEAD_BELOW_NS = 10_000_000

# Putting a core to sleep and waking it costs more than a quick model computes (ADR 0007).
_LINGER_BELOW_NS = 50_000
_LINGER_NS = 100_000
_HAS_CORES = (os.cpu_count() or 1) > 1
_LONGEST_PAUSE_S = 30.0


class ProcessRunner:
    """Runs one model version in workers, one for each instance.

    Args:
        backend: the bound backend; its hooks run in the workers, except those that describe it.
        model: the handle that describes the model.
        start_timeout_s: how long a worker may take to answer each step of its start.
        finalize_timeout_s: how long it may take to finalize.
        on_down: an instance is dead and could not be restarted at once.
        on_restart: a worker was started again and executes.
        memory: the shared memory of each direction between the server and a worker.
    """

    def __init__(
        self,
        backend: BoundBackend,
        model: Model,
        *,
        start_timeout_s: float,
        finalize_timeout_s: float,
        on_down: OnDown,
        on_restart: Callable[[], None],
        memory: SharedMemorySettings | None = None,
    ) -> None:
        self._backend = backend
        self._model = model
        self._start_timeout_s = start_timeout_s
        self._finalize_timeout_s = finalize_timeout_s
        self._on_down = on_down
        self._on_restart = on_restart
        self._memory = memory or SharedMemorySettings()
        self._command = WorkerCommand([sys.executable, "-m", "tritonpy.model.worker"])
        self._spare: WorkerProcess | None = None

    async def open(self) -> None:
        """Start the worker that completes the configuration and then becomes the first instance."""
        if self._backend.worker_command is not None:
            # Once per load: it may unpack an environment, and a restart has to be quick.
            self._command = await asyncio.to_thread(self._ask_command, self._backend.worker_command)
        self._spare = await self._start_worker(self._model.name)

    async def complete_config(self) -> JsonObject | None:
        """Have the worker complete the configuration."""
        assert self._spare is not None  # opened
        message = await self._spare.ask(frame.COMPLETE, timeout_s=self._start_timeout_s)
        return json.loads(message[2]) if message[2] is not None else None

    async def initialize_model(self, config: JsonObject) -> None:
        """Remember the final configuration; each worker initialises the model for itself."""
        self._model.config = config

    async def start_instance(self, slot: Slot, on_idle: OnIdle) -> ProcessInstance:
        """Start a worker, or take the spare one, and wait until its instance is initialised."""
        worker, self._spare = self._spare, None
        instance = ProcessInstance(self, slot, self._model, on_idle, self._on_down, self._on_restart)
        await instance.open(worker)
        return instance

    async def close(self) -> None:
        """End the spare worker if no instance took it."""
        if self._spare is not None:
            self._spare.kill()
            await self._spare.close(self._finalize_timeout_s)
            self._spare = None

    def _ask_command(self, hook: Hook) -> WorkerCommand:
        try:
            command = hook(self._model)
        except Exception as exc:
            raise hook_failure(f"backend '{self._backend.name}' failed to name its worker", exc) from exc
        if command is None:
            return self._command
        return command if isinstance(command, WorkerCommand) else WorkerCommand(command)

    async def _start_worker(self, name: str) -> WorkerProcess:
        worker = WorkerProcess(name, _ignore, _ignore)
        await worker.start(self._command)
        model = self._model
        directory = self._backend.handle.directory
        setup = json.dumps(
            {
                "name": model.name,
                "version": model.version,
                "directory": str(model.directory),
                "backend": self._backend.name,
                "backend_directory": str(directory) if directory is not None else None,
                "settings": dict(self._backend.handle.settings),
                "config": model.config,
            }
        )
        worker.send(frame.SETUP, setup)
        return worker

    async def start_worker_for(
        self,
        slot: Slot,
        worker: WorkerProcess | None,
        on_message: Callable[[Message], None],
        on_exit: Callable[[TritonError], None],
    ) -> WorkerProcess:
        """Bring a worker to the point where it executes batches of instance `slot`."""
        if worker is None:
            worker = await self._start_worker(slot.name)
        worker.adopt(slot.name, on_message, on_exit)
        instance = json.dumps(
            {
                "name": slot.name,
                "index": slot.index,
                "kind": slot.kind,
                "device_id": slot.device_id,
                "config": self._model.config,
            }
        )
        try:
            await worker.ask(frame.INITIALIZE, instance, timeout_s=self._start_timeout_s)
        except BaseException:  # also when a closing instance cancels its restart: no process may be left
            worker.kill()
            raise
        return worker

    @property
    def finalize_timeout_s(self) -> float:
        """How long a worker may take to finalize before it is killed."""
        return self._finalize_timeout_s


class ProcessInstance:
    """One execution slot in a worker of its own; on the loop only.

    A quick model is fed ahead: the next batches wait in the worker's socket while one computes, so that it
    never waits for the loop, and the two processes wake each other once for many batches.
    """

    def __init__(
        self,
        runner: ProcessRunner,
        slot: Slot,
        model: Model,
        on_idle: OnIdle,
        on_down: OnDown,
        on_restart: OnIdle,
    ) -> None:
        self.name = slot.name
        self.depth = 0
        self.capacity = 1
        self._execution_ns = _AHEAD_NS
        self._loop = asyncio.get_running_loop()
        self._linger_until_ns = 0
        self._is_open = False
        self._runner = runner
        self._slot = slot
        self._rows = min(max(1, model.max_batch_size), CONTROL_SLOTS)
        self._on_idle = on_idle
        self._on_down = on_down
        self._on_restart = on_restart
        self._worker: WorkerProcess | None = None
        self._is_closing = False
        self._restarting: asyncio.Task[None] | None = None
        self._early_deaths = 0
        self._reset()

    def _reset(self) -> None:
        self._batch = 0
        self._executions: deque[tuple[Execution, list[int]]] = deque()
        self._requests: dict[int, InferRequest] = {}
        self._free = list(range(CONTROL_SLOTS - 1, -1, -1))

    @property
    def is_ready(self) -> bool:
        """See `Instance`; also False while so many requests are open that a batch might not find slots."""
        return self._is_open and self._worker is not None and self._worker.is_connected

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        assert self._worker is not None  # opened
        return self._worker.pid

    async def open(self, worker: WorkerProcess | None = None) -> None:
        """Start the worker (or take a started one) and initialise the instance in it."""
        self._worker = await self._runner.start_worker_for(self._slot, worker, self._take, self._died)
        self._is_open = True

    def submit(self, execution: Execution) -> None:
        """See `Instance`."""
        self.depth += 1
        worker = self._worker
        if worker is None or not worker.is_connected:
            self._executions.append((execution, []))  # sent by the restart that is under way
            return
        self._send(worker, execution)

    async def close(self, error: TritonError | None = None) -> None:
        """See `Instance`."""
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
            await self._worker.close(self._runner.finalize_timeout_s)
        self._fail_open(Internal(f"instance '{self.name}' was closed before it answered"))

    def _fail_open(self, error: TritonError) -> None:
        """Answer everything that was given to this instance."""
        self._fail_waiting(error)
        for request in list(self._requests.values()):
            request.fail(error)
        self._requests.clear()

    def request_cancelled(self, request: InferRequest) -> None:
        """Tell the worker through shared memory; a model polls `is_cancelled`."""
        if request.slot >= 0 and self._worker is not None:
            self._worker.cancel_flags[request.slot] = 1

    def _send(self, worker: WorkerProcess, execution: Execution) -> None:
        slots: list[int] = []
        requests = self._requests
        free = self._free
        encoded = []
        endpoint = worker.endpoint
        for request in execution.requests:
            slot = free.pop()
            slots.append(slot)
            requests[slot] = request
            request.slot = slot
            request.on_cancel = self
            if request.cancelled:
                worker.cancel_flags[slot] = 1
            encoded.append(_encode_request(slot, request, endpoint))
        self._executions.append((execution, slots))
        self._batch += 1
        worker.send(frame.EXECUTE, self._batch, encoded)
        if self.depth == 1 and self._execution_ns < _LINGER_BELOW_NS and _HAS_CORES:
            self._linger_until_ns = time.monotonic_ns() + _LINGER_NS
            self._loop.call_soon(self._linger)
        if len(free) < self._rows:
            self._is_open = False  # until open requests are answered: decoupled models may keep many

    def _take(self, message: Message) -> None:
        assert self._worker is not None
        endpoint = self._worker.endpoint
        if message[0] == frame.RESPONSE:
            _, _, slot, encoded, final = message
            request = self._requests.get(slot)
            if request is None:
                return
            response = _decode_response(encoded, endpoint) if encoded is not None else None
            if final:
                self._release(slot)
            request.deliver(response, final)
            return
        _, _, _, times, responses, failure = message
        execution, slots = self._executions.popleft()
        self.depth -= 1
        self._pace(times[3] - times[0])
        self._early_deaths = 0
        if failure is not None:
            self._release_all(execution, slots)
            execution.fail(TritonError(failure[1], ErrorCode(failure[0])), times)
        elif responses is None:
            execution.finish(times, None)
        else:
            self._release_all(execution, slots)
            execution.finish(times, [_decode_response(encoded, endpoint) for encoded in responses])
        self._on_idle()

    def _release_all(self, execution: Execution, slots: list[int]) -> None:
        for request, slot in zip(execution.requests, slots, strict=True):
            # A request that answered by itself has given its slot back, and another may have it by now.
            if self._requests.get(slot) is request:
                self._release(slot)

    def _linger(self) -> None:
        """Keep the loop turning, instead of sleeping, while an answer is due within microseconds."""
        if self.depth and time.monotonic_ns() < self._linger_until_ns:
            self._loop.call_soon(self._linger)

    def _pace(self, duration_ns: int) -> None:
        """Learn from one execution how far ahead to feed the worker."""
        self._execution_ns += (duration_ns - self._execution_ns) // 8
        usual_ns = max(self._execution_ns, 1)
        ahead = min(_MOST_AHEAD, _AHEAD_NS // usual_ns)
        self.capacity = 1 + (ahead or int(usual_ns < _ONE_AHEAD_BELOW_NS))

    def _release(self, slot: int) -> None:
        request = self._requests.pop(slot, None)
        if request is None:
            return
        assert self._worker is not None
        if request.cancelled:
            self._worker.cancel_flags[slot] = 0
        request.slot = -1
        self._free.append(slot)
        if not self._is_open and len(self._free) >= self._rows and not self._is_closing:
            self._is_open = True
            self._on_idle()

    def _died(self, error: TritonError) -> None:
        self._is_open = False
        _log.error("%s; %d requests were at it", error.message, len(self._requests))
        executions, requests = self._executions, self._requests
        self._reset()
        self._worker = None
        started = False
        for execution, slots in executions:
            for request, slot in zip(execution.requests, slots, strict=bool(slots)):
                if requests.get(slot) is request:
                    del requests[slot]
            if not started and slots:
                started = True  # executed in order, each answered before the next: only the first had begun
                self.depth -= 1
                execution.fail(Internal(f"{error.message} while it executed this request"))
            else:
                for request in execution.requests:
                    request.slot = -1
                self._executions.append((execution, []))
        for request in requests.values():  # their execution was over, their answers were not
            request.fail(Internal(f"{error.message} before this request had its final response"))
        if not self._is_closing:
            self._restarting = asyncio.get_running_loop().create_task(self._restart(error))

    async def _restart(self, reason: TritonError) -> None:
        while not self._is_closing:
            self._early_deaths += 1
            if self._early_deaths > 1:
                self._fail_waiting(reason)
                self._on_down(reason)
                await asyncio.sleep(min(0.25 * 2**self._early_deaths, _LONGEST_PAUSE_S))
            started = time.monotonic()
            try:
                await self.open()
            except TritonError as exc:
                reason = exc
                _log.error("restart of instance '%s' failed: %s", self.name, exc)
                continue
            _log.info("instance '%s' restarted in %.3f s", self.name, time.monotonic() - started)
            assert self._worker is not None
            waiting, self._executions = self._executions, deque()
            for execution, _ in waiting:
                self._send(self._worker, execution)
            self._on_restart()
            self._on_idle()
            return

    def _fail_waiting(self, reason: TritonError) -> None:
        waiting, self._executions = self._executions, deque()
        for execution, _ in waiting:
            self.depth -= 1
            execution.fail(reason)


def _ignore(_: Any) -> None:  # Any: a message or an error that nobody waits for yet
    return None


def _encode_request(
    slot: int, request: InferRequest, endpoint: Endpoint
) -> tuple[Any, ...]:  # Any: see frame
    return (
        slot,
        request.id,
        request.flags,
        request.correlation_id,
        request.timeout_us,
        request.priority,
        request.parameters or None,
        request.requested_outputs,
        [
            (tensor.name, tensor.datatype, tensor.shape, endpoint.export(tensor.wire()))
            for tensor in request.inputs.values()
        ],
    )


def _decode_response(encoded: Message, endpoint: Endpoint) -> InferResponse:
    outputs, parameters, error = encoded
    return InferResponse(
        [Tensor(name, datatype, shape, endpoint.adopt(data)) for name, datatype, shape, data in outputs],
        TritonError(error[1], ErrorCode(error[0])) if error is not None else None,
        parameters,
    )
