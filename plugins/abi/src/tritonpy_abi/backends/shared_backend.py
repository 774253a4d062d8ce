"""A library's functions as the hooks of a backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tritonpy.abi_host import admitted_by_server, metric_reporter
from tritonpy.plugin import (
    Backend,
    BackendAttributes,
    InferRequest,
    InferResponse,
    JsonObject,
    Model,
    ModelInstance,
    NotFound,
    hookimpl,
)

from tritonpy_abi.backends.answers import Answers
from tritonpy_abi.backends.attributes import mentions, read_attributes
from tritonpy_abi.backends.calls import Calls
from tritonpy_abi.backends.completion import completed_config
from tritonpy_abi.backends.frame_executor import LibraryFrames
from tritonpy_abi.backends.instance_handle import InstanceHandle, memory_of
from tritonpy_abi.backends.native_executor import NativeExecutor
from tritonpy_abi.backends.output_blocks import Lease
from tritonpy_abi.backends.reports import MetricReports, reports_to
from tritonpy_abi.backends.state_array import StateArray
from tritonpy_abi.libraries import open_library
from tritonpy_abi.model_facts import backend_config, facts
from tritonpy_abi.serving import connect
from tritonpy_abi.shim import CData, Shim, open_shim
from tritonpy_abi.strategies.model_handle import ModelHandle
from tritonpy_abi.strategies.request_blocks import RequestBlocks

FUNCTIONS = (
    "TRITONBACKEND_Initialize",
    "TRITONBACKEND_Finalize",
    "TRITONBACKEND_ModelInitialize",
    "TRITONBACKEND_ModelFinalize",
    "TRITONBACKEND_ModelInstanceInitialize",
    "TRITONBACKEND_ModelInstanceFinalize",
    "TRITONBACKEND_ModelInstanceExecute",
    "TRITONBACKEND_ModelInstanceReady",
)
"""What a library may define, in the order of `TRITONPY_BackendOpen`."""

_EXECUTE, _READY = FUNCTIONS[-2:]
"""The only one that is required, and one that is not in older versions of the API."""


class OpenModel:
    """A model that the library has initialised.

    Args:
        shim: the library of this distribution.
        backend: a `TRITONBACKEND_Backend *`.
        model: as the server describes it.
        reports: take its metrics to the server, in a worker.

    Raises:
        TritonError: `TRITONBACKEND_ModelInitialize` refuses it.
    """

    def __init__(self, shim: Shim, backend: CData, model: Model, reports: MetricReports | None) -> None:
        self._shim = shim
        self._reports = reports
        out: CData = shim.ffi.new("TRITONPY_ServedModel **")
        handle = ModelHandle(shim.ffi, model)  # has the texts, until they are copied
        self._calls = Calls(shim, model.server, model.name)
        try:
            shim.check(shim.lib.TRITONPY_ModelOpen(backend, handle.description, self._calls.server, out))
        except BaseException:
            self._calls.close()
            raise
        self._model = out[0]
        self._answers: Answers | None = None
        self._open_answers: Callable[[CData], Answers] | None = None
        self._blocks = RequestBlocks(shim.ffi, model)
        self._executes_natively = False

    def completed(self, model: Model) -> JsonObject | None:
        """The configuration as the library has completed it, if it has.

        Raises:
            TritonError: see `completed_config`.
        """
        text = self._shim.lib.TRITONPY_ModelCompleted(self._model)
        if text == self._shim.ffi.NULL:
            return None
        return completed_config(model.name, model.config, self._shim.text(text))

    def settle(self, model: Model) -> None:
        """Have the library see the configuration that counts, and be ready for requests."""
        config = str(facts(model)["config"]).encode()
        states = StateArray(self._shim.ffi, model)
        self._shim.lib.TRITONPY_ModelSettle(
            self._model, config, model.is_decoupled, states.array, len(states.array)
        )
        self._blocks = RequestBlocks(self._shim.ffi, model)
        has_states = len(states.array) > 0
        is_iterative: bool = model.config.get("sequence_batching", {}).get("iterative_sequence", False)
        self._open_answers = open_answers = partial(
            Answers,
            self._shim,
            name=model.name,
            version=model.version,
            is_decoupled=model.is_decoupled,
            has_states=has_states,
            is_iterative=is_iterative,
        )
        self._answers = open_answers(self._shim.lib.TRITONPY_ModelEvents(self._model))
        # The answers of others wait for clients, or copy states, which the loop does not.
        self._executes_natively = not (model.is_decoupled or has_states or is_iterative)

    def lease_outputs(self, lease: Lease) -> None:
        """Have the library write large outputs to memory that is answered without a copy."""
        assert self._answers is not None  # the model is initialised
        self._answers.lease_outputs(lease)

    def open_instance(self, instance: ModelInstance) -> CData:
        """Call `TRITONBACKEND_ModelInstanceInitialize`; returns a `TRITONBACKEND_ModelInstance *`."""
        self.lease_outputs(instance.lease_output)
        out: CData = self._shim.ffi.new("TRITONBACKEND_ModelInstance **")
        handle = InstanceHandle(self._shim.ffi, instance)  # has the texts, until they are copied
        self._shim.check(self._shim.lib.TRITONPY_InstanceOpen(self._model, handle.description, out))
        self._calls.is_initializing = False
        self._note_memory(instance, out[0])
        if self._executes_natively:
            assert self._open_answers is not None  # the model is initialised
            note_memory = partial(self._note_memory, instance, out[0], is_reported=True)
            instance.executor = NativeExecutor(
                self._shim, out[0], self._blocks, self._open_answers, note_memory
            )
            news = self._reports.flags if self._reports is not None else ()
            instance.frame_executor = LibraryFrames(
                self._shim, out[0], instance.model, self._open_answers, news, note_memory
            )
        return out[0]

    def _note_memory(self, instance: ModelInstance, handle: CData, *, is_reported: bool = False) -> None:
        """Hand on what the library has reported of its use of memory, if it has.

        Args:
            instance: whose library it is.
            handle: its `TRITONBACKEND_ModelInstance *`.
            is_reported: something new is known to be reported.
        """
        if is_reported or self._shim.lib.TRITONPY_MemoryReported(handle):
            instance.model.memory_usage = memory_of(self._shim, handle, of_model=True)
            instance.memory_usage = memory_of(self._shim, handle, of_model=False)

    def execute(
        self, instance: ModelInstance, requests: Sequence[InferRequest]
    ) -> list[InferResponse] | None:
        """See `BackendHooks.model_instance_execute`."""
        frames = instance.frame_executor
        if isinstance(frames, LibraryFrames) and frames.has_executed:
            try:
                return frames.settle(instance, requests)
            finally:
                if self._reports is not None:
                    self._reports.flush()
        assert self._answers is not None  # the model is initialised
        blocks = [self._blocks.fill(request) for request in requests]
        try:
            return self._answers.execute(instance.state, requests, blocks)
        finally:
            start: CData = self._shim.ffi.new("uint64_t[2]")
            self._shim.lib.TRITONPY_InstanceTimes(instance.state, start, start + 1)
            if start[0] and start[1]:
                instance.report_compute(start[0], start[1])
            self._note_memory(instance, instance.state)
            if self._reports is not None:
                self._reports.flush()

    def close(self) -> None:
        """Call `TRITONBACKEND_ModelFinalize`; what the library's threads have sent by then is answered."""
        try:
            self._shim.check(self._shim.lib.TRITONPY_ModelFinalize(self._model))
        finally:
            if self._answers is not None:
                self._answers.close()
            self._calls.close()
            self._shim.lib.TRITONPY_ModelEnd(self._model)


class SharedBackend:
    """A backend that is a shared object; it has the hooks of `BackendHooks`.

    The library is opened where models run, which is a worker unless a model wants otherwise.

    Args:
        path: of the library.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    @hookimpl
    def backend_attributes(self, backend: Backend) -> BackendAttributes:
        """See `BackendHooks`; the library is asked in a process of its own."""
        return read_attributes(self._path, backend)

    @hookimpl
    def backend_initialize(self, backend: Backend) -> None:
        """See `BackendHooks`.

        Raises:
            NotFound: the library is no backend.
            TritonError: it cannot be opened, or its `TRITONBACKEND_Initialize` fails.
        """
        shim = open_shim()
        if (admitted := admitted_by_server()) is not None:
            shim.lib.TRITONPY_LogFollowAt(shim.ffi.from_buffer("uint8_t[]", admitted))
        library = open_library(self._path)
        if library.function(_EXECUTE) is None:
            raise NotFound(
                f"unable to find required entrypoint '{_EXECUTE}' in shared library: {self._path}, of "
                f"backend '{backend.name}'; in C++ it is defined as extern \"C\""
            )
        out: CData = shim.ffi.new("TRITONBACKEND_Backend **")
        shim.check(
            shim.lib.TRITONPY_BackendOpen(
                [library.function(name) or shim.ffi.NULL for name in FUNCTIONS],
                backend.name.encode(),
                str(self._path.parent).encode(),
                backend_config(backend).encode(),
                out,
            )
        )
        backend.state = out[0]

    @hookimpl
    def backend_finalize(self, backend: Backend) -> None:
        shim = open_shim()
        shim.check(shim.lib.TRITONPY_BackendClose(backend.state))

    @hookimpl
    def model_auto_complete_config(self, model: Model) -> JsonObject | None:
        """See `BackendHooks`; the model is initialised here, since libraries complete it as they do that."""
        opened = model.state = _opened(model)
        return opened.completed(model)

    @hookimpl
    def model_initialize(self, model: Model) -> None:
        """See `BackendHooks`."""
        if model.state is None:
            model.state = _opened(model)
        model.state.settle(model)

    @hookimpl
    def model_finalize(self, model: Model) -> None:
        model.state.close()

    @hookimpl
    def model_instance_initialize(self, instance: ModelInstance) -> None:
        instance.state = instance.model.state.open_instance(instance)

    @hookimpl
    def model_instance_finalize(self, instance: ModelInstance) -> None:
        shim = open_shim()
        shim.check(shim.lib.TRITONPY_InstanceClose(instance.state))

    @hookimpl
    def model_instance_execute(
        self, instance: ModelInstance, requests: Sequence[InferRequest]
    ) -> list[InferResponse] | None:
        model: OpenModel = instance.model.state
        return model.execute(instance, requests)


class _WithReadiness:
    """The hook of a library that says whether its instances are ready."""

    @hookimpl
    def model_instance_ready(self, instance: ModelInstance) -> bool:
        shim = open_shim()
        shim.check(shim.lib.TRITONPY_InstanceReady(instance.state))
        return True


def open_backend(path: str | Path) -> SharedBackend:
    """A backend that is a shared object, with the hooks that the library may have functions for."""
    parts: list[type] = [_WithReadiness] if mentions(path, _READY) else []
    made: type[SharedBackend] = type(SharedBackend.__name__, (SharedBackend, *parts), {})
    return made(path)


def _opened(model: Model) -> OpenModel:
    """Initialise a model in the library; in the server, log lines and metrics are the server's own."""
    report = metric_reporter()
    if report is None:
        connect()
    return OpenModel(
        open_shim(), model.backend.state, model, reports_to(report) if report is not None else None
    )
