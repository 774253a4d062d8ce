"""The backend `onnxruntime`: serves ONNX models with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.plugin import (
    Backend,
    BackendAttributes,
    InferRequest,
    InferResponse,
    JsonObject,
    Model,
    ModelInstance,
    PreferredGroup,
    complete_config,
    hookimpl,
)

from tritonpy_backend_onnxruntime.framework import has_cuda, start_framework
from tritonpy_backend_onnxruntime.model import MODEL_FILENAME, OnnxModel, open_model
from tritonpy_backend_onnxruntime.session import InstanceSession


@hookimpl
def backend_attributes() -> BackendAttributes:
    """Threads, because ONNX Runtime releases the GIL.

    A model that configures no instances gets one on each GPU if ONNX Runtime can use them, else two on the
    CPU.
    """
    return BackendAttributes(
        execution="thread",
        preferred_groups=(PreferredGroup("KIND_GPU", 0), PreferredGroup("KIND_CPU", 2)),
        parallel_instance_loading=True,
        default_filename=MODEL_FILENAME,
        uses_gpus=has_cuda(),
    )


@hookimpl
def backend_initialize(backend: Backend) -> None:
    """Import ONNX Runtime."""
    backend.state = start_framework(backend)


@hookimpl
def model_auto_complete_config(model: Model) -> JsonObject | None:
    """Fill in inputs, outputs and batching from the model file."""
    if model.config.get("input") and model.config.get("output"):
        return None
    model.state = open_model(model)
    return complete_config(
        model.config,
        model.state.signature.inputs,
        model.state.signature.outputs,
        batch_size=model.backend.state.default_max_batch_size,
    )


@hookimpl
def model_initialize(model: Model) -> None:
    """Load the model file and compare it with the configuration."""
    model.state = open_model(model)
    model.state.bind(model.config)


@hookimpl
def model_finalize(model: Model) -> None:
    """Release the sessions that instances shared."""
    model.state = None


@hookimpl
def model_instance_initialize(instance: ModelInstance) -> None:
    """Give the instance its session."""
    loaded: OnnxModel = instance.model.state
    instance.state = InstanceSession(loaded, loaded.session_for(instance))


@hookimpl
def model_instance_finalize(instance: ModelInstance) -> None:
    """Release the session."""
    instance.state = None


@hookimpl
def model_instance_execute(instance: ModelInstance, requests: Sequence[InferRequest]) -> list[InferResponse]:
    """Run one batch in one call of the session."""
    session: InstanceSession = instance.state
    return session.execute(instance, requests)
