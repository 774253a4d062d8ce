"""What the parameters of a model say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tritonpy.plugin import (
    InvalidArg,
    JsonObject,
    Model,
    parse_flag,
    parse_whole,
    warn_of_unknown_parameters,
)

ALLOW_PICKLE = "ALLOW_PICKLED_CODE"
"""The parameter that lets a model load pickles that are code."""

METHOD = "MODULE_METHOD_NAME"
"""The parameter that names what is called."""

COMPILE = "TORCH_COMPILE_OPTIONAL_PARAMETERS"
"""The parameter with which modules in Python are compiled."""

_WARM_UP = "WARM_UP_WITH_SAMPLE"
_COMPILE_KEYS = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")
_GONE = ("ENABLE_NVFUSER", "FORCE_CPU_ONLY_INPUT_TENSORS")
_FLAGS = (
    "DISABLE_OPTIMIZED_EXECUTION",
    "INFERENCE_MODE",
    "DISABLE_CUDNN",
    "ENABLE_WEIGHT_SHARING",
    "ENABLE_CACHE_CLEANING",
    "CACHE_CLEANING_ENABLED",
    "ENABLE_JIT_EXECUTOR",
    "ENABLE_JIT_PROFILING",
    "ENABLE_TENSOR_FUSER",
    _WARM_UP,
    ALLOW_PICKLE,
)
_COUNTS = ("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT", "NUM_THREADS", "NUM_INTEROP_THREADS")
KNOWN = (*_FLAGS, *_COUNTS, COMPILE, METHOD)
"""Parameters with an effect."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is loaded and run; equal settings load equal models.

    Attributes:
        uses_optimized_execution: TorchScript is optimised when it runs.
        uses_inference_mode: calls run in inference mode; otherwise only without gradients.
        uses_cudnn: calls may use cuDNN.
        shares_weights: instances on one device run one module; None leaves it to the kind of model.
        cleans_cache: unused GPU memory is given back after each call.
        jit_executor: the profiling executor of TorchScript is on; None leaves it as it is.
        jit_profiling: likewise its profiling mode.
        tensor_fuser: likewise its fuser.
        thread_count: threads that one call may use; None shares the cores among the instances.
        interop_thread_count: threads for operators side by side, one number for the whole process.
        compile_options: the options of `torch.compile`, as JSON; None leaves the model as it is.
        warms_up: instances run the sample in the model's file before they take requests.
        allows_pickle: pickles that are code are loaded.
        method: what is called.
    """

    uses_optimized_execution: bool = True
    uses_inference_mode: bool = True
    uses_cudnn: bool = True
    shares_weights: bool | None = None
    cleans_cache: bool = False
    jit_executor: bool | None = None
    jit_profiling: bool | None = None
    tensor_fuser: bool | None = None
    thread_count: int | None = None
    interop_thread_count: int | None = None
    compile_options: str | None = None
    warms_up: bool = True
    allows_pickle: bool = False
    method: str = "forward"


def read_settings(model: Model) -> Settings:
    """Read the parameters of a model; unknown ones are named in the log.

    Raises:
        InvalidArg: a parameter has a value that it cannot have.
    """
    warn_of_unknown_parameters(model, KNOWN, _GONE)
    flags: dict[str, bool | None] = {}
    for key in _FLAGS:
        text = model.parameter(key)
        flags[key] = parse_flag(text, f"parameter '{key}' of model '{model.name}'") if text else None
    counts: dict[str, int | None] = {}
    for key in _COUNTS:
        text = model.parameter(key)
        counts[key] = parse_whole(text, f"parameter '{key}' of model '{model.name}'", 1) if text else None
    compile_options = model.parameter(COMPILE)
    if compile_options:
        read_compile_options(compile_options, model.name)
    return Settings(
        uses_optimized_execution=not flags["DISABLE_OPTIMIZED_EXECUTION"],
        uses_inference_mode=flags["INFERENCE_MODE"] is not False,
        uses_cudnn=not flags["DISABLE_CUDNN"],
        shares_weights=flags["ENABLE_WEIGHT_SHARING"],
        cleans_cache=bool(flags["ENABLE_CACHE_CLEANING"] or flags["CACHE_CLEANING_ENABLED"]),
        jit_executor=flags["ENABLE_JIT_EXECUTOR"],
        jit_profiling=flags["ENABLE_JIT_PROFILING"],
        tensor_fuser=flags["ENABLE_TENSOR_FUSER"],
        thread_count=counts["INTRA_OP_THREAD_COUNT"] or counts["NUM_THREADS"],
        interop_thread_count=counts["INTER_OP_THREAD_COUNT"] or counts["NUM_INTEROP_THREADS"],
        compile_options=compile_options or None,
        warms_up=flags[_WARM_UP] is not False,
        allows_pickle=bool(flags[ALLOW_PICKLE]),
        method=model.parameter(METHOD) or "forward",
    )


def read_compile_options(text: str, model_name: str) -> dict[str, Any]:  # Any: JSON
    """Read the arguments of `torch.compile`.

    Raises:
        InvalidArg: they are no JSON object, or it has keys that `torch.compile` does not take.
    """
    where = f"parameter '{COMPILE}' of model '{model_name}'"
    try:
        options = json.loads(text)
    except ValueError as exc:
        raise InvalidArg(f"{where}: expected a JSON object: {exc}") from exc
    if not isinstance(options, dict):
        raise InvalidArg(f"{where}: expected a JSON object, got '{text}'")
    for key in options:
        if key not in _COMPILE_KEYS:
            raise InvalidArg(
                f"{where}: '{key}' is not an optional parameter for 'torch.compile'; "
                f"expected one of: {', '.join(_COMPILE_KEYS)}"
            )
    return options


def fair_thread_count(config: JsonObject, cores: int) -> int:
    """The threads of each instance when all CPU instances of the model together have so many cores."""
    return max(1, cores // cpu_instance_count(config))


def cpu_instance_count(config: JsonObject) -> int:
    """How many instances of the model are on no GPU; at least 1."""
    groups = config.get("instance_group", ())
    return max(1, sum(int(group.get("count", 1)) for group in groups if group.get("kind") != "KIND_GPU"))
