"""Exported programs: files of `torch.export.save`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.export.pt2_archive import _package as archives
from torch.utils import _pytree as pytree
from tritonpy.plugin import Internal, InvalidArg, JsonObject, Unsupported

from tritonpy_backend_pytorch.arrays import DATATYPE_NAMES
from tritonpy_backend_pytorch.feeding import Call, Feeder, TensorFeeder, TreeFeeder
from tritonpy_backend_pytorch.mutations import written_placeholders
from tritonpy_backend_pytorch.names import ordinal_of, output_names, place_known_inputs
from tritonpy_backend_pytorch.package import FAILURE, LoadedPackage
from tritonpy_backend_pytorch.program import Program
from tritonpy_backend_pytorch.shapes import read_size, smallest_size
from tritonpy_backend_pytorch.structure import CallStructure, result_names
from tritonpy_backend_pytorch.tensor_info import TensorInfo

ExportedProgram = Any  # Any: PyTorch is not checked here

_MOST = 2**31 - 1  # a larger bound is none
_MISSING_OPERATOR = re.compile(r"failed to resolve torch\.ops\.(\w+)\.(\w+)")


class Exported(Program):
    """An exported program, whose file says everything about its inputs and outputs.

    Args:
        program: as loaded.
        model_name: for errors.
        package: the AOTInductor package that was made of it, which then runs in its place.
    """

    def __init__(
        self, program: ExportedProgram, model_name: str, package: LoadedPackage | None = None
    ) -> None:
        self._model_name = model_name
        signature = program.module_call_graph[0].signature
        self.structure = CallStructure(program.call_spec.in_spec, signature.forward_arg_names)
        names = sorted(self.structure.names[0], key=self.structure.names[0].__getitem__)
        values = {node.name: node.meta.get("val") for node in program.graph.nodes}
        user_inputs = [
            spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT
        ]
        if len(user_inputs) != len(names):
            raise Unsupported(
                f"model '{model_name}': the exported program has {len(user_inputs)} inputs at "
                f"{len(names)} places; "
                f"values of classes of its own cannot be given to it"
            )
        self._constants: list[object] = [
            arg.value if isinstance(arg, ConstantArgument) else None for arg in user_inputs
        ]
        ranges = {str(symbol): bounds for symbol, bounds in program.range_constraints.items()}
        graph_names = {arg.name: index for index, arg in enumerate(user_inputs)}
        self.infos: list[TensorInfo | None] = [
            None if isinstance(arg, ConstantArgument) else _info(name, values[arg.name], ranges, model_name)
            for name, arg in zip(names, user_inputs, strict=True)
        ]
        # Inputs that became constants when the model was exported are no inputs any more.
        self._places = [
            {name: index for name, index in known.items() if self.infos[index] is not None}
            for known in (*self.structure.names, graph_names)
        ]
        self.inputs = tuple(info for info in self.infos if info is not None)
        self._result_names, self.known_outputs = result_names(program.call_spec.out_spec)
        user_outputs = [
            spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT
        ]
        self._nothing = {
            index
            for index, arg in enumerate(user_outputs)
            if isinstance(arg, ConstantArgument) and arg.value is None
        }
        self._output_infos: list[TensorInfo | None] = [
            None if isinstance(arg, ConstantArgument) else _info(name, values[arg.name], ranges, model_name)
            for name, arg in zip(self._result_names, user_outputs, strict=True)
        ]
        self.outputs = tuple(info for info in self._output_infos if info is not None)
        self.owned = frozenset(
            tensor.untyped_storage().data_ptr()
            for tensor in (*program.state_dict.values(), *program.constants.values())
            if isinstance(tensor, torch.Tensor)
        ) - {0}
        written = written_placeholders(program.graph)
        mutated = program.graph_signature.user_inputs_to_mutate
        self.writes_inputs = bool(mutated) or not written.isdisjoint(graph_names)
        self.is_shareable = written <= graph_names.keys() and not program.graph_signature.buffers_to_mutate
        # The module checks every shape again at every call, which is most of what a small one takes; what the
        # server has not checked is checked by `ShapeRules`, which knows only sizes that grow with others.
        is_plain = all(read_size(symbol) for info in self.inputs for symbol in info.symbols if symbol)
        self._is_compiled = package is not None
        self._sample = program.example_inputs if self.is_shareable else None
        if package is not None:
            names = [info.name for info in self.inputs]
            package.infos(names, model_name)  # refuses others than it takes
            self.call = package.callable_for(names, model_name)
            self.failure = FAILURE
            return
        module = program.module(check_guards=not is_plain)
        self.call = module.forward if is_plain else module

    def feeder(self, config: JsonObject, datatypes: Mapping[str, str]) -> Feeder:
        placed = place_known_inputs(config, self._dense_places())
        slots = [index for index, info in enumerate(self.infos) if info is not None]
        by_slot = {slots[index]: name for name, index in placed.items()}
        if self._is_compiled or (self.structure.is_flat and len(slots) == self.structure.count):
            return TensorFeeder(
                [(by_slot[index], datatypes[by_slot[index]]) for index in slots], self.writes_inputs
            )
        return TreeFeeder(
            [(index, name, datatypes[name]) for index, name in by_slot.items()],
            self._constants,
            self.structure.build,
            self.writes_inputs,
        )

    def sample(self) -> Call | None:
        """The arguments that the program was exported with; see `Program.sample`."""
        if self._sample is None:
            return None
        if self._is_compiled:
            leaves = pytree.tree_leaves(self._sample)
            return [leaf for leaf, info in zip(leaves, self.infos, strict=True) if info is not None], {}
        args, kwargs = self._sample
        return args, kwargs

    def input_infos(self, config: JsonObject) -> Mapping[str, TensorInfo]:
        assert self.inputs is not None
        return {
            name: self.inputs[index]
            for name, index in place_known_inputs(config, self._dense_places()).items()
        }

    def output_infos(self, config: JsonObject) -> Mapping[str, TensorInfo]:
        names = output_names(config)
        known = self.known_outputs or {}
        indices: Sequence[int | None] = range(len(names))
        if all(name in known for name in names):
            indices = [known[name] for name in names]
        elif None not in (ordinals := [ordinal_of(name) for name in names]):
            indices = ordinals
        elif set(names) & set(known):
            odd = next(name for name in names if name not in known)
            raise InvalidArg(
                f"unable to load model '{self._model_name}': unexpected inference output '{odd}', "
                "allowed outputs "
                f"are: {', '.join(self._result_names)}"
            )
        found: dict[str, TensorInfo] = {}
        for name, index in zip(names, indices, strict=True):
            if index is None or index >= len(self._output_infos):
                raise InvalidArg(
                    f"The output {name} in the model configuration refers to an output index which "
                    "doesn't exist. "
                    f"This model has {len(self._output_infos)} outputs"
                )
            info = self._output_infos[index]
            if index in self._nothing:
                raise InvalidArg(
                    f"output '{name}' of model '{self._model_name}' is None in every result of the model"
                )
            if info is not None:
                found[name] = info
        return found

    def _dense_places(self) -> list[Mapping[str, int]]:
        """Places counted without the constants, as `inputs` counts them."""
        slots = [index for index, info in enumerate(self.infos) if info is not None]
        return [
            {name: slots.index(index) for name, index in known.items() if index in slots}
            for known in self._places
        ]


def load_exported(
    path: Path,
    model_name: str,
    name: str,
    device: str | None,
    package: LoadedPackage | None = None,
) -> Exported:
    """Load one exported program of a PT2 archive.

    Args:
        path: of the archive.
        model_name: for errors.
        name: of the program in the archive.
        device: where its tensors go; None leaves them where the file says.
        package: the AOTInductor package that runs in its place.

    Raises:
        TritonError: it cannot be loaded.
    """
    try:
        program = _read_program(path, name)
        if device is not None and device != "cpu":
            from torch.export.passes import move_to_device_pass  # imported by nothing before

            program = move_to_device_pass(program, device)
        return Exported(program, model_name, package)
    except (RuntimeError, ValueError, TypeError, LookupError, AssertionError) as exc:
        missing = _MISSING_OPERATOR.search(str(exc))
        reason = f"its operator '{missing[1]}::{missing[2]}' is not known to PyTorch" if missing else exc
        raise Internal(f"failed to load model '{model_name}': {reason}") from exc


def _read_program(path: Path, name: str) -> ExportedProgram:
    """Read one program of an archive, and open none of the libraries beside it."""
    with archives.PT2ArchiveReader(str(path)) as reader:
        return archives._load_exported_programs(reader, reader.get_file_names(), None)[name]


def _info(
    name: str, value: Any, ranges: Mapping[str, Any], model_name: str
) -> TensorInfo:  # Any: a fake tensor
    if not isinstance(value, torch.Tensor):
        kind = "INT64" if isinstance(value, torch.SymInt | int) else "FP32"
        return TensorInfo(name, kind, (), type(value).__name__)
    sizes = list(_sizes(value.shape, ranges))
    datatype = DATATYPE_NAMES.get(value.dtype, "")
    return TensorInfo(
        name,
        datatype,
        tuple(size for size, _, _ in sizes),
        str(value.dtype),
        tuple(bounds for _, bounds, _ in sizes),
        tuple(symbol for _, _, symbol in sizes),
    )


def _sizes(
    shape: Any, ranges: Mapping[str, Any]
) -> Iterator[tuple[int, tuple[int, int], str]]:  # Any: symbolic
    for size in shape:
        if isinstance(size, int):
            yield size, (size, size), ""
            continue
        symbol = str(size.node.expr)
        bounds = ranges.get(symbol)
        if bounds is None:
            yield -1, (0, -1), symbol
            continue
        upper = bounds.upper
        largest = int(upper) if upper.is_finite and upper <= _MOST else -1
        yield -1, (smallest_size(symbol, int(bounds.lower)), largest), symbol
