"""TorchScript files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tritonpy.plugin import Internal, InvalidArg

from tritonpy_backend_pytorch.argument import Argument, Form
from tritonpy_backend_pytorch.feeding import tensors_of
from tritonpy_backend_pytorch.program import ArgumentProgram

_FORMS = {
    "Tensor": Form.TENSOR,
    "List[str]": Form.STRINGS,
    "int": Form.INT,
    "float": Form.FLOAT,
    "bool": Form.BOOL,
    "List[Tensor]": Form.LIST,
    "Dict[str, Tensor]": Form.DICT,
}


def load_torchscript(path: Path, model_name: str, method: str, device: str | None) -> ArgumentProgram:
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
    program = ArgumentProgram(model_name, list(_arguments(bound)), bound)
    program.owned = tensors_of(module)
    graph = bound.inlined_graph
    aliases = graph.alias_db()
    program.writes_inputs = any(aliases.has_writers(value) for value in list(graph.inputs())[1:])
    program.is_shareable = not _writes_state(graph, aliases)
    return program


def _arguments(method: Any) -> Iterator[Argument]:  # Any: PyTorch declares no type for it
    for argument in method.schema.arguments[1:]:  # without `self`
        kind = argument.type
        if kind.kind() == "OptionalType":
            kind = kind.getElementType()
        text = str(kind)
        form = Form.TUPLE if kind.kind() == "TupleType" else _FORMS.get(text, Form.OTHER)
        yield Argument(
            argument.name, form, str(argument.type), argument.has_default_value(), argument.kwarg_only
        )


def _writes_state(graph: Any, aliases: Any) -> bool:  # Any: likewise
    """Whether a call changes attributes of the module, or tensors that they hold."""
    for node in graph.findAllNodes("prim::SetAttr"):
        return bool(node)
    return any(
        aliases.has_writers(output)
        for node in graph.findAllNodes("prim::GetAttr")
        for output in node.outputs()
        if str(output.type()) == "Tensor"
    )
