"""The backend `identity`: output `OUTPUT<i>` is input `INPUT<i>`; for tests and measurements.

Any datatype, any shape, any number of pairs; the bytes are handed on, never looked at. The output of an
optional input that a request leaves out is zeros in its configured shape, with 1 for what may vary.
Parameters of a model:

* `creation_delay_sec`: how long its initialization takes, in seconds.
* `execute_delay_ms`: how long every execution takes, in milliseconds.
* `instance_wise_delay_multiplier`: makes instances differ: instance `i` takes `execute_delay_ms` times this
  number times `i`, and instance 0 takes `execute_delay_ms`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tritonpy.plugin import (
    CONFIG_DATATYPES,
    DATATYPES,
    BackendAttributes,
    InferRequest,
    InferResponse,
    InvalidArg,
    JsonObject,
    Model,
    ModelInstance,
    Tensor,
    hookimpl,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a model.

    Attributes:
        pairs: names of an input and of the output that repeats it.
        zeros: datatype and shape of the outputs of optional inputs, by the input's name; without the batch.
        has_batch: the first dimension of every tensor is the batch.
        delay_ms: how long an execution takes.
        multiplier: makes the delay grow with the instance's index; 0 for equal delays.
    """

    pairs: tuple[tuple[str, str], ...]
    delay_ms: int
    multiplier: int
    zeros: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    has_batch: bool = False

    def delay_s(self, instance_index: int) -> float:
        """Seconds an execution on this instance takes."""
        factor = max(1, self.multiplier * instance_index) if self.multiplier else 1
        return self.delay_ms * factor / 1000

    def zero(self, source: str, target: str, request: InferRequest) -> Tensor:
        """The output of an optional input that the request leaves out."""
        datatype, shape = self.zeros[source]
        if self.has_batch:
            shape = (next((tensor.shape[0] for tensor in request.inputs.values()), 1), *shape)
        array = (
            np.full(shape, b"", object) if datatype == "BYTES" else np.zeros(shape, DATATYPES[datatype].numpy)
        )
        return Tensor.from_numpy(target, array, datatype)


@hookimpl
def backend_attributes() -> BackendAttributes:
    """Let several models load at once: they only wait for as long as their configurations ask for."""
    return BackendAttributes(parallel_instance_loading=True)


@hookimpl
def model_initialize(model: Model) -> None:
    """Check that inputs and outputs come in equal pairs, and read the parameters."""
    model.state = Plan(
        _pairs(model),
        _whole_number(model, "execute_delay_ms"),
        _whole_number(model, "instance_wise_delay_multiplier"),
        _zeros(model),
        model.config.get("max_batch_size", 0) > 0,
    )
    if delay_s := _whole_number(model, "creation_delay_sec"):
        time.sleep(delay_s)


@hookimpl
def model_instance_initialize(instance: ModelInstance) -> None:
    """Compute this instance's delay once."""
    instance.state = instance.model.state.delay_s(instance.index)


@hookimpl
def model_instance_execute(instance: ModelInstance, requests: Sequence[InferRequest]) -> list[InferResponse]:
    """Answer each request with its own inputs."""
    if instance.state:
        time.sleep(instance.state)
    plan = instance.model.state
    responses = []
    for request in requests:
        inputs = request.inputs
        responses.append(
            InferResponse(
                inputs[source].renamed(target) if source in inputs else plan.zero(source, target, request)
                for source, target in plan.pairs
                if request.wants(target)
            )
        )
    return responses


def _pairs(model: Model) -> tuple[tuple[str, str], ...]:
    inputs = _by_index(model, "input", "INPUT")
    outputs = _by_index(model, "output", "OUTPUT")
    if inputs.keys() != outputs.keys():
        raise InvalidArg(
            f"model '{model.name}': backend 'identity' expects an OUTPUT<i> for every INPUT<i> and the other "
            f"way round, got inputs {_names(inputs)} and outputs {_names(outputs)}"
        )
    for index, source in inputs.items():
        target = outputs[index]
        for what, expected, got in (
            ("data_type", source["data_type"], target["data_type"]),
            ("shape", _shape(source), _shape(target)),
        ):
            if expected != got:
                raise InvalidArg(
                    f"model '{model.name}': backend 'identity' expects output '{target['name']}' to have the "
                    f"{what} of input '{source['name']}', {expected}, got {got}"
                )
    return tuple((source["name"], outputs[index]["name"]) for index, source in inputs.items())


def _zeros(model: Model) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        tensor["name"]: (
            CONFIG_DATATYPES[tensor["data_type"]].name,
            tuple(max(dim, 1) if dim else 0 for dim in _shape(tensor)),
        )
        for tensor in model.config.get("input", [])
        if tensor.get("optional", False)
    }


def _by_index(model: Model, key: str, prefix: str) -> dict[str, JsonObject]:
    tensors: dict[str, JsonObject] = {}
    for tensor in model.config.get(key, []):
        name = tensor["name"]
        if not name.startswith(prefix):
            raise InvalidArg(
                f"model '{model.name}': backend 'identity' expects names of {key}s of the form "
                f"{prefix}<i>, got '{name}'"
            )
        tensors[name.removeprefix(prefix)] = tensor
    return tensors


def _names(tensors: dict[str, JsonObject]) -> list[str]:
    return [tensor["name"] for tensor in tensors.values()]


def _shape(tensor: JsonObject) -> list[int]:
    """The dims that the backend sees: those of the reshape, if there is one."""
    reshape = tensor.get("reshape")
    return [int(dim) for dim in (reshape.get("shape", []) if reshape is not None else tensor["dims"])]


def _whole_number(model: Model, key: str) -> int:
    text = model.parameter(key, "0")
    if not (text.isascii() and text.isdigit()):
        raise InvalidArg(
            f"parameter '{key}' of model '{model.name}': got '{text}', expected a whole number, 0 or more"
        )
    return int(text)
