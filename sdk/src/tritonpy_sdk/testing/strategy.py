"""A batching strategy asked as a server asks it, about requests that are never executed."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import TypeVar

from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.handles import BackendAttributes, JsonObject, Model
from tritonpy.lifecycle.resolved_config import settled_config
from tritonpy.model.backend import BoundBackend
from tritonpy.plugin_manager import PluginManager
from tritonpy.request import InferRequest
from tritonpy.response import ParameterValue
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.decision import Dispatch
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy.scheduler.strategy_finder import PATH_PARAMETER, StrategyFinder
from tritonpy.tensor import Tensor

from tritonpy_sdk.testing.logged import raising_what_is_logged

_MODEL = "model_under_test"
_STRATEGY = "strategy-under-test"
_INPUT = "INPUT0"


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request in the queue, with one input of zeros; two that say the same are equal.

    Attributes:
        shape: of its input, the rows first.
        datatype: of its input.
        parameters: what its client sent along.
        id: what its client called it.
        input_name: what its input is called.
    """

    shape: Sequence[int] = (1, 1)
    datatype: str = "FP32"
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    id: str = ""
    input_name: str = _INPUT

    def __post_init__(self) -> None:
        if self.datatype not in DATATYPES or self.datatype == "BYTES":
            raise InvalidArg(
                f"datatype of a waiting request: got '{self.datatype}', expected one whose elements all have "
                f"the same size, such as FP32"
            )

    def build(self) -> InferRequest:
        """The request that a strategy is asked about."""
        size = prod(self.shape) * DATATYPES[self.datatype].byte_size
        tensor = Tensor(self.input_name, self.datatype, tuple(self.shape), bytes(size))
        return InferRequest(_MODEL, {tensor.name: tensor}, id=self.id, parameters=self.parameters)


Waiting = TypeVar("Waiting", bound=int | WaitingRequest | InferRequest)


class OpenStrategy:
    """A strategy between its initialisation and its end; see `open_strategy`.

    Attributes:
        failed: requests that it failed, with the reasons.
    """

    def __init__(
        self, bound: BoundStrategy, max_batch_size: int, preferred_batch_sizes: Collection[int]
    ) -> None:
        self._bound = bound
        self._max_batch_size = max_batch_size
        self._preferred_batch_sizes = preferred_batch_sizes
        self.failed: list[tuple[object, TritonError]] = []

    def batches(self, requests: Sequence[Waiting]) -> list[list[Waiting]]:
        """The batches that leave when all of these wait, in this order, and instances are free.

        Shapes are not compared: apart from sizes only the strategy decides. What it fails is in `failed` and
        in no batch.

        Args:
            requests: a number stands for a request of one row with so many bytes.
        """
        policy = DynamicPolicy(
            max_batch_size=self._max_batch_size,
            preferred_batch_sizes=self._preferred_batch_sizes,
            strategy=self._bound,
        )
        given: dict[InferRequest, Waiting] = {}
        for waiting in requests:
            request = _build(waiting)
            given[request] = waiting
            try:
                policy.add(request)
            except TritonError as error:
                self.failed.append((waiting, error))
        formed = []
        while left := policy.waiting_count:
            decision = policy.decide(now_ns=0)
            self.failed += [(given[request], error) for request, error, _ in policy.take_refused()]
            if isinstance(decision, Dispatch):
                formed.append([given[request] for request in decision.requests if request in given])
            assert policy.waiting_count < left, "the batcher neither formed a batch nor failed a request"
        return formed


def find_strategy(
    strategy: str | os.PathLike[str] | object,
    parameters: Mapping[str, str] | None = None,
    max_batch_size: int = 1024,
) -> BoundStrategy:
    """Bind a strategy for a model, without calling it; see `open_strategy`.

    Raises:
        TritonError: it cannot be opened, or hooks are missing.
    """
    is_installed = isinstance(strategy, str | os.PathLike)  # or opened by something that is
    manager = PluginManager("batching", discover=is_installed)
    if isinstance(strategy, os.PathLike):
        name = str(Path(strategy).absolute())
    elif isinstance(strategy, str):
        name = strategy
    else:
        name = _STRATEGY
        manager.register(name, strategy)
    finder = StrategyFinder(manager, PluginManager("loaders", discover=is_installed), is_strict=False)
    backend = _identity()
    config = _config(max_batch_size, {**(parameters or {}), PATH_PARAMETER: name})
    bound = finder.find(Model(_MODEL, 1, config, Path(_MODEL), backend.handle), backend)
    assert bound is not None  # it was named
    return bound


@contextmanager
def open_strategy(
    strategy: str | os.PathLike[str] | object,
    parameters: Mapping[str, str] | None = None,
    *,
    max_batch_size: int = 1024,
    preferred_batch_sizes: Collection[int] = (),
) -> Iterator[OpenStrategy]:
    """Let a batching strategy begin for a model, and end afterwards.

    Example:
        >>> with open_strategy("volume", {"MAX_BATCH_VOLUME_BYTES": "96"}) as strategy:
        ...     assert strategy.batches([32, 64, 16]) == [[32, 64], [16]]

    Args:
        strategy: the name of an installed strategy, the path of a file (`.py`, or a shared object, which
            needs tritonpy-abi), or a plugin object.
        parameters: of the model's configuration.
        max_batch_size: of the model.
        preferred_batch_sizes: of its dynamic batcher.

    Raises:
        TritonError: it cannot be opened, or does not want to begin.
        ExceptionGroup: it raised where a server goes on and writes it to its log.
    """
    bound = find_strategy(strategy, parameters, max_batch_size)
    bound.open()
    with raising_what_is_logged(logging.getLogger("tritonpy.batching"), "the strategy"):
        try:
            yield OpenStrategy(bound, max_batch_size, preferred_batch_sizes)
        finally:
            bound.close()


@cache
def _identity() -> BoundBackend:
    return BoundBackend("identity", PluginManager("backends"), {})


def _config(max_batch_size: int, parameters: Mapping[str, str]) -> JsonObject:
    tensor = {"name": _INPUT, "data_type": "TYPE_FP32", "dims": [-1], "allow_ragged_batch": True}
    given: JsonObject = {
        "name": _MODEL,
        "backend": "identity",
        "max_batch_size": max_batch_size,
        "input": [tensor],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "dynamic_batching": {},
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }
    return settled_config(given, BackendAttributes(), Path(_MODEL))


def _build(waiting: int | WaitingRequest | InferRequest) -> InferRequest:
    if isinstance(waiting, int):
        waiting = WaitingRequest((1, waiting), "UINT8")
    request = waiting.build() if isinstance(waiting, WaitingRequest) else waiting
    shape = next((tensor.shape for tensor in request.inputs.values()), (1,))
    request.batch_size = max(1, shape[0])
    return request
