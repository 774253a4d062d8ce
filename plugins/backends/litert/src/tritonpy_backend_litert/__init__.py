"""The backend `litert`: serves TensorFlow Lite models with LiteRT."""

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

from tritonpy_backend_litert.framework import start_framework
from tritonpy_backend_litert.instance import LiteInstance
from tritonpy_backend_litert.model import MODEL_FILENAME, open_model


@hookimpl
def backend_attributes() -> BackendAttributes:
    """Threads, because LiteRT releases Python's lock while it computes; two on the CPU by default."""
    return BackendAttributes(
        execution="thread",
        preferred_groups=(PreferredGroup("KIND_CPU", 2),),
        default_filename=MODEL_FILENAME,
        uses_gpus=False,
    )


@hookimpl
def backend_initialize(backend: Backend) -> None:
    """Import LiteRT.

    Raises:
        TritonError: it is not installed, or a setting has a value that it cannot have.
    """
    backend.state = start_framework(backend)


@hookimpl
def model_auto_complete_config(model: Model) -> JsonObject | None:
    """Fill in inputs, outputs and batching from the model file."""
    if model.config.get("input") and model.config.get("output"):
        return None
    model.state = open_model(model)
    signature = model.state.signature
    return complete_config(
        model.config,
        list(signature.inputs.values()),
        list(signature.outputs.values()),
        batch_size=model.backend.state.default_max_batch_size,
    )


@hookimpl
def model_initialize(model: Model) -> None:
    """Load the model file and compare it with the configuration."""
    model.state = open_model(model)
    model.state.bind(model.config)


@hookimpl
def model_finalize(model: Model) -> None:
    """Let go of the file's content."""
    model.state = None


@hookimpl
def model_instance_initialize(instance: ModelInstance) -> None:
    """Give the instance its interpreter."""
    instance.state = LiteInstance(instance)


@hookimpl
def model_instance_finalize(instance: ModelInstance) -> None:
    """Let go of the interpreter."""
    instance.state = None


@hookimpl
def model_instance_execute(instance: ModelInstance, requests: Sequence[InferRequest]) -> list[InferResponse]:
    """Run one batch in one call of the interpreter."""
    state: LiteInstance = instance.state
    return state.execute(requests)
