"""AOTInductor packages: libraries compiled from exported programs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch._inductor.package import load_package
from torch.utils import _pytree as pytree
from tritonpy.plugin import Internal, InvalidArg, JsonObject, Unsupported

from tritonpy_backend_pytorch.contents import Contents
from tritonpy_backend_pytorch.exported import FAILURE, load_exported
from tritonpy_backend_pytorch.feeding import Feeder, TensorFeeder
from tritonpy_backend_pytorch.names import ordinal_of, output_names, place_known_inputs
from tritonpy_backend_pytorch.platforms import unfit_reason
from tritonpy_backend_pytorch.program import Program
from tritonpy_backend_pytorch.structure import CallStructure, result_names
from tritonpy_backend_pytorch.tensor_info import TensorInfo

_log = logging.getLogger("tritonpy.backend.pytorch")


class Compiled(Program):
    """An AOTInductor package; its file tells how values are nested, and nothing of their types and shapes.

    Args:
        loader: PyTorch's, which takes and gives tensors one after the other.
        model_name: for errors.
    """

    def __init__(self, loader: Any, model_name: str) -> None:  # Any: private to PyTorch
        self._model_name = model_name
        in_spec, out_spec = (pytree.treespec_loads(text) for text in loader.get_call_spec())
        self._structure = CallStructure(in_spec)
        self._result_names, self.known_outputs = result_names(out_spec)
        self._run = loader.run
        self.call = self._call
        self.failure = FAILURE

    def feeder(self, config: JsonObject, datatypes: Mapping[str, str]) -> Feeder:
        placed = place_known_inputs(config, self._structure.names)
        ordered = sorted(placed, key=placed.__getitem__)
        for name in ordered:
            if datatypes[name] == "BYTES":
                raise InvalidArg(f"model '{self._model_name}': input '{name}': AOTInductor takes no strings")
        return TensorFeeder([(name, datatypes[name]) for name in ordered], self.writes_inputs)

    def input_infos(self, config: JsonObject) -> Mapping[str, TensorInfo]:
        place_known_inputs(config, self._structure.names)
        return {}

    def output_infos(self, config: JsonObject) -> Mapping[str, TensorInfo]:
        for index, name in enumerate(output_names(config)):
            place = (self.known_outputs or {}).get(name, ordinal_of(name))
            if (index if place is None else place) >= len(self._result_names):
                raise InvalidArg(
                    f"The output {name} in the model configuration refers to an output index which "
                    "doesn't exist. "
                    f"This model has {len(self._result_names)} outputs"
                )
        return {}

    def _call(self, *tensors: torch.Tensor) -> object:
        return self._run(list(tensors))


def load_compiled(path: Path, contents: Contents, model_name: str, device: str | None) -> Program:
    """Load the AOTInductor package of a PT2 archive, with what an exported program beside it tells.

    Args:
        path: of the archive.
        contents: of it.
        model_name: for errors.
        device: where it runs; None leaves that to the package.

    Raises:
        TritonError: it cannot run here, or cannot be loaded.
    """
    name = "model" if "model" in contents.compiled else next(iter(contents.compiled))
    has_program = name in contents.exported
    metadata = contents.compiled[name]
    reason = unfit_reason(metadata)
    wanted = metadata.get("AOTI_DEVICE_KEY", "")
    if not reason and wanted and device is not None and wanted != device.partition(":")[0]:
        reason = f"it was compiled for {wanted}, and the instance is on {device}"
    if reason and not has_program:
        raise Unsupported(
            f"the AOTInductor package '{path}' of model '{model_name}' cannot run here: {reason}. "
            "Compile it on "
            f"such a machine, or put its exported program into the same archive"
        )
    if reason:
        _log.warning(
            "model '%s': the AOTInductor package cannot run here: %s; its exported program is served",
            model_name,
            reason,
        )
        return load_exported(path, model_name, name, device)
    try:
        index = int(device.partition(":")[2]) if device is not None and ":" in device else -1
        loader = load_package(str(path), model_name=name, device_index=index).loader
    except (RuntimeError, ValueError, OSError) as exc:
        raise Internal(f"failed to load model '{model_name}': {exc}") from exc
    return (
        load_exported(path, model_name, name, device, loader) if has_program else Compiled(loader, model_name)
    )
