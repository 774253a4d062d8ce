"""ONNX Runtime as it is installed here, and what `--backend-config` says about all models."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tritonpy.plugin import (
    Backend,
    BlockPool,
    Internal,
    TritonError,
    Unavailable,
    default_max_batch_size,
    parse_whole,
)

from tritonpy_backend_onnxruntime.values import parse_flag

_log = logging.getLogger("tritonpy.backend.onnxruntime")

WHEELS = ("onnxruntime", "onnxruntime-gpu")

_CUDA_LIBRARIES = ("libonnxruntime_providers_cuda.so", "onnxruntime_providers_cuda.dll")

_ORT_ERROR = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : ", re.ASCII)


@dataclass(frozen=True, slots=True)
class Framework:
    """The part of ONNX Runtime that all models of this process share.

    Attributes:
        ort: the module `onnxruntime`.
        default_max_batch_size: what auto-complete sets for models that can batch; 0 disables it.
        intra_op_thread_count: for models that say nothing themselves; None leaves it to the backend.
        inter_op_thread_count: likewise.
        uses_global_threads: all sessions share one pool of threads.
        pool: where batches are gathered.
    """

    ort: ModuleType
    default_max_batch_size: int
    intra_op_thread_count: int | None = None
    inter_op_thread_count: int | None = None
    uses_global_threads: bool = False
    pool: BlockPool = field(default_factory=BlockPool)


def start_framework(backend: Backend) -> Framework:
    """Import ONNX Runtime and read the settings given with `--backend-config`.

    Raises:
        Unavailable: it is not installed; says which command mends that.
        InvalidArg: a setting is not a number or not a truth value.
    """
    ort = _import_onnxruntime()
    settings = backend.settings
    intra = _whole_setting(settings, "intra_op_thread_count")
    inter = _whole_setting(settings, "inter_op_thread_count")
    key = "enable-global-threadpool"
    is_global = parse_flag(settings.get(key, "0"), f"--backend-config=onnxruntime,{key}")
    if is_global:
        _start_global_threads(ort, intra or 0, inter or 0)
    return Framework(
        ort,
        default_max_batch_size=default_max_batch_size(backend),
        intra_op_thread_count=intra,
        inter_op_thread_count=inter,
        uses_global_threads=is_global,
    )


def has_cuda() -> bool:
    """True if the installed ONNX Runtime can run models on NVIDIA's GPUs; imports nothing."""
    spec = find_spec("onnxruntime")
    folders = spec.submodule_search_locations if spec is not None else None
    return any(
        Path(folder, "capi", library).is_file() for folder in folders or () for library in _CUDA_LIBRARIES
    )


def framework_error(exc: Exception, what: str = "") -> TritonError:
    """The error that a client sees for an exception of ONNX Runtime; `what` is put in front of its text."""
    text = str(exc)
    match = _ORT_ERROR.search(text)
    if match:
        text = f"onnx runtime error {match[1]}: {text[match.end() :]}"
    else:
        text = f"onnx runtime error: {text}"
    return Internal(f"{what}{text}")


def _import_onnxruntime() -> ModuleType:
    installed = [wheel for wheel in WHEELS if _is_installed(wheel)]
    if len(installed) > 1:
        _log.warning(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; "
            "pip uninstall both, then install tritonpy-backend-onnxruntime[cpu] or [gpu]"
        )
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as exc:
        if installed:
            raise Unavailable(f"backend 'onnxruntime': {installed[0]} is installed but fails: {exc}") from exc
        raise Unavailable(
            "backend 'onnxruntime' needs ONNX Runtime, which is not installed: "
            "pip install 'tritonpy-backend-onnxruntime[cpu]', or [gpu] for NVIDIA devices"
        ) from exc


def _is_installed(wheel: str) -> bool:
    try:
        version(wheel)
    except PackageNotFoundError:
        return False
    return True


def _whole_setting(settings: Mapping[str, str], key: str) -> int | None:
    text = settings.get(key)
    return None if text is None else parse_whole(text, f"--backend-config=onnxruntime,{key}")


def _start_global_threads(ort: ModuleType, intra: int, inter: int) -> None:
    try:
        ort.set_global_thread_pool_sizes(intra, inter)
    except Exception as exc:  # there is one for the life of the process; a second backend life keeps it
        _log.info("the global thread pool stays as it is: %s", exc)
