"""The backend `pytorch`: serves PyTorch models."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tritonpy.plugin import (
    Backend,
    BackendAttributes,
    BlockPool,
    InferRequest,
    InferResponse,
    JsonObject,
    Model,
    ModelInstance,
    PreferredGroup,
    TritonError,
    Unavailable,
    backend_op_libraries,
    default_max_batch_size,
    hookimpl,
)

from tritonpy_backend_pytorch.contents import Kind
from tritonpy_backend_pytorch.files import MODEL_FILENAME, ModelFiles, find_files
from tritonpy_backend_pytorch.library import gives_handles
from tritonpy_backend_pytorch.package_source import read_inputs
from tritonpy_backend_pytorch.platforms import unfit_reason

OLDEST = (2, 13)
"""The oldest release of PyTorch that models are loaded with: the layout of its archives changes."""

if TYPE_CHECKING:  # a server whose models all run in workers never imports PyTorch itself
    from tritonpy_backend_pytorch.instance import TorchInstance


@hookimpl
def backend_attributes() -> BackendAttributes:
    """Threads, because PyTorch releases the interpreter's lock in its operators."""
    return BackendAttributes(
        execution="thread",
        preferred_groups=(PreferredGroup("KIND_GPU", 1), PreferredGroup("KIND_CPU", 1)),
        default_filename=MODEL_FILENAME,
        uses_gpus=_has_cuda(),
        op_framework="pytorch",
    )


@hookimpl
def backend_initialize(backend: Backend) -> None:
    """Import PyTorch, and open the libraries of operators for all models.

    Raises:
        Unavailable: it is not installed; says which command mends that.
        TritonError: a library cannot be opened.
    """
    try:
        import_module("torch")
    except ImportError as exc:
        if find_spec("torch") is not None:
            raise Unavailable(f"backend 'pytorch': PyTorch is installed but fails: {exc}") from exc
        raise Unavailable(
            "backend 'pytorch' needs PyTorch, which is not installed: pip install torch, or for the "
            "CPU alone "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        ) from exc
    found = version("torch")
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise Unavailable(f"backend 'pytorch' needs PyTorch {oldest} or newer, {found} is installed")
    if libraries := backend_op_libraries(backend):
        from tritonpy_backend_pytorch.operators import open_libraries

        open_libraries(libraries)
    backend.state = BlockPool()


@hookimpl
def model_execution(model: Model) -> Literal["thread", "process"] | None:
    """Processes for models that are Python code, and for those whose calls hold the interpreter's lock.

    And for models with operators of their own: PyTorch ends a process in which one is registered twice. And
    for models on GPUs: an error of a kernel takes the GPU away from the process for good.
    """
    if model.op_libraries or _may_use_gpu(model):
        return "process"
    try:
        files = find_files(model)
    except TritonError:
        return None  # said when the model is loaded
    if files.source is not None or files.contents.kind is Kind.PICKLE:
        return "process"
    return "process" if files.contents.compiled and _needs_process(files) else None


@hookimpl
def model_auto_complete_config(model: Model) -> JsonObject | None:
    """Fill in inputs, outputs and batching from the model's file."""
    if model.config.get("input") and model.config.get("output"):
        return None
    from tritonpy_backend_pytorch.complete import complete_config
    from tritonpy_backend_pytorch.model import open_model

    model.state = open_model(model, model.backend.state)
    return complete_config(model.config, model.state.program, default_max_batch_size(model.backend))


@hookimpl
def model_initialize(model: Model) -> None:
    """Load the model and compare it with the configuration."""
    from tritonpy_backend_pytorch.model import open_model

    model.state = open_model(model, model.backend.state)
    model.state.bind(model.config)


@hookimpl
def model_finalize(model: Model) -> None:
    """Let go of what instances shared."""
    model.state = None


@hookimpl
def model_instance_initialize(instance: ModelInstance) -> None:
    """Give the instance its module, and its thread the modes of PyTorch."""
    from tritonpy_backend_pytorch.instance import TorchInstance

    instance.state = TorchInstance(instance.model.state, instance)


@hookimpl
def model_instance_finalize(instance: ModelInstance) -> None:
    """Let go of the module."""
    instance.state.close()
    instance.state = None


@hookimpl
def model_instance_ready(instance: ModelInstance) -> bool:
    """True unless a call has cost the process its GPU."""
    return instance.state.lost is None


@hookimpl
def model_instance_execute(instance: ModelInstance, requests: Sequence[InferRequest]) -> list[InferResponse]:
    """Run one batch in one call of the module."""
    state: TorchInstance = instance.state
    return state.execute(requests)


def _needs_process(files: ModelFiles) -> bool:
    """An AOTInductor package would hold the interpreter's lock in its calls, or takes what nothing checks."""
    name = files.contents.package_name
    package = files.contents.compiled[name]
    has_program = name in files.contents.exported
    if has_program and unfit_reason(package.metadata):
        return False  # the program runs
    if not (package.is_called_directly and gives_handles()):
        return True
    return not has_program and read_inputs(files.path, package) is None


def _may_use_gpu(model: Model) -> bool:
    kinds = {group.get("kind") for group in model.config.get("instance_group", ())}
    return "KIND_GPU" in kinds or ("KIND_MODEL" in kinds and _has_cuda())


def _has_cuda() -> bool:
    """Whether the installed PyTorch brings what runs models on NVIDIA's GPUs; imports nothing."""
    spec = find_spec("torch")
    folders = spec.submodule_search_locations if spec is not None else None
    return any(Path(folder, "lib", "libtorch_cuda.so").is_file() for folder in folders or ())
