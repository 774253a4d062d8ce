"""The backend `tensorflow`: serves TensorFlow models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tritonpy.plugin import (
    Backend,
    BackendAttributes,
    InferRequest,
    InferResponse,
    JsonObject,
    Model,
    ModelInstance,
    PreferredGroup,
    TritonError,
    WorkerCommand,
    backend_op_libraries,
    hookimpl,
)

from tritonpy_backend_tensorflow.environment import ENVIRONMENT, environment_command, warn_of_thread
from tritonpy_backend_tensorflow.framework import has_gpus, start_framework

if TYPE_CHECKING:  # a server whose models all run in workers never imports TensorFlow itself
    from tritonpy_backend_tensorflow.instance import TensorFlowInstance


@hookimpl
def backend_attributes() -> BackendAttributes:
    """Threads, because TensorFlow releases the interpreter's lock while it computes.

    A model that configures no instances gets one on each GPU if TensorFlow can use them, else two on the CPU.
    """
    return BackendAttributes(
        execution="thread",
        preferred_groups=(PreferredGroup("KIND_GPU", 1), PreferredGroup("KIND_CPU", 2)),
        uses_gpus=has_gpus(),
        op_framework="tensorflow",
    )


@hookimpl
def backend_initialize(backend: Backend) -> None:
    """Import TensorFlow, read the settings for all models, and open their libraries of operators.

    Raises:
        TritonError: it is not installed, a setting has a value that it cannot have, or a library cannot be
            opened.
    """
    framework = start_framework(backend)
    if libraries := backend_op_libraries(backend):
        from tritonpy_backend_tensorflow.operators import open_libraries

        open_libraries(libraries, framework.tf)
    backend.state = framework


@hookimpl
def model_execution(model: Model) -> Literal["thread", "process"] | None:
    """Processes for models with operators or an environment of their own.

    A library of operators is never unloaded, and may crash.
    """
    return "process" if model.op_libraries or model.parameter(ENVIRONMENT) else None


@hookimpl
def worker_command(model: Model) -> WorkerCommand | None:
    """The interpreter of the environment that the model names, with a TensorFlow of its own.

    Raises:
        InvalidArg: no model can run there; says what is missing.
    """
    return environment_command(model)


@hookimpl
def model_auto_complete_config(model: Model) -> JsonObject | None:
    """Fill in inputs, outputs and batching from the model's files."""
    from tritonpy_backend_tensorflow.complete import complete_config, is_complete
    from tritonpy_backend_tensorflow.model import open_model

    if is_complete(model.config):
        return None
    model.state = loaded = open_model(model)
    try:
        return complete_config(model.config, loaded.graph, model.backend.state.default_max_batch_size)
    except TritonError:
        model.state = None
        loaded.close()
        raise


@hookimpl
def model_initialize(model: Model) -> None:
    """Load the model and compare it with the configuration."""
    from tritonpy_backend_tensorflow.model import open_model

    warn_of_thread(model)
    model.state = loaded = open_model(model)
    try:
        loaded.bind(model.config)
    except TritonError:
        loaded.close()
        raise


@hookimpl
def model_finalize(model: Model) -> None:
    """Close the sessions of the model."""
    model.state.close()
    model.state = None


@hookimpl
def model_instance_initialize(instance: ModelInstance) -> None:
    """Give the instance its session."""
    from tritonpy_backend_tensorflow.instance import TensorFlowInstance

    instance.state = TensorFlowInstance(instance)


@hookimpl
def model_instance_finalize(instance: ModelInstance) -> None:
    """Let go of the session."""
    instance.state.close()
    instance.state = None


@hookimpl
def model_instance_execute(instance: ModelInstance, requests: Sequence[InferRequest]) -> list[InferResponse]:
    """Run one batch in one call of the session."""
    state: TensorFlowInstance = instance.state
    return state.execute(requests)
