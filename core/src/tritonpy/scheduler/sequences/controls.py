"""The inputs by which a sequence batcher tells a model where in which sequence a request stands."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from tritonpy.datatypes import CONFIG_DATATYPES, DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest, NullRequest
from tritonpy.tensor import Tensor

_FALSE_TRUE = {"int32_false_true": np.int32, "fp32_false_true": np.float32, "bool_false_true": np.bool_}
_MOST_64 = 0xFFFF_FFFF_FFFF_FFFF


class ControlInputs:
    """Makes the control tensors of one model, each of them optional.

    Args:
        config: the model's configuration as a plain dict.
    """

    def __init__(self, config: JsonObject) -> None:
        self._model_name: str = config["name"]
        self._shape = (1, 1) if config.get("max_batch_size", 0) > 0 else (1,)
        pairs = list(self._read_pairs(config))
        self._by_flags = [
            {name: pair[_is_true(kind, flags)] for kind, name, pair in pairs} for flags in range(4)
        ]
        self._of_null = {name: pair[False] for _, name, pair in pairs}
        self._correlation_id = ""
        self._datatype = ""
        for name, control in _controls(config):
            if control["kind"] == "CONTROL_SEQUENCE_CORRID":
                self._correlation_id = name
                self._datatype = CONFIG_DATATYPES[control["data_type"]].name
        if self._correlation_id:
            zero = "" if self._datatype == "BYTES" else 0
            self._of_null[self._correlation_id] = self._correlation_id_tensor(zero)
        self._null_of: tuple[object, ...] = ()
        self._null_inputs: dict[str, Tensor] = {}

    def check(self, request: InferRequest) -> None:
        """Refuse a correlation id that does not fit the control's datatype.

        Raises:
            InvalidArg: it is text, and the model takes numbers; or the other way round.
        """
        is_text = isinstance(request.correlation_id, str)
        if self._correlation_id and is_text != (self._datatype == "BYTES"):
            raise InvalidArg(
                f"{request.label}sequence batching control '{self._correlation_id}' data-type is "
                f"'{'BYTES' if is_text else 'UINT64'}', but model '{self._model_name}' expects "
                f"'{self._datatype}'"
            )

    def attach(self, request: InferRequest) -> None:
        """Add the control tensors to a request, in a new dict of inputs: the old one may still be read."""
        inputs = request.inputs | self._by_flags[request.flags & (SEQUENCE_START | SEQUENCE_END)]
        if self._correlation_id:
            inputs[self._correlation_id] = self._correlation_id_tensor(request.correlation_id)
        request.inputs = inputs

    def null(self, like: InferRequest) -> NullRequest:
        """A request that only fills a slot: inputs as `like` has them but zeros, and READY false."""
        kind = tuple([(tensor.name, tensor.datatype, tensor.shape) for tensor in like.inputs.values()])
        if kind != self._null_of:
            self._null_of = kind
            self._null_inputs = {name: _zeros(name, datatype, shape) for name, datatype, shape in kind}
            self._null_inputs |= self._of_null
        return NullRequest(like.model_name, dict(self._null_inputs))

    def _read_pairs(self, config: JsonObject) -> Iterator[tuple[str, str, tuple[Tensor, Tensor]]]:
        """Kind, name, and the tensors for false and for true of each control that is a flag."""
        for name, control in _controls(config):
            for field, dtype in _FALSE_TRUE.items():
                values = control.get(field)
                if values:
                    false, true = (
                        Tensor.from_numpy(name, np.full(self._shape, value, dtype)) for value in values
                    )
                    yield control["kind"], name, (false, true)

    def _correlation_id_tensor(self, correlation_id: int | str) -> Tensor:
        name, datatype = self._correlation_id, self._datatype
        if isinstance(correlation_id, str):
            array = np.full(self._shape, correlation_id.encode(), np.object_)
            return Tensor.from_numpy(name, array)
        # A narrower type gets the lower bits.
        byte_size = DATATYPES[datatype].byte_size
        bits = (correlation_id & _MOST_64).to_bytes(8, "little")[:byte_size]
        return Tensor(name, datatype, self._shape, bits)


def _controls(config: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """All controls, each with the name of its tensor."""
    for tensor in config["sequence_batching"].get("control_input", ()):
        for control in tensor.get("control", ()):
            yield tensor["name"], control


def _is_true(kind: str, flags: int) -> bool:
    """True if a control of this kind is set for a request with these flags."""
    if kind == "CONTROL_SEQUENCE_START":
        return bool(flags & SEQUENCE_START)
    if kind == "CONTROL_SEQUENCE_END":
        return bool(flags & SEQUENCE_END)
    return True  # READY


def _zeros(name: str, datatype: str, shape: tuple[int, ...]) -> Tensor:
    """Zeros, or empty strings."""
    return Tensor(name, datatype, shape, bytes(prod(shape) * (DATATYPES[datatype].byte_size or 4)))
