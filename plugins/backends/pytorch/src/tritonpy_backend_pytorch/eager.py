"""Modules as they are written: a class from `model.py` with weights, or a pickled module."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from tritonpy.plugin import Internal, InvalidArg

from tritonpy_backend_pytorch.argument import Argument, Form
from tritonpy_backend_pytorch.contents import Kind
from tritonpy_backend_pytorch.feeding import tensors_of
from tritonpy_backend_pytorch.files import ModelFiles
from tritonpy_backend_pytorch.program import ArgumentProgram
from tritonpy_backend_pytorch.settings import ALLOW_PICKLE, Settings, read_compile_options

_log = logging.getLogger("tritonpy.backend.pytorch")

_FORMS: dict[object, Form] = {
    torch.Tensor: Form.TENSOR,
    int: Form.INT,
    float: Form.FLOAT,
    bool: Form.BOOL,
    list[str]: Form.TEXTS,
    list[bytes]: Form.STRINGS,
    list[torch.Tensor]: Form.LIST,
    dict[str, torch.Tensor]: Form.DICT,
    tuple: Form.TUPLE,
    list: Form.LIST,
    dict: Form.DICT,
}


def load_eager(files: ModelFiles, model_name: str, settings: Settings, device: str | None) -> ArgumentProgram:
    """Make a module and load its weights.

    Args:
        files: source and weights, or a pickle alone.
        model_name: for errors.
        settings: of the model.
        device: where its tensors go; None leaves them where the module puts them.

    Raises:
        TritonError: the source has no module, or weights do not fit it, or a pickle is code.
    """
    if files.source is None:
        module = _unpickled(files.path, model_name, settings)
    else:
        module = _module_of(files.source, model_name)
        if files.contents.kind is not Kind.SOURCE:
            try:
                module.load_state_dict(_weights(files, model_name, settings))
            except RuntimeError as exc:
                raise Internal(f"failed to load model '{model_name}': {exc}") from exc
    if device is not None:
        module.to(device)
    module.eval()
    call = getattr(module, settings.method, None)
    if not callable(call):
        raise InvalidArg(
            f"parameter 'MODULE_METHOD_NAME' of model '{model_name}': {type(module).__name__} has no method "
            f"'{settings.method}'"
        )
    arguments = list(_arguments(call))
    takes_more = _takes_more(call)
    if settings.compile_options is not None:
        call = torch.compile(call, **read_compile_options(settings.compile_options, model_name))
    elif settings.method == "forward" and _has_hooks(module):
        call = module  # hooks are called by the module only
    program = ArgumentProgram(model_name, arguments, call, *takes_more)
    program.owned = tensors_of(module)
    program.keeps_results = True  # nobody can tell what Python code keeps
    return program


def _module_of(source: Path, model_name: str) -> torch.nn.Module:
    """Make the module that a file defines."""
    name = f"tritonpy_pytorch_{model_name}_{abs(hash(source))}"
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look there
    sys.path.insert(0, str(source.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:
        sys.modules.pop(name, None)
        raise Internal(
            f"failed to load model '{model_name}': {source.name}: {type(exc).__name__}: {exc}"
        ) from exc
    finally:
        sys.path.remove(str(source.parent))
    classes = [
        value
        for _, value in sorted(vars(module).items())
        if inspect.isclass(value) and issubclass(value, torch.nn.Module) and value is not torch.nn.Module
    ]
    own = [found for found in classes if found.__module__ == name]
    chosen = next(iter(own or classes), None)
    if chosen is None:
        raise Internal(f"Cannot find a subclass of torch.nn.Module in '{source}' of model '{model_name}'")
    if len(own or classes) > 1:
        others = ", ".join(found.__name__ for found in (own or classes)[1:])
        _log.info(
            "model '%s': %s is served; %s also has %s", model_name, chosen.__name__, source.name, others
        )
    try:
        made = chosen()
    except (Exception, SystemExit) as exc:
        raise Internal(
            f"failed to load model '{model_name}': {chosen.__name__}(): {type(exc).__name__}: {exc}"
        ) from exc
    return made


def _weights(files: ModelFiles, model_name: str, settings: Settings) -> Mapping[str, torch.Tensor]:
    if files.contents.kind is Kind.SAFETENSORS:
        try:
            from safetensors import SafetensorError  # an extra of this distribution
            from safetensors.torch import load_file
        except ImportError as exc:
            raise Internal(
                f"model '{model_name}' has its weights in safetensors: pip install 'tritonpy-backend-pytorch"
                f"[safetensors]'"
            ) from exc
        try:
            weights: Mapping[str, torch.Tensor] = load_file(files.path)
        except SafetensorError as exc:
            raise Internal(f"failed to load model '{model_name}': '{files.path}': {exc}") from exc
        return weights
    loaded = _load_pickle(files.path, model_name, settings)
    if isinstance(loaded, torch.nn.Module):
        state: Mapping[str, torch.Tensor] = loaded.state_dict()
        return state
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]  # a checkpoint of a training loop
    if not isinstance(loaded, Mapping):
        raise InvalidArg(
            f"'{files.path}' of model '{model_name}' is no state dict but {type(loaded).__name__}"
        )
    found: Mapping[str, torch.Tensor] = loaded
    return found


def _unpickled(path: Path, model_name: str, settings: Settings) -> torch.nn.Module:
    loaded = _load_pickle(path, model_name, settings)
    if isinstance(loaded, torch.nn.Module):
        return loaded
    raise InvalidArg(
        f"'{path}' of model '{model_name}' is a state dict: weights without code. Put a model.py with "
        "the class of "
        "the torch.nn.Module beside it, or export the model: "
        "torch.export.save(torch.export.export(…), 'model.pt2')"
    )


def _load_pickle(path: Path, model_name: str, settings: Settings) -> Any:  # Any: whatever was pickled
    try:
        return torch.load(path, map_location="cpu", weights_only=not settings.allows_pickle)
    except Exception as exc:  # pickles fail in any way
        if settings.allows_pickle:
            raise Internal(f"failed to load model '{model_name}': {type(exc).__name__}: {exc}") from exc
        raise InvalidArg(
            f"'{path}' of model '{model_name}' is a pickle of more than weights, and to load it runs "
            "code that it "
            f"brings ({_first_line(exc)}). Save the weights with torch.save(module.state_dict(), …) beside a "
            f"model.py, or export the model; if you trust the file, set parameter '{ALLOW_PICKLE}' to true"
        ) from exc


def _first_line(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if "GLOBAL" in line or "Unsupported" in line]
    return (lines or str(exc).splitlines() or [type(exc).__name__])[0][:200]


def _arguments(call: Any) -> Iterator[Argument]:  # Any: a method of whatever module
    try:
        hints = typing.get_type_hints(call)
    except (NameError, TypeError):  # of names that only a type checker imports
        hints = {}
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = hints.get(name, torch.Tensor)
        yield Argument(
            name,
            _form(hint),
            getattr(hint, "__name__", str(hint)),
            has_default=parameter.default is not parameter.empty,
            takes_none=type(None) in typing.get_args(hint),
            is_keyword=parameter.kind is parameter.KEYWORD_ONLY,
        )


def _takes_more(call: Any) -> tuple[bool, bool]:  # Any: likewise
    """The call takes any number of positional arguments, and any by name."""
    kinds = {parameter.kind for parameter in inspect.signature(call).parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL in kinds, inspect.Parameter.VAR_KEYWORD in kinds


def _form(hint: object) -> Form:
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    if typing.get_origin(hint) not in (list, dict, tuple) and len(options) == 1:
        hint = options[0]  # Optional[…]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, dict):
        hint = origin[args] if len(args) > 1 else origin[args[0]]
    elif origin is tuple:
        return Form.TUPLE
    return _FORMS.get(hint, Form.OTHER if origin is None and isinstance(hint, type) else Form.TENSOR)


def _has_hooks(module: Any) -> bool:  # Any: private names of PyTorch
    return bool(module._forward_hooks or module._forward_pre_hooks)
