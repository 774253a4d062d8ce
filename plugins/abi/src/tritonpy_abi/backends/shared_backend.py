"""A library's functions as the hooks of a backend."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tritonpy.plugin import (
    Backend,
    BackendAttributes,
    InferRequest,
    InferResponse,
    InvalidArg,
    JsonObject,
    Model,
    ModelInstance,
    hookimpl,
)

from tritonpy_abi.backends.answers import Answers
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
)
"""What a library may define, in the order of `TRITONPY_BackendOpen`; only the last one is required."""

_ISOLATION = "TRITONPY_ISOLATION"

_KINDS = {"KIND_AUTO": 0, "KIND_CPU": 1, "KIND_GPU": 2, "KIND_MODEL": 3}
"""Numbers of `TRITONSERVER_InstanceGroupKind`."""


class OpenModel:
    """A model that the library has initialised.

    Args:
        shim: the library of this distribution.
        backend: a `TRITONBACKEND_Backend *`.
        model: as the server describes it.

    Raises:
        TritonError: `TRITONBACKEND_ModelInitialize` refuses it.
    """

    def __init__(self, shim: Shim, backend: CData, model: Model) -> None:
        self._shim = shim
        out: CData = shim.ffi.new("TRITONPY_ServedModel **")
        handle = ModelHandle(shim.ffi, model)  # has the texts, until they are copied
        shim.check(shim.lib.TRITONPY_ModelOpen(backend, handle.description, out))
        self._model = out[0]
        self._answers: Answers | None = None
        self._blocks = RequestBlocks(shim.ffi, model)

    def completed(self, name: str) -> JsonObject | None:
        """The configuration that the library has set, if it has.

        Raises:
            InvalidArg: it is no JSON object.
        """
        text = self._shim.lib.TRITONPY_ModelCompleted(self._model)
        if text == self._shim.ffi.NULL:
            return None
        try:
            config = json.loads(self._shim.text(text))
        except ValueError as exc:
            raise InvalidArg(
                f"the backend of model '{name}' has set a configuration that is no JSON: {exc}"
            ) from exc
        if not isinstance(config, dict):
            raise InvalidArg(f"the backend of model '{name}' has set a configuration that is no JSON object")
        return config

    def settle(self, model: Model) -> None:
        """Have the library see the configuration that counts, and be ready for requests."""
        config = str(facts(model)["config"]).encode()
        self._shim.lib.TRITONPY_ModelSettle(self._model, config, model.is_decoupled)
        self._blocks = RequestBlocks(self._shim.ffi, model)
        self._answers = Answers(self._shim, self._model, model.name, is_decoupled=model.is_decoupled)

    def open_instance(self, instance: ModelInstance) -> CData:
        """Call `TRITONBACKEND_ModelInstanceInitialize`; returns a `TRITONBACKEND_ModelInstance *`."""
        out: CData = self._shim.ffi.new("TRITONBACKEND_ModelInstance **")
        policy = f"gpu_{instance.device_id}" if instance.kind == "KIND_GPU" else instance.kind[5:].lower()
        self._shim.check(
            self._shim.lib.TRITONPY_InstanceOpen(
                self._model,
                instance.name.encode(),
                _KINDS[instance.kind],
                instance.device_id,
                json.dumps({policy: {}}).encode(),
                out,
            )
        )
        return out[0]

    def execute(
        self, instance: ModelInstance, requests: Sequence[InferRequest]
    ) -> list[InferResponse] | None:
        """See `BackendHooks.model_instance_execute`."""
        assert self._answers is not None  # the model is initialised
        blocks = [self._blocks.fill(request) for request in requests]
        try:
            return self._answers.execute(instance.state, requests, blocks)
        finally:
            start: CData = self._shim.ffi.new("uint64_t[2]")
            self._shim.lib.TRITONPY_InstanceTimes(instance.state, start, start + 1)
            if start[0] and start[1]:
                instance.report_compute(start[0], start[1])

    def close(self) -> None:
        """Call `TRITONBACKEND_ModelFinalize`; what the library's threads have sent by then is answered."""
        try:
            self._shim.check(self._shim.lib.TRITONPY_ModelFinalize(self._model))
        finally:
            if self._answers is not None:
                self._answers.close()
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
    def backend_attributes(self) -> BackendAttributes:
        return BackendAttributes(execution="process")

    @hookimpl
    def backend_initialize(self, backend: Backend) -> None:
        """See `BackendHooks`.

        Raises:
            InvalidArg: the library is no backend.
            TritonError: it cannot be opened, or its `TRITONBACKEND_Initialize` fails.
        """
        shim = open_shim()
        library = open_library(self._path)
        functions = [library.function(name) or shim.ffi.NULL for name in FUNCTIONS]
        if functions[-1] == shim.ffi.NULL:
            raise InvalidArg(
                f"{self._path} does not define {FUNCTIONS[-1]}, and so is no backend, as '{backend.name}' "
                f"is to be one"
            )
        out: CData = shim.ffi.new("TRITONBACKEND_Backend **")
        shim.check(
            shim.lib.TRITONPY_BackendOpen(
                functions,
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
        return opened.completed(model.name)

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


def _opened(model: Model) -> OpenModel:
    """Initialise a model in the library; in the server, log lines and metrics are the server's own."""
    if model.parameter(_ISOLATION) == "thread":
        connect()
    return OpenModel(open_shim(), model.backend.state, model)
