"""For people who write models and plugins for tritonpy; importing this package imports nothing heavy.

What serves functions is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tritonpy_sdk.repository import ModelRepository

if TYPE_CHECKING:
    from tritonpy_sdk.functions.config import (
        DynamicBatcher,
        ModelConfig,
        ModelWarmup,
        QueuePolicy,
        RateLimiter,
        Resource,
        TimeoutAction,
        WarmupInput,
    )
    from tritonpy_sdk.functions.context import FunctionContext
    from tritonpy_sdk.functions.decorators import (
        ConstantPadder,
        batch,
        fill_optionals,
        first_value,
        group_by_keys,
        group_by_values,
        pad_batch,
        sample,
        triton_context,
    )
    from tritonpy_sdk.functions.failures import UnrecoverableError
    from tritonpy_sdk.functions.request import Request
    from tritonpy_sdk.functions.sequences import (
        Control,
        ControlKind,
        DirectStrategy,
        InitialState,
        OldestStrategy,
        SequenceBatcher,
        State,
    )
    from tritonpy_sdk.functions.tensors import Tensor
    from tritonpy_sdk.local_model import LocalModel, Outputs, ResponseStream
    from tritonpy_sdk.remote.remote_server import RemoteServer
    from tritonpy_sdk.server import LOCAL, Server

__all__ = [
    "LOCAL",
    "ConstantPadder",
    "Control",
    "ControlKind",
    "DirectStrategy",
    "DynamicBatcher",
    "FunctionContext",
    "InitialState",
    "LocalModel",
    "ModelConfig",
    "ModelRepository",
    "ModelWarmup",
    "OldestStrategy",
    "Outputs",
    "QueuePolicy",
    "RateLimiter",
    "RemoteServer",
    "Request",
    "Resource",
    "ResponseStream",
    "SequenceBatcher",
    "Server",
    "State",
    "Tensor",
    "TimeoutAction",
    "UnrecoverableError",
    "WarmupInput",
    "batch",
    "fill_optionals",
    "first_value",
    "group_by_keys",
    "group_by_values",
    "pad_batch",
    "sample",
    "triton_context",
]

_PLACES = {
    "functions.config": (
        "DynamicBatcher ModelConfig ModelWarmup QueuePolicy RateLimiter Resource TimeoutAction WarmupInput"
    ),
    "functions.context": "FunctionContext",
    "functions.decorators": (
        "ConstantPadder batch fill_optionals first_value group_by_keys group_by_values pad_batch sample "
        "triton_context"
    ),
    "functions.failures": "UnrecoverableError",
    "functions.request": "Request",
    "functions.sequences": (
        "Control ControlKind DirectStrategy InitialState OldestStrategy SequenceBatcher State"
    ),
    "functions.tensors": "Tensor",
    "local_model": "LocalModel Outputs ResponseStream",
    "remote.remote_server": "RemoteServer",
    "server": "LOCAL Server",
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
