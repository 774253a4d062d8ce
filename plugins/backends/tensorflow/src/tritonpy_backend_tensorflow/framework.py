"""TensorFlow as it is installed here, and what `--backend-config` says about all models."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tritonpy.plugin import (
    Backend,
    BlockPool,
    Internal,
    InvalidArg,
    TritonError,
    Unavailable,
    default_max_batch_size,
    parse_flag,
)

from tritonpy_backend_tensorflow.early_libraries import open_early

OLDEST = (2, 16)
"""The oldest release of TensorFlow that is taken."""

_PLACEMENT = "allow-soft-placement"
_FRACTION = "gpu-memory-fraction"
_VERSION = "version"


@dataclass(frozen=True, slots=True)
class Framework:
    """The part of TensorFlow that all models of this process share.

    Attributes:
        tf: the module `tensorflow`.
        default_max_batch_size: what auto-complete sets for models that can batch; 0 disables it.
        allows_soft_placement: operators that a device has not run on another one.
        gpu_memory_fraction: of a GPU's memory that is taken at once; 0 takes it as it is needed.
        pool: where batches are gathered.
    """

    tf: ModuleType
    default_max_batch_size: int
    allows_soft_placement: bool = True
    gpu_memory_fraction: float = 0.0
    pool: BlockPool = field(default_factory=BlockPool)


def start_framework(backend: Backend) -> Framework:
    """Import TensorFlow and read the settings given with `--backend-config`.

    Raises:
        Unavailable: it is not installed, or too old; says which command mends that.
        InvalidArg: a setting has a value that it cannot have.
    """
    settings = backend.settings
    version = settings.get(_VERSION, "2")
    if version != "2":
        raise InvalidArg(
            f"--backend-config=tensorflow,{_VERSION}: got '{version}', expected 2; models that TensorFlow 1 "
            "saved are served by it, too"
        )
    where = f"--backend-config=tensorflow,{_PLACEMENT}"
    return Framework(
        _import_tensorflow(),
        default_max_batch_size=default_max_batch_size(backend),
        allows_soft_placement=parse_flag(settings.get(_PLACEMENT, "true"), where),
        gpu_memory_fraction=_read_fraction(settings.get(_FRACTION, "0")),
    )


def has_gpus() -> bool:
    """True if the installed TensorFlow can run models on NVIDIA's GPUs; imports nothing."""
    spec = find_spec("tensorflow")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        try:
            text = Path(folder, "python/platform/build_info.py").read_text()
        except OSError:
            continue
        if re.search(r"""["']is_cuda_build["'] *[,:] *True""", text):
            return True
    return False


def framework_error(exc: Exception, what: str = "") -> TritonError:
    """The error that a client sees for an exception of TensorFlow; `what` is put in front of its text."""
    return Internal(f"{what}{getattr(exc, 'message', '') or exc}")


def _import_tensorflow() -> ModuleType:
    try:
        with _own_threads():
            open_early()
            tf = importlib.import_module("tensorflow")
            # What is asked for by the environment holds from the first session on.
            tf.compat.v1.Session(graph=tf.Graph()).close()
    except ImportError as exc:
        if find_spec("tensorflow") is not None:
            raise Unavailable(f"backend 'tensorflow': TensorFlow is installed but fails: {exc}") from exc
        raise Unavailable(
            "backend 'tensorflow' needs TensorFlow, which is not installed: "
            "pip install 'tritonpy-backend-tensorflow[cpu]', or [gpu] for NVIDIA devices"
        ) from exc
    found: str = tf.__version__
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise Unavailable(f"backend 'tensorflow' needs TensorFlow {oldest} or newer, {found} is installed")
    return tf


@contextmanager
def _own_threads() -> Iterator[None]:
    """Ask TensorFlow for threads of its own for each session; else the first one decides for all models.

    The variables are put back: Python models that are started later would inherit them.
    """
    wanted = {"TF_OVERRIDE_GLOBAL_THREADPOOL": "1", "TF_CPP_MIN_LOG_LEVEL": "1"}
    missing = {key: value for key, value in wanted.items() if key not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for key in missing:
            os.environ.pop(key, None)


def _read_fraction(text: str) -> float:
    try:
        fraction = float(text)
    except ValueError:
        fraction = -1.0
    if not 0.0 <= fraction <= 1.0:
        raise InvalidArg(
            f"--backend-config=tensorflow,{_FRACTION}: got '{text}', expected a number from 0 to 1"
        )
    return fraction
