"""Runs the hooks of a backend that is isolated, in the process behind one of its instances."""

from __future__ import annotations

import inspect
import json
import time
import traceback
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tritonpy.errors import TritonError
from tritonpy.handles import MemoryUsage, Model, ModelInstance, OpLibrary
from tritonpy.ipc import frame
from tritonpy.ipc.channel import WorkerChannel
from tritonpy.ipc.frame import Message
from tritonpy.ipc.window import SendWindow, execute_several
from tritonpy.model.async_hooks import AsyncHooks
from tritonpy.model.backend import BoundBackend, hook_failure
from tritonpy.model.execution import checked_responses
from tritonpy.plugin_manager import PluginManager
from tritonpy.process_metrics import MetricFamily, report_metrics_with
from tritonpy.request import InferRequest
from tritonpy.request_trace import RequestTrace
from tritonpy.response import InferResponse, plain_parameter
from tritonpy.tensor import Tensor
from tritonpy.workers.child.inbox import WorkerInbox
from tritonpy.workers.child.server_link import WorkerLink
from tritonpy.workers.child.worker_trace import WorkerTrace
from tritonpy.workers.worker_settings import SharedMemorySettings


class HookWorker:
    """Answers the server's frames by calling the hooks of one backend for one model and instance."""

    def __init__(self, channel: WorkerChannel) -> None:
        self._channel = channel
        self._inbox = WorkerInbox(channel)
        self._link = WorkerLink(channel, self._inbox)
        self._backend: BoundBackend | None = None
        self._model: Model | None = None
        self._instance: ModelInstance | None = None
        self._setup_error: tuple[TritonError, str] | None = None
        self._is_decoupled = False
        self._is_iterative = False
        self._shape_tensors: frozenset[str] = frozenset()
        self._async_hooks = AsyncHooks()
        self._memory_usages: tuple[Sequence[MemoryUsage], Sequence[MemoryUsage]] = ((), ())
        report_metrics_with(self._report_metrics)

    def serve(self) -> None:
        """Handle frames until the server asks to finalize or closes the channel."""
        self._channel.send(frame.STARTED)
        while (message := self._async_hooks.next(self._inbox.next_command)) is not None:
            kind = message[0]
            if kind == frame.EXECUTE:
                self._execute(message)
            elif kind == frame.SETUP:
                self._setup(json.loads(message[2]))
            elif kind == frame.COMPLETE:
                self._answer(self._complete)
            elif kind == frame.INITIALIZE:
                spec = json.loads(message[2])
                self._answer(lambda spec=spec: self._initialize(spec))
            elif kind == frame.PROBE:
                self._channel.send(frame.PROBED, *self._probe())
            elif kind == frame.FINALIZE:
                self._channel.send(frame.FINALIZED, self._finalize())
                return

    def _report_metrics(self, families: Sequence[MetricFamily]) -> None:
        state = [
            (
                family.name,
                family.description,
                family.kind,
                [
                    (dict(each.labels), each.value, list(each.bounds), list(each.counts), each.set_count)
                    for each in family.samples
                ],
            )
            for family in families
        ]
        self._channel.send(frame.TELL, "metrics.state", (state,))

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Send one answer of a request that answers by itself; see `Outbox`."""
        assert isinstance(request, _WorkerRequest)  # made here
        window = request.ticket.window
        if window is not None and not final:
            window.wait()
        if final:
            request.ticket.answered = True
            if window is not None:
                window.end()
        mark_ns = request.mark_ns
        computed_ns = time.monotonic_ns() if mark_ns else 0
        encoded = self._encode(response) if response is not None else None
        durations = None
        if mark_ns:
            request.mark_ns = ready_ns = time.monotonic_ns()
            durations = computed_ns - mark_ns, ready_ns - computed_ns
        self._channel.send(frame.RESPONSE, request.slot, encoded, final, durations)
        if window is not None and not final:
            byte_size = sum(tensor.byte_size for tensor in response.outputs) if response is not None else 0
            window.sent(byte_size, lambda: self._inbox.ask_to_go_on(request.slot))

    def reschedule(self, request: InferRequest) -> None:
        """Have the server queue a request again; see `Rescheduler`."""
        assert isinstance(request, _WorkerRequest)  # made here
        if request.ticket.window is not None:
            request.ticket.window.end()
        self._channel.send(frame.RESCHEDULE, request.slot)

    def _answer(self, step: Any) -> None:  # Any: a step returning the message to send
        try:
            if self._setup_error is not None:
                raise self._setup_error[0]
            reply = step()
        except Exception as exc:
            error = hook_failure("failed to initialize", exc)
            trace = "" if isinstance(exc, TritonError) else traceback.format_exc()
            if self._setup_error is not None:
                trace = self._setup_error[1]
            self._channel.send(frame.FAILED, int(error.code), error.message, trace)
        else:
            self._channel.send(*reply)

    def _setup(self, spec: dict[str, Any]) -> None:
        first, growth, most = spec["shared_memory"]
        memory = SharedMemorySettings(first, growth, most, spec["backend"])
        memory.apply(self._channel.endpoint.arena)
        try:
            library, directory = spec["backend_library"], spec["backend_directory"]
            backend = BoundBackend(
                spec["backend"],
                PluginManager("backends"),
                spec["settings"],
                directory=Path(directory) if directory is not None else None,
                completes_config=spec["completes_config"],
                library=Path(library) if library is not None else None,
            )
            backend.acquire()
        except Exception as exc:  # told to the server when it asks for the next step
            trace = "" if isinstance(exc, TritonError) and exc.__cause__ is None else traceback.format_exc()
            self._setup_error = (hook_failure("failed to initialize", exc), trace)
            return
        self._backend = backend
        libraries = [OpLibrary(Path(path), named_by) for path, named_by in spec["op_libraries"]]
        self._model = Model(
            spec["name"],
            spec["version"],
            spec["config"],
            Path(spec["directory"]),
            backend.handle,
            plugin_op_libraries=libraries,
            server=self._link,
        )

    def _complete(self) -> tuple[Any, ...]:
        assert self._backend is not None
        hook = self._backend.model_auto_complete_config
        completed = hook(self._model) if hook is not None else None
        return frame.COMPLETED, json.dumps(completed) if completed is not None else None

    def _initialize(self, spec: dict[str, Any]) -> tuple[Any, ...]:
        backend, model = self._backend, self._model
        assert backend is not None
        assert model is not None
        model.config = spec["config"]
        self._is_decoupled = model.is_decoupled
        self._is_iterative = model.config.get("sequence_batching", {}).get("iterative_sequence", False)
        self._shape_tensors = frozenset(
            tensor["name"] for tensor in model.config.get("input", ()) if tensor.get("is_shape_tensor", False)
        )
        if backend.model_initialize is not None:
            backend.model_initialize(model)
        self._instance = ModelInstance(
            spec["name"],
            spec["index"],
            spec["kind"],
            spec["device_id"],
            model,
            compute_capability=spec["compute_capability"],
            secondary_devices=[(kind, number) for kind, number in spec["secondary_devices"]],
            lease_output=self._channel.endpoint.arena.lease,
            host_policy=spec["host_policy"],
            host_policy_settings=spec["host_policy_settings"],
            profiles=spec["profiles"],
        )
        if backend.instance_initialize is not None:
            backend.instance_initialize(self._instance)
        self._report_memory()
        executor = self._instance.frame_executor
        if executor is not None and not self._is_decoupled and self._inbox.lend_to(executor):
            self._link.executor = executor
        return frame.INITIALIZED, backend.instance_ready is not None

    def _report_memory(self) -> None:
        """Tell of the memory that the plugin says is used, where it says something else than before."""
        assert self._model is not None
        assert self._instance is not None
        usages = self._model.memory_usage, self._instance.memory_usage
        if usages != self._memory_usages:
            self._memory_usages = usages
            told = [(int(each.memory_type), each.device_id, each.byte_size) for each in chain(*usages)]
            self._channel.send(frame.TELL, frame.MEMORY_NOTICE, (told,))

    def _probe(self) -> tuple[bool, str | None]:
        assert self._backend is not None
        hook = self._backend.instance_ready
        assert hook is not None  # else it is never asked
        try:
            return bool(hook(self._instance)), None
        except Exception as exc:
            return False, f"{type(exc).__name__}: {exc}"

    def _execute(self, message: Message) -> None:
        assert self._backend is not None
        assert self._instance is not None
        _, _, batch, encoded = message
        instance = self._instance
        start = time.monotonic_ns()
        instance.compute_start_ns = instance.compute_end_ns = 0
        self._link.running_batch = batch
        responses: Sequence[InferResponse] | None = None
        failure: tuple[int, str] | None = None
        requests: list[_WorkerRequest] = []
        try:
            execute = self._backend.execute
            assert execute is not None
            requests = [self._decode(request) for request in encoded]
            if self._is_decoupled:
                execute_several(len(requests) > 1)
            outcome = execute(instance, requests)
            if inspect.isawaitable(outcome):
                outcome = self._async_hooks.wait(outcome)
            responses = checked_responses(outcome, len(requests))
        except BaseException as exc:  # sys.exit() in a hook ends a batch, not the worker
            error = hook_failure(
                f"Failed to process the request(s) for model instance '{instance.name}', message", exc
            )
            failure = (int(error.code), error.message)
            del error  # or its traceback would keep this frame, and that the requests
            responses = None
        self._link.running_batch = 0
        if responses is not None or failure is not None:
            for request in requests:
                request.ticket.outbox = None  # the server answers them, and their slots go to other requests
        self._report_memory()
        answers = [self._encode(response) for response in responses] if responses is not None else None
        end = time.monotonic_ns()
        computed = instance.compute_start_ns or start
        # A batch that its frame executor has executed, but not answered, has been computed before.
        times = (min(start, computed), computed, instance.compute_end_ns or end, end)
        failed = [index for index, request in enumerate(requests) if request.ticket.is_failure]
        self._channel.send(frame.EXECUTED, batch, times, answers, failure, failed)

    def _decode(self, encoded: tuple[Any, ...]) -> _WorkerRequest:
        plain = encoded[:9]
        slot, request_id, flags, correlation_id, timeout_us, priority, parameters, requested, inputs = plain
        assert self._model is not None
        request = _WorkerRequest(
            self._model.name,
            {
                name: Tensor(name, datatype, shape, self._channel.endpoint.adopt(data))
                for name, datatype, shape, data in inputs
            },
            id=request_id,
            requested_outputs=requested,
            parameters=parameters,
            flags=flags,
            correlation_id=correlation_id,
            priority=priority,
            timeout_us=timeout_us,
        )
        request.slot = slot
        request.noted_trace = WorkerTrace(self._channel, slot, *encoded[9]) if len(encoded) > 9 else None
        request.channel = self._channel
        request.mark_ns = time.monotonic_ns() if self._is_decoupled else 0
        if self._is_decoupled:
            request.ticket.window = SendWindow()
        if self._model.max_batch_size > 0:
            shapes = (
                tensor.shape for tensor in request.inputs.values() if tensor.name not in self._shape_tensors
            )
            request.batch_size = max(1, next(shapes, (1,))[0])
        request.ticket.outbox = self
        if self._is_iterative:
            request.ticket.again = self
        return request

    def _encode(self, response: InferResponse) -> tuple[Any, ...]:
        """The response as it travels; one that cannot travel becomes an error that says why."""
        endpoint = self._channel.endpoint
        error = response.error
        try:
            outputs = [
                (tensor.name, tensor.datatype, tensor.shape, endpoint.give_or_export(tensor.wire()))
                for tensor in response.outputs
            ]
            given = response.parameters.items()
            parameters = {key: plain_parameter(key, value) for key, value in given} or None
        except Exception as exc:
            error = hook_failure("the response cannot be sent", exc)
            outputs, parameters = [], None
        return outputs, parameters, (int(error.code), error.message) if error is not None else None

    def _finalize(self) -> str | None:
        backend = self._backend
        if backend is None:
            return None
        try:
            if self._instance is not None and backend.instance_finalize is not None:
                backend.instance_finalize(self._instance)
            self._async_hooks.close()
            if self._instance is not None and backend.model_finalize is not None:
                backend.model_finalize(self._model)
            if self._instance is not None and self._instance.frame_executor is not None:
                self._instance.frame_executor.close()
            backend.release()
        except Exception as exc:
            return f"{type(exc).__name__}: {exc}"
        return None


class _WorkerRequest(InferRequest):
    """A request rebuilt here, whose cancellation is a byte of shared memory.

    Attributes:
        slot: names the request to the server, and that byte.
        channel: has that byte.
        noted_trace: its trace, where it is traced.
        mark_ns: when it came, or its last response was ready, in a decoupled model; 0 in others.
    """

    __slots__ = ("channel", "mark_ns", "noted_trace", "slot")

    slot: int
    channel: WorkerChannel
    noted_trace: WorkerTrace | None
    mark_ns: int

    def is_cancelled(self) -> bool:
        return self.channel.is_cancelled(self.slot)

    @property
    def trace(self) -> RequestTrace | None:
        return self.noted_trace

    def cancel_flag(self) -> memoryview:
        return self.channel.cancel_flag(self.slot)
