"""An AOTInductor package that is loaded and can be called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tritonpy.plugin import Unsupported

from tritonpy_backend_pytorch.arrays import DATATYPE_NAMES
from tritonpy_backend_pytorch.contents import PackageFiles
from tritonpy_backend_pytorch.library import Library
from tritonpy_backend_pytorch.package_source import PackageInput, read_inputs
from tritonpy_backend_pytorch.tensor_info import TensorInfo

_log = logging.getLogger("tritonpy.backend.pytorch")

FAILURE = 'Inductor model instance "{instance}" execution failure: '
"""How the text of an error of a package's call begins."""

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True, slots=True)
class LoadedPackage:
    """A package and what its files say of it.

    Attributes:
        run: calls it with its flattened inputs, and gives its flattened outputs; checks nothing.
        call_spec: how arguments and results are nested, as JSON.
        inputs: of the call, in order; None where the package has no source that tells.
    """

    run: Callable[[list[torch.Tensor]], list[torch.Tensor]]
    call_spec: Sequence[str]
    inputs: Sequence[PackageInput] | None

    def infos(self, names: Sequence[str], model_name: str) -> Sequence[TensorInfo] | None:
        """What the source says of the inputs, by these names.

        Raises:
            Unsupported: they are others than the package takes.
        """
        if self.inputs is None:
            return None
        if len(self.inputs) != len(names):
            raise Unsupported(
                f"model '{model_name}': the AOTInductor package takes {len(self.inputs)} tensors for the "
                f"{len(names)} values of its call ({', '.join(names)}); numbers cannot be given to it"
            )
        return [_info(name, each) for name, each in zip(names, self.inputs, strict=True)]

    def callable_for(self, names: Sequence[str], model_name: str) -> Callable[..., object]:
        """Calls the package with one tensor after the other, each laid out in memory as it was compiled for.

        Raises:
            Unsupported: a layout cannot be made.
        """
        run = self.run
        orders = [
            _memory_order(name, each, model_name)
            for name, each in zip(names, self.inputs or (), strict=False)
        ]
        if not any(orders):
            return lambda *tensors: run(list(tensors))
        return lambda *tensors: run(
            [
                tensor if order is None else tensor.contiguous(memory_format=order)
                for tensor, order in zip(tensors, orders, strict=True)
            ]
        )


def open_package(
    path: Path, name: str, files: PackageFiles, model_name: str, device: str | None, call_count: int
) -> LoadedPackage:
    """Load a package of a PT2 archive.

    Args:
        path: of the archive.
        name: of the package in it.
        files: of the package.
        model_name: for the log.
        device: where it runs; None leaves that to the package.
        call_count: how many calls may run at the same time; they share the weights.

    Raises:
        RuntimeError, ValueError, OSError: it cannot be loaded.
    """
    inputs = read_inputs(path, files)
    if files.is_called_directly:
        try:
            library = Library(path, files.library, call_count)
        except (RuntimeError, OSError, AttributeError, ImportError) as exc:
            _log.warning(
                "model '%s': the library of its AOTInductor package cannot be called by itself (%s); "
                "PyTorch's loader calls it, and holds the interpreter's lock meanwhile. Parameter "
                "TRITONPY_ISOLATION: process keeps the server answering",
                model_name,
                exc,
            )
        else:
            return LoadedPackage(library.run, library.call_spec, inputs)
    from torch._inductor.package import load_package  # only here: it imports PyTorch's compiler

    index = int(device.partition(":")[2]) if device is not None and ":" in device else -1
    loader: Any = load_package(  # Any: private to PyTorch
        str(path), model_name=name, num_runners=call_count, device_index=index
    ).loader
    return LoadedPackage(loader.run, loader.get_call_spec(), inputs)


def _info(name: str, found: PackageInput) -> TensorInfo:
    dtype = getattr(torch, found.dtype, None)
    is_fixed = [size.isdigit() for size in found.sizes]
    return TensorInfo(
        name,
        DATATYPE_NAMES.get(dtype, "") if isinstance(dtype, torch.dtype) else "",
        tuple(int(size) if fixed else -1 for size, fixed in zip(found.sizes, is_fixed, strict=True)),
        f"torch.{found.dtype}",
        tuple(
            (int(size), int(size)) if fixed else bounds
            for size, fixed, bounds in zip(found.sizes, is_fixed, found.bounds, strict=True)
        ),
        tuple("" if fixed else size for size, fixed in zip(found.sizes, is_fixed, strict=True)),
    )


def _memory_order(name: str, found: PackageInput, model_name: str) -> torch.memory_format | None:
    """The order of memory that an input has to be in, if it is not that of the protocol.

    Compiled code takes the strides of its sample for granted.
    """
    strides, rank = found.strides, len(found.sizes)
    if rank == 0 or strides[-1] in ("1", "") or found.sizes[-1] == "1":
        return None
    if rank in _CHANNELS_LAST and strides[1] == "1":
        return _CHANNELS_LAST[rank]
    raise Unsupported(
        f"model '{model_name}': the AOTInductor package was compiled for input '{name}' of strides "
        f"[{', '.join(strides)}]; compile it with a contiguous sample, or one in channels_last"
    )
