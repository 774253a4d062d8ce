"""One version of one PyTorch model: its files, its configuration, and the modules its instances run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tritonpy.plugin import (
    BatchPlan,
    BlockPool,
    GivenTensor,
    InvalidArg,
    JsonObject,
    Model,
    ModelInstance,
    TritonError,
    Unavailable,
    Unsupported,
    check_datatype,
    check_dims,
    given_inputs,
    kept_outputs,
)

from tritonpy_backend_pytorch.complete import batch_symbols, largest_batch
from tritonpy_backend_pytorch.contents import Kind
from tritonpy_backend_pytorch.eager import load_eager
from tritonpy_backend_pytorch.files import ModelFiles, find_files
from tritonpy_backend_pytorch.names import input_names, output_names
from tritonpy_backend_pytorch.operators import open_libraries, operator_error
from tritonpy_backend_pytorch.program import Program
from tritonpy_backend_pytorch.settings import COMPILE, METHOD, Settings, cpu_instance_count, read_settings
from tritonpy_backend_pytorch.shapes import ShapeRules
from tritonpy_backend_pytorch.tensor_info import TensorInfo
from tritonpy_backend_pytorch.torchscript import load_torchscript

_log = logging.getLogger("tritonpy.backend.pytorch")


class TorchModel:
    """What the instances of a model version share; thread-safe.

    Attributes:
        settings: what the parameters say.
        program: the model as the first instance runs it; what its file says is read from it.
        plan: how batches are executed; set by `bind`.
        datatypes: of all inputs of a call, by name; set by `bind`.
        rules: sizes that are checked before each call; set by `bind`.
    """

    def __init__(self, model: Model, settings: Settings, pool: BlockPool) -> None:
        self.settings = settings
        self._name = model.name
        self._pool = pool
        self._config = model.config
        self._lock = threading.Lock()  # guards _programs and _is_first_taken
        self._programs: dict[tuple[Path, str], Program] = {}
        self._files = _first_files(model)
        _check_settings(self._files, model.name, settings)
        self._call_count = _call_count(model.config, settings)
        device = _first_device(model.config)
        self.program = load_program(self._files, model.name, settings, device, self._call_count)
        self._programs[self._files.path, str(device)] = self.program
        self._is_first_taken = False
        self.plan = BatchPlan({"name": model.name}, pool)
        self.datatypes: dict[str, str] = {}
        self.rules = ShapeRules(model.name, {})

    def fits(self, model: Model, settings: Settings) -> bool:
        """Whether this is what a fresh one with these settings would be."""
        return (
            not self.program.is_spent
            and self.settings == settings
            and self._files == _first_files(model)
            and _first_device(self._config) == _first_device(model.config)
            and self._call_count == _call_count(model.config, settings)
        )

    def bind(self, config: JsonObject) -> None:
        """Compare a complete configuration with the model.

        Raises:
            TritonError: they do not fit.
        """
        self._config = config
        if config.get("model_transaction_policy", {}).get("decoupled", False):
            raise Unsupported(
                f"model '{self._name}': a call of a PyTorch model gives one response, so it cannot be "
                "decoupled; "
                f"a Python model can call PyTorch and send many"
            )
        input_names(config)  # refuses empty lists first, as Triton does
        output_names(config)
        inputs = self.program.input_infos(config)
        outputs = self.program.output_infos(config)
        check_tensors(config, inputs, outputs)
        scalars = {name for name, info in (*inputs.items(), *outputs.items()) if not info.shape}
        self.plan = BatchPlan(config, self._pool, scalars)
        self.datatypes = {given.name: given.datatype for given in given_inputs(config)}
        self.datatypes |= {name: binding.datatype for name, binding in self.plan.inputs.items()}
        self.rules = ShapeRules(self._name, inputs)
        self.program.feeder(config, self.datatypes)  # refuses inputs that cannot be given

    def program_for(self, instance: ModelInstance) -> Program:
        """The model for an instance: on its device, of the file for that kind of device."""
        files = find_files(instance.model, instance.model_filename)
        device = device_of(instance.kind, instance.device_id)
        key = files.path, str(device)
        shares = self.settings.shares_weights
        with self._lock:
            program = self._programs.get(key)
            if program is self.program and not self._is_first_taken:
                self._is_first_taken = True
                return program
            if program is not None and (program.is_shareable if shares is None else shares):
                return program
            program = load_program(files, self._name, self.settings, device, self._call_count)
            self._programs.setdefault(key, program)
            return program


def open_model(model: Model, pool: BlockPool) -> TorchModel:
    """Load a model, or take what auto-complete has just loaded when it is still what is wanted.

    Raises:
        TritonError: a file is missing or broken, or a parameter is wrong.
    """
    settings = read_settings(model)
    opened = model.state
    if isinstance(opened, TorchModel) and opened.fits(model, settings):
        return opened
    model.state = opened = None  # before the files are loaded again
    open_libraries(model.op_libraries)
    try:
        return TorchModel(model, settings, pool)
    except TritonError as exc:
        raise operator_error(exc, model) from exc


def load_program(
    files: ModelFiles, model_name: str, settings: Settings, device: str | None, call_count: int
) -> Program:
    """Load a model by the kind of its file.

    Args:
        files: what to load.
        model_name: for errors.
        settings: of the model.
        device: where it runs; None leaves that to the model.
        call_count: how many calls of it may run at the same time.

    Raises:
        TritonError: why it cannot be loaded.
    """
    contents = files.contents
    if contents.kind is Kind.TORCHSCRIPT:
        return load_torchscript(files.path, model_name, settings.method, device)
    if contents.kind is Kind.ARCHIVE:
        # Only here: PyTorch's reader of archives imports its compiler, which takes as long as all the rest.
        if contents.compiled:
            from tritonpy_backend_pytorch.aoti import load_compiled

            return load_compiled(files.path, contents, model_name, device, call_count)
        from tritonpy_backend_pytorch.exported import load_exported

        name = "model" if "model" in contents.exported else contents.exported[0]
        return load_exported(files.path, model_name, name, device)
    return load_eager(files, model_name, settings, device)


def _check_settings(files: ModelFiles, model_name: str, settings: Settings) -> None:
    """Refuse a method that a kind of file cannot have, and name what has no effect on it.

    Raises:
        InvalidArg: an archive is to be called by another method than its only one.
    """
    kind = files.contents.kind
    if kind is Kind.ARCHIVE and settings.method != "forward":
        raise InvalidArg(
            f"parameter '{METHOD}' of model '{model_name}' is '{settings.method}', and a {kind} has the one "
            "method that was exported; expected 'forward', or no parameter"
        )
    if kind in (Kind.ARCHIVE, Kind.TORCHSCRIPT) and settings.compile_options is not None:
        _log.warning(
            "model '%s': parameter '%s' has no effect on a file of kind %s, only on modules in Python",
            model_name,
            COMPILE,
            kind,
        )


def device_of(kind: str, device_id: int) -> str | None:
    """Where the tensors of an instance are; None where the model itself decides."""
    if kind == "KIND_GPU":
        return f"cuda:{device_id}"
    return None if kind == "KIND_MODEL" else "cpu"


def check_tensors(
    config: JsonObject, inputs: Mapping[str, TensorInfo], outputs: Mapping[str, TensorInfo]
) -> None:
    """Compare the tensors of a complete configuration with what the file says of them.

    Raises:
        TritonError: they do not fit, in Triton's words.
    """
    name = config["name"]
    max_batch_size = int(config.get("max_batch_size", 0))
    for kind, infos, given in (
        ("input", inputs, given_inputs(config)),
        ("output", outputs, kept_outputs(config)),
    ):
        for tensor in config.get(kind, ()):
            if tensor["name"] in infos:
                _check_tensor(config, kind, tensor, infos[tensor["name"]])
        for kept in given:
            if kept.name in infos:
                _check_given(name, kept, infos[kept.name], max_batch_size)
    if max_batch_size > 0:
        rows = [info for info in (*inputs.values(), *outputs.values()) if info.shape]
        if len(batch_symbols(rows)) > 1:
            raise InvalidArg(
                f"model '{name}': for the model to support batching the first dimension of all inputs "
                "and outputs "
                f"must be the same; those of the model differ"
            )
        largest = largest_batch(list(inputs.values()))
        if largest is not None and max_batch_size > largest:
            raise InvalidArg(
                f"unable to load model '{name}', configuration specified max-batch {max_batch_size} "
                "but the model "
                f"only supports max-batch {largest}"
            )


def _check_tensor(config: JsonObject, kind: str, tensor: JsonObject, info: TensorInfo) -> None:
    name = config["name"]
    info = replace(info, name=tensor["name"])
    check_datatype(name, kind, tensor["data_type"], info)
    if tensor.get("allow_ragged_batch", False) and len(info.shape) != 1:
        raise InvalidArg(
            f"unable to load model '{name}', configuration expects model provides input with shape [-1]  for "
            f"ragged input '{tensor['name']}', model provides [{','.join(map(str, info.shape))}]"
        )
    cut = {target for output in config.get("batch_output", ()) for target in output["target_name"]}
    if tensor.get("allow_ragged_batch", False) or (kind == "output" and tensor["name"] in cut):
        return  # flattened, or cut by the shapes of an input
    reshape = tensor.get("reshape")
    dims = [int(dim) for dim in (tensor["dims"] if reshape is None else reshape.get("shape", ()))]
    max_batch_size = int(config.get("max_batch_size", 0))
    if info.shape or max_batch_size or any(dim != 1 for dim in dims):
        check_dims(name, info, dims, max_batch_size)


def _check_given(model_name: str, given: GivenTensor, info: TensorInfo, max_batch_size: int) -> None:
    if given.datatype != info.datatype:
        raise InvalidArg(
            f"unable to load model '{model_name}', configuration expects datatype TYPE_{given.datatype} for "
            f"{given.role} '{given.name}', model provides TYPE_{info.datatype}"
        )
    if given.role != "batch input":
        check_dims(model_name, TensorInfo(given.name, info.datatype, info.shape), given.dims, max_batch_size)


def _first_device(config: JsonObject) -> str | None:
    group: JsonObject = next(iter(config.get("instance_group", ())), {})
    gpus = group.get("gpus") or [0]
    return device_of(group.get("kind", "KIND_CPU"), int(gpus[0]))


def _call_count(config: JsonObject, settings: Settings) -> int:
    """How many calls of one module may run at the same time, if instances share it."""
    return 1 if settings.shares_weights is False else cpu_instance_count(config)


def _first_files(model: Model) -> ModelFiles:
    """The default file or, where there is none, one of those for single kinds of GPUs."""
    try:
        return find_files(model)
    except Unavailable:
        for filename in model.config.get("cc_model_filenames", {}).values():
            try:
                return find_files(model, filename)
            except Unavailable:
                continue
        raise
