"""What the parameters and the optimization block of a configuration say about a model's sessions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tritonpy.plugin import (
    InvalidArg,
    JsonObject,
    Model,
    Unsupported,
    parse_flag,
    parse_whole,
    warn_of_unknown_parameters,
)

_log = logging.getLogger("tritonpy.backend.tensorflow")

INTRA, INTER = "TF_NUM_INTRA_THREADS", "TF_NUM_INTER_THREADS"
PER_SESSION = "TF_USE_PER_SESSION_THREADS"
TAG, SIGNATURE, INIT_OPS = "TF_GRAPH_TAG", "TF_SIGNATURE_DEF", "TF_INIT_OPS_FILE"
SHARE_COUNT = "MAX_SESSION_SHARE_COUNT"
KNOWN = (INTRA, INTER, PER_SESSION, TAG, SIGNATURE, INIT_OPS, SHARE_COUNT)
"""Parameters with an effect."""

_TENSORRT = ("precision_mode", "minimum_segment_size", "max_workspace_size_bytes", "max_cached_engines")
_PRECISIONS = ("FP32", "FP16")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a model's sessions; equal settings make equal sessions.

    Attributes:
        intra_thread_count: threads that one operator may use; 0 takes all cores.
        inter_thread_count: threads for operators side by side; 0 leaves it to TensorFlow.
        has_own_threads: the threads for operators side by side are the session's own.
        graph_tag: chooses one of the graphs of a SavedModel; several are separated by commas.
        signature: chooses one of the signatures of a SavedModel; "" takes the usual one.
        init_ops_file: a file that names operators to run once after loading; "" for none.
        share_count: instances on one device that run one session; None leaves it to the model.
        graph_level: `optimization { graph { level } }`; None where there is no such block.
        uses_mixed_precision: `auto_mixed_precision` for instances on GPUs.
    """

    intra_thread_count: int = 0
    inter_thread_count: int = 0
    has_own_threads: bool = False
    graph_tag: str = "serve"
    signature: str = ""
    init_ops_file: str = ""
    share_count: int | None = None
    graph_level: int | None = None
    uses_mixed_precision: bool = False


def read_settings(model: Model) -> Settings:
    """Read a model's settings; unknown parameters are named in the log.

    Raises:
        InvalidArg: a parameter has a value that it cannot have.
        Unsupported: an accelerator is asked for that TensorFlow no longer brings.
    """
    warn_of_unknown_parameters(model, KNOWN)
    intra, inter = (_thread_count(model, key) for key in (INTRA, INTER))
    own_threads = model.parameter(PER_SESSION)
    where = f"parameter '{PER_SESSION}' of model '{model.name}'"
    optimization: JsonObject = model.config.get("optimization", {})
    graph = optimization.get("graph")
    return Settings(
        intra_thread_count=intra,
        inter_thread_count=inter,
        has_own_threads=parse_flag(own_threads, where) if own_threads else bool(intra or inter),
        graph_tag=model.parameter(TAG) or "serve",
        signature=model.parameter(SIGNATURE),
        init_ops_file=model.parameter(INIT_OPS),
        share_count=_share_count(model),
        graph_level=None if graph is None else int(graph.get("level", 0)),
        uses_mixed_precision=_reads_mixed_precision(model, optimization.get("execution_accelerators", {})),
    )


def _thread_count(model: Model, key: str) -> int:
    text = model.parameter(key)
    if text.startswith("-"):
        raise InvalidArg(
            f"parameter '{key}' must be non-negative number for TensorFlow model '{model.name}', got '{text}'"
        )
    return parse_whole(text, f"parameter '{key}' of model '{model.name}'") if text else 0


def _share_count(model: Model) -> int | None:
    text = model.parameter(SHARE_COUNT)
    if not text:
        return None
    if text.startswith("-") or text == "0":
        raise InvalidArg(
            f"parameter '{SHARE_COUNT}' must be positive number for TensorFlow model '{model.name}', got "
            f"'{text}'"
        )
    return parse_whole(text, f"parameter '{SHARE_COUNT}' of model '{model.name}'", 1)


def _reads_mixed_precision(model: Model, accelerators: JsonObject) -> bool:
    """Check the accelerators of a configuration; True if mixed precision is one of them."""
    if accelerators.get("cpu_execution_accelerator"):
        raise InvalidArg("CPU Execution Accelerator is not supported in TensorFlow backend")
    wanted = accelerators.get("gpu_execution_accelerator", ())
    if not wanted:
        return False
    groups = model.config.get("instance_group", ())
    if groups and all(group.get("kind") == "KIND_CPU" for group in groups):
        _log.warning(
            "model '%s': GPU Execution Accelerator will be ignored for model instance on CPU", model.name
        )
        return False
    names = [accelerator["name"] for accelerator in wanted]
    for accelerator in wanted:
        _check_accelerator(model, accelerator["name"], accelerator.get("parameters", {}))
    if {"tensorrt", "auto_mixed_precision"} <= set(names):
        raise InvalidArg("Auto mixed precision can not be set with TFTRT optimization")
    if "tensorrt" in names:
        raise Unsupported(
            f"model '{model.name}': GPU Execution Accelerator 'tensorrt' is TF-TRT, which TensorFlow brings "
            "no longer (it was removed in release 2.18); leave it out, or convert the model to ONNX or "
            "TensorRT"
        )
    return "auto_mixed_precision" in names


def _check_accelerator(model: Model, name: str, parameters: Mapping[str, str]) -> None:
    if name == "gpu_io":
        _log.warning("model '%s': 'gpu_io' has no effect, tensors enter and leave in host memory", model.name)
    elif name == "tensorrt":
        for key, value in parameters.items():
            if key not in _TENSORRT:
                raise InvalidArg(f"unknown parameter '{key}' is provided for TensorRT Execution Accelerator")
            if key == "precision_mode" and value not in _PRECISIONS:
                raise InvalidArg(f"unsupported precision mode '{value}' is requested")
    elif name != "auto_mixed_precision":
        raise InvalidArg(f"unknown Execution Accelerator '{name}' is requested")
