"""The sample in the file of a traced TorchScript module: with which types and shapes it was traced."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import torch

_RECORD = "/traced_inputs.pkl"
_STORAGES = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
}


def read_sample(path: Path, method: str) -> list[object]:
    """What a method was traced with, every tensor filled with zeros; empty if it was not traced.

    The values of the sample are not read, and nothing of the file is run.
    """
    with zipfile.ZipFile(path) as archive:
        name = next((name for name in archive.namelist() if name.endswith(_RECORD)), None)
        if name is None:
            return []
        try:
            traced = _Reader(io.BytesIO(archive.read(name))).load()
        except pickle.UnpicklingError:
            return []
    sample = traced.get(method, ()) if isinstance(traced, dict) else ()
    return list(sample)


class _Reader(pickle.Unpickler):
    """Reads tensors without their memory, and nothing that is code."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("torch.jit._pickle", "restore_type_tag"):
            return _untagged
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _zeros
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a sample")

    def persistent_load(self, pid: Sequence[object]) -> object:
        return pid[1]


def _untagged(value: object, tag: str) -> object:
    return value


def _zeros(dtype: torch.dtype, offset: int, size: Sequence[int], *rest: object) -> torch.Tensor:
    return torch.zeros(tuple(size), dtype=dtype)
