"""Runs a model in workers: starts the worker behind each instance, and starts it again."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from functools import partial

from tritonpy.devices.host_policy import HostPolicies, HostPolicy, bind, run_under
from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject, Model, WorkerCommand
from tritonpy.ipc import frame
from tritonpy.ipc.channel import WorkerChannel
from tritonpy.model.backend import BoundBackend, hook_failure
from tritonpy.model.execution import WarmUp
from tritonpy.model.placement import Slot
from tritonpy.own_thread import on_own_thread
from tritonpy.plugin_manager import Hook
from tritonpy.request import InferRequest
from tritonpy.secret_variables import without_secrets
from tritonpy.workers.calls import ServerAccess
from tritonpy.workers.in_flight import UnansweredWatch
from tritonpy.workers.instance import OnIdle, OnReschedule, ProcessInstance, WorkerEvents
from tritonpy.workers.worker_process import WorkerProcess
from tritonpy.workers.worker_services import Caller
from tritonpy.workers.worker_settings import (
    INITIALIZE_TIMEOUT,
    START_TIMEOUT,
    UNANSWERED_WARNING,
    SharedMemorySettings,
)
from tritonpy.workers.worker_thread import Serve

_log = logging.getLogger("tritonpy.worker")

CONCURRENCY_PARAMETER = "TRITONPY_CONCURRENT_BATCHES"


class WorkerLauncher:
    """Runs one model version in workers, one for each instance.

    Args:
        backend: the bound backend; its hooks run in the workers, except those that describe it.
        model: the handle that describes the model.
        access: what models in workers can reach.
        events: callbacks for deaths and restarts.
        start_timeout_s: how long a worker's program may take to start; None for no limit.
        initialize_timeout_s: how long the model itself may take for each step of its start, such as reading
            its weights; None for no limit.
        finalize_timeout_s: how long it may take to finalize.
        unanswered_after_s: when a request that `execute` left unanswered is reported; 0 for never.
        memory: the shared memory of each direction between the server and a worker.
        in_process: run the workers' program on threads of this process, as for a debugger.
        policies: say which processors instances keep to.
        first_policy: that of the first instance, whose worker is started before there are instances.
    """

    def __init__(
        self,
        backend: BoundBackend,
        model: Model,
        *,
        access: ServerAccess,
        events: WorkerEvents,
        start_timeout_s: float | None,
        finalize_timeout_s: float,
        initialize_timeout_s: float | None = None,
        unanswered_after_s: float = 0,
        memory: SharedMemorySettings | None = None,
        in_process: bool = False,
        policies: HostPolicies | None = None,
        first_policy: HostPolicy | None = None,
    ) -> None:
        self._backend = backend
        self._model = model
        self._access = access
        self._events = events
        self._start_timeout_s = start_timeout_s
        self._initialize_timeout_s = initialize_timeout_s
        self._unanswered_after_s = unanswered_after_s
        self._finalize_timeout_s = finalize_timeout_s
        self._memory = memory or SharedMemorySettings()
        self._in_process = in_process
        self._policies = policies or HostPolicies()
        self._first_policy = first_policy
        self._concurrency = 1
        self._command = WorkerCommand.of_hooks(sys.executable)
        self._spare: WorkerProcess | None = None

    async def open(self) -> None:
        """Start the worker that completes the configuration and then becomes the first instance."""
        if self._backend.worker_command is not None and not self._in_process:
            # Once per load: it may unpack an environment, and a restart has to be quick.
            ask = partial(self._ask_command, self._backend.worker_command)
            self._command = await on_own_thread(ask, "hook")
        self._spare = await self._start_worker(self._model.name, self._first_policy)

    async def complete_config(self) -> JsonObject | None:
        """Have the worker complete the configuration."""
        assert self._spare is not None  # opened
        message = await self._spare.ask(
            frame.COMPLETE,
            timeout_s=self._initialize_timeout_s,
            late=self._too_late("completing its configuration"),
        )
        return json.loads(message[2]) if message[2] is not None else None

    async def initialize_model(self, config: JsonObject) -> None:
        """Remember the final configuration; each worker initialises the model for itself."""
        self._model.config = config
        self._concurrency = self._read_concurrency()

    async def start_instance(
        self, slot: Slot, on_idle: OnIdle, on_reschedule: OnReschedule, warm_up: WarmUp | None = None
    ) -> ProcessInstance:
        """Start a worker, or take the spare one, and wait until its instance is initialised and warm."""
        worker = None
        if self._policies.find(slot.host_policy) == self._first_policy:  # it was born under that one
            worker, self._spare = self._spare, None
        instance = ProcessInstance(
            partial(self._bring_up, slot),
            slot,
            self._model,
            self._concurrency,
            on_idle=on_idle,
            events=self._events,
            on_reschedule=on_reschedule,
            unanswered=UnansweredWatch(
                self._unanswered_after_s, lambda request, age_s: self._report_unanswered(slot, request, age_s)
            ),
            warm_up=warm_up,
        )
        await instance.open(worker)
        return instance

    async def close(self) -> None:
        """End the spare worker if no instance took it."""
        if self._spare is not None:
            self._spare.kill()
            await self._spare.close()
            self._spare = None

    def _ask_command(self, hook: Hook) -> WorkerCommand:
        try:
            command = hook(self._model)
        except Exception as exc:
            raise hook_failure(f"backend '{self._backend.name}' failed to name its worker", exc) from exc
        if command is None:
            return self._command
        return command if isinstance(command, WorkerCommand) else WorkerCommand(command)

    async def _start_worker(self, name: str, policy: HostPolicy | None) -> WorkerProcess:
        caller = Caller(self._model.name, self._model.version, name)
        worker = WorkerProcess(caller, self._access, self._finalize_timeout_s)
        if self._in_process:
            assert self._backend.worker_serve is not None  # checked by the loader
            serve = partial(self._backend.worker_serve, self._model)
            if policy is not None:
                await run_under(policy, lambda: None)  # fails the load with the system's error
                serve = partial(_serve_under, policy, serve)
            await worker.start_thread(serve, self._memory)
        else:
            await worker.start(self._command.command, self._variables(), self._memory, policy)
        model, memory = self._model, self._memory
        directory, library = self._backend.handle.directory, self._backend.library
        setup = json.dumps(
            {
                "name": model.name,
                "version": model.version,
                "directory": str(model.directory),
                "backend": self._backend.name,
                "backend_directory": str(directory) if directory is not None else None,
                "backend_library": str(library) if library is not None else None,
                "completes_config": self._backend.handle.completes_config,
                "settings": dict(self._backend.handle.settings),
                "config": model.config,
                "op_libraries": [(str(each.path), each.named_by) for each in model.plugin_op_libraries],
                "shared_memory": [memory.first_byte_size, memory.growth_byte_size, memory.most_byte_size],
            }
        )
        worker.send(frame.SETUP, setup)
        late = (
            f"Stub process '{name}' is not healthy. Its program did not start within "
            f"{self._start_timeout_s or 0:g} seconds, "
            f"the limit that --backend-config={self._backend.name},{START_TIMEOUT} sets"
        )
        try:
            await worker.started(self._start_timeout_s, late)
        except BaseException:
            worker.kill()
            await worker.close()
            raise
        return worker

    def _variables(self) -> dict[str, str]:
        """The environment of a worker's program."""
        variables: dict[str, str | None] = dict(without_secrets(os.environ, self._access.passed_variables))
        variables.update(self._command.environment)
        return {name: value for name, value in variables.items() if value is not None}

    async def _bring_up(
        self, slot: Slot, worker: WorkerProcess | None, hand_over: Callable[[WorkerProcess], None]
    ) -> WorkerProcess:
        """Start a worker unless one is given, and initialise an instance in it; see `StartWorker`."""
        if worker is None:
            worker = await self._start_worker(slot.name, self._policies.find(slot.host_policy))
        hand_over(worker)
        instance = slot.handle(self._model, self._policies.find(slot.host_policy))
        spec = json.dumps(
            {
                "name": instance.name,
                "index": instance.index,
                "kind": instance.kind,
                "device_id": instance.device_id,
                "compute_capability": instance.compute_capability,
                "secondary_devices": instance.secondary_devices,
                "host_policy": instance.host_policy,
                "host_policy_settings": instance.host_policy_settings,
                "profiles": instance.profiles,
                "config": self._model.config,
                "concurrent_batches": self._concurrency,
            }
        )
        late = self._too_late(f"initializing instance '{slot.name}'")
        try:
            message = await worker.ask(
                frame.INITIALIZE, spec, timeout_s=self._initialize_timeout_s, late=late
            )
        except BaseException:  # also when a closing instance cancels its restart: no process may be left
            worker.kill()
            await worker.close()
            raise
        worker.is_probed = message[2]
        return worker

    def _report_unanswered(self, slot: Slot, request: InferRequest, age_s: float) -> None:
        _log.warning(
            "model '%s' has not answered a request finally %.0f s after its execute returned: somebody still "
            "holds its response sender. --backend-config=%s,%s=<seconds> sets when this is reported, 0 never",
            self._model.name,
            age_s,
            self._backend.name,
            UNANSWERED_WARNING,
            extra={
                "model": self._model.name,
                "version": self._model.version,
                "instance": slot.name,
                "request_id": request.id,
            },
        )
        self._events.on_unanswered()

    def _too_late(self, step: str) -> str:
        limit_s = self._initialize_timeout_s or 0
        return (
            f"model '{self._model.name}': {step} took longer than {limit_s:g} seconds, "
            f"the limit that --backend-config={self._backend.name},{INITIALIZE_TIMEOUT} sets"
        )

    def _read_concurrency(self) -> int:
        text = self._model.parameter(CONCURRENCY_PARAMETER, "1")
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise InvalidArg(
                f"model '{self._model.name}': parameter {CONCURRENCY_PARAMETER} is '{text}', expected the "
                f"number of batches that 'async def execute' works on side by side, 1 or more"
            )
        return int(text)


def _serve_under(policy: HostPolicy, serve: Serve, channel: WorkerChannel) -> None:
    bind(policy)
    serve(channel)
