"""AOTInductor packages: libraries compiled from exported programs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch.utils import _pytree as pytree
from tritonpy.plugin import Internal, InvalidArg, JsonObject, Unsupported

from tritonpy_backend_pytorch.contents import Contents
from tritonpy_backend_pytorch.feeding import Feeder, TensorFeeder
from tritonpy_backend_pytorch.names import ordinal_of, output_names, place_known_inputs
from tritonpy_backend_pytorch.outputs import describe_outputs
from tritonpy_backend_pytorch.package import FAILURE, LoadedPackage, open_package
from tritonpy_backend_pytorch.platforms import unfit_reason
from tritonpy_backend_pytorch.program import Program
from tritonpy_backend_pytorch.structure import CallStructure, result_names
from tritonpy_backend_pytorch.tensor_info import TensorInfo

_log = logging.getLogger("tritonpy.backend.pytorch")


class Compiled(Program):
    """An AOTInductor package; its file tells how values are nested, and its source what the inputs are.

    Args:
        package: loaded.
        model_name: for errors.
    """

    def __init__(self, package: LoadedPackage, model_name: str) -> None:
        self._model_name = model_name
        in_spec, out_spec = (pytree.treespec_loads(text) for text in package.call_spec)
        self._structure = CallStructure(in_spec)
        self._result_names, self.known_outputs = result_names(out_spec)
        names = sorted(self._structure.names[0], key=self._structure.names[0].__getitem__)
        self._infos = package.infos(names, model_name)
        self.call = package.callable_for(names, model_name)
        self.failure = FAILURE

    def feeder(self, config: JsonObject, datatypes: Mapping[str, str]) -> Feeder:
        placed = place_known_inputs(config, self._structure.names)
        ordered = sorted(placed, key=placed.__getitem__)
        for name in ordered:
            if datatypes[name] == "BYTES":
                raise InvalidArg(f"model '{self._model_name}': input '{name}': AOTInductor takes no strings")
        return TensorFeeder([(name, datatypes[name]) for name in ordered], self.writes_inputs)

    def describe(self, batches: bool) -> tuple[Sequence[TensorInfo], Sequence[TensorInfo]] | None:
        """What the source says of the inputs, and what two calls of different sizes show of the outputs."""
        if self._infos is None:
            return None
        self.is_spent = True  # no file says whether calls write to the weights
        try:
            return self._infos, describe_outputs(self.call, self._infos, self._result_names)
        except (RuntimeError, ValueError) as exc:
            _log.warning(
                "model '%s' does not run with zeros, so its outputs are not known: %s", self._model_name, exc
            )
            return None

    def input_infos(self, config: JsonObject) -> Mapping[str, TensorInfo]:
        placed = place_known_inputs(config, self._structure.names)
        return {} if self._infos is None else {name: self._infos[index] for name, index in placed.items()}

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


def load_compiled(
    path: Path, contents: Contents, model_name: str, device: str | None, call_count: int
) -> Program:
    """Load the AOTInductor package of a PT2 archive, with what an exported program beside it tells.

    Args:
        path: of the archive.
        contents: of it.
        model_name: for errors.
        device: where it runs; None leaves that to the package.
        call_count: how many calls may run at the same time.

    Raises:
        TritonError: it cannot run here, or cannot be loaded.
    """
    name = contents.package_name
    has_program = name in contents.exported
    files = contents.compiled[name]
    reason = unfit_reason(files.metadata)
    if not reason and files.device and device is not None and files.device != device.partition(":")[0]:
        reason = f"it was compiled for {files.device}, and the instance is on {device}"
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
        return _program(path, model_name, name, device)
    try:
        package = open_package(path, name, files, model_name, device, call_count)
    except (RuntimeError, ValueError, OSError) as exc:
        raise Internal(f"failed to load model '{model_name}': {exc}") from exc
    if has_program:
        return _program(path, model_name, name, device, package)
    return Compiled(package, model_name)


def _program(
    path: Path, model_name: str, name: str, device: str | None, package: LoadedPackage | None = None
) -> Program:
    from tritonpy_backend_pytorch.exported import load_exported  # only here: it imports PyTorch's compiler

    return load_exported(path, model_name, name, device, package)
