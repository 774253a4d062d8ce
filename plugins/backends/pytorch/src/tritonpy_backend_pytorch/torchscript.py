"""TorchScript files."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tritonpy.plugin import Internal, InvalidArg

from tritonpy_backend_pytorch.argument import Argument, Form
from tritonpy_backend_pytorch.arrays import datatype_of
from tritonpy_backend_pytorch.feeding import Call, tensors_of
from tritonpy_backend_pytorch.program import ArgumentProgram
from tritonpy_backend_pytorch.results import named_values
from tritonpy_backend_pytorch.samples import read_sample
from tritonpy_backend_pytorch.tensor_info import TensorInfo

_log = logging.getLogger("tritonpy.backend.pytorch")

_FORMS = {
    "Tensor": Form.TENSOR,
    "List[str]": Form.STRINGS,
    "int": Form.INT,
    "float": Form.FLOAT,
    "bool": Form.BOOL,
}
_NESTED = re.compile(r"(Dict\[str, |List\[)+Tensor\]+")  # tuples inside of others cannot be told from lists


class TorchScript(ArgumentProgram):
    """A TorchScript module; one that was traced has its sample in the file.

    Args:
        model_name: for errors.
        arguments: of the call, in order.
        call: the callable.
        path: of the file.
        method: what `call` is in the file.
    """

    def __init__(
        self,
        model_name: str,
        arguments: Sequence[Argument],
        call: Callable[..., object],
        path: Path,
        method: str,
    ) -> None:
        super().__init__(model_name, arguments, call)
        self.sample_runs = (
            3  # two in which the executor looks at types and shapes, and one that compiles for them
        )
        self._path = path
        self._method = method

    def sample(self) -> Call | None:
        """Tensors as the model was traced with, of zeros; see `Program.sample`."""
        sample = read_sample(self._path, self._method) if self.is_shareable else []
        return (sample, {}) if sample else None

    def describe(self, batches: bool) -> tuple[Sequence[TensorInfo], Sequence[TensorInfo]] | None:
        """Types and shapes of the sample, and of what the model makes of it; see `Program.describe`.

        A trace does not say which sizes may be others. With batches the first one may; all others are those
        of
        the sample.
        """
        if not self.is_shareable:
            return None  # a call to see its outputs would leave traces in a model with a state
        sample = read_sample(self._path, self._method)
        if not sample or not all(isinstance(value, torch.Tensor) for value in sample):
            return None
        try:
            with torch.inference_mode():
                result = self.call(*sample)
        except RuntimeError as exc:
            _log.warning("model '%s' does not run with the sample in its file: %s", self._model_name, exc)
            return None
        outputs = list(named_values(result))
        if not all(isinstance(value, torch.Tensor) for _, value in outputs):
            return None
        names = [argument.name for argument in self.arguments]
        return (
            [_info(name, value, batches) for name, value in zip(names, sample, strict=False)],
            [_info(name, value, batches) for name, value in outputs],
        )


def load_torchscript(path: Path, model_name: str, method: str, device: str | None) -> TorchScript:
    """Load a TorchScript file.

    Args:
        path: of the file.
        model_name: for errors.
        method: what is called.
        device: where its tensors go; None leaves them where the file says.

    Raises:
        TritonError: it cannot be loaded, or has no such method.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and says so at every load
        try:
            module = torch.jit.load(str(path), map_location=device)
        except RuntimeError as exc:
            raise Internal(f"failed to load model '{model_name}': {exc}") from exc
    module.eval()
    if not module._c._has_method(method):
        names = ", ".join(sorted(name for name in module._c._method_names() if not name.startswith("_")))
        raise InvalidArg(
            f"parameter 'MODULE_METHOD_NAME' of model '{model_name}': the model has no method '{method}', "
            f"expected one of: {names}"
        )
    bound = module._c._get_method(method)
    program = TorchScript(model_name, list(_arguments(bound)), bound, path, method)
    program.owned = tensors_of(module)
    graph = _served_graph(bound)
    aliases = graph.alias_db()
    program.writes_inputs = any(aliases.has_writers(value) for value in list(graph.inputs())[1:])
    program.keeps_results = _writes_state(graph, aliases)
    program.is_shareable = not program.keeps_results
    return program


def _arguments(method: Any) -> Iterator[Argument]:  # Any: PyTorch declares no type for it
    for argument in method.schema.arguments[1:]:  # without `self`
        kind = argument.type
        takes_none = kind.kind() == "OptionalType"
        if takes_none:
            kind = kind.getElementType()
        yield Argument(
            argument.name,
            _form(kind),
            str(argument.type),
            has_default=argument.has_default_value(),
            takes_none=takes_none,
            is_keyword=argument.kwarg_only,
        )


def _form(kind: Any) -> Form:  # Any: likewise
    if kind.kind() == "TupleType":
        return Form.TUPLE
    if _NESTED.fullmatch(str(kind)):
        return Form.LIST if kind.kind() == "ListType" else Form.DICT
    return _FORMS.get(str(kind), Form.OTHER)


def _served_graph(method: Any) -> Any:  # Any: likewise
    """The graph of a method without what runs in training only, such as counts of batches."""
    graph = method.inlined_graph.copy()
    for node in graph.findAllNodes("prim::GetAttr"):
        if node.s("name") == "training":
            graph.setInsertPoint(node)
            node.output().replaceAllUsesWith(graph.insertConstant(False))
    torch._C._jit_pass_constant_propagation(graph)
    torch._C._jit_pass_dce(graph)
    return graph


def _writes_state(graph: Any, aliases: Any) -> bool:  # Any: likewise
    """Whether a call changes attributes of the module, or the tensors and containers that they hold."""
    for node in graph.findAllNodes("prim::SetAttr"):
        return bool(node)
    attributes = [
        output
        for node in graph.findAllNodes("prim::GetAttr")
        for output in node.outputs()
        if output.type().kind() != "ClassType"  # of which attributes are taken in turn
    ]
    written = [output for node in _nodes(graph) for output in node.outputs() if aliases.has_writers(output)]
    return any(aliases.may_contain_alias(attribute, output) for attribute in attributes for output in written)


def _nodes(block: Any) -> Iterator[Any]:  # Any: likewise
    """All nodes of a graph, those of its branches and loops included."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _info(name: str, value: torch.Tensor, batches: bool) -> TensorInfo:
    shape = tuple(value.shape)
    if batches and shape:
        shape = (-1, *shape[1:])
    symbols = tuple("batch" if size == -1 else "" for size in shape)
    return TensorInfo(name, datatype_of(value), shape, str(value.dtype), symbols=symbols)
