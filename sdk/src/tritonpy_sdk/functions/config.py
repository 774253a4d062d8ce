"""Settings of functions that are served as models: batching, queues, resources, caching, warm-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy.typing as npt
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject

from tritonpy_sdk.functions.sequences import SequenceBatcher
from tritonpy_sdk.functions.tensors import Tensor

_STRATEGY_PARAMETER = "TRITON_BATCH_STRATEGY_PATH"


class TimeoutAction(Enum):
    """The lot of a request that has waited for too long."""

    REJECT = "REJECT"
    DELAY = "DELAY"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePolicy:
    """Limits of one queue.

    Attributes:
        timeout_action: refuse what has waited for too long, or put it behind all others.
        default_timeout_microseconds: how long is too long; 0 for never.
        allow_timeout_override: requests may ask for a shorter time.
        max_queue_size: requests that may wait; 0 for any number.
    """

    timeout_action: TimeoutAction = TimeoutAction.REJECT
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0

    def config(self) -> JsonObject:
        """As a configuration has it."""
        return {
            "timeout_action": self.timeout_action.value,
            "default_timeout_microseconds": self.default_timeout_microseconds,
            "allow_timeout_override": self.allow_timeout_override,
            "max_queue_size": self.max_queue_size,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicBatcher:
    """Puts requests together that wait at the same time.

    Attributes:
        max_queue_delay_microseconds: how long a request may wait for others.
        preferred_batch_size: batches of these sizes go at once.
        preserve_ordering: answers come in the order of the requests.
        priority_levels: 0 for one queue; else 1 is the most urgent level.
        default_priority_level: of requests that name none.
        default_queue_policy: of each level that has none of its own.
        priority_queue_policy: by level.
        strategy: narrows what may go together: the name of an installed batching strategy,
            `module:object`, or the path of a file.
    """

    max_queue_delay_microseconds: int = 0
    preferred_batch_size: Sequence[int] | None = None
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy | None = None
    priority_queue_policy: Mapping[int, QueuePolicy] | None = None
    strategy: str | Path | None = None

    def config(self) -> JsonObject:
        """As a configuration has it."""
        entry: JsonObject = {"max_queue_delay_microseconds": self.max_queue_delay_microseconds}
        if self.preferred_batch_size:
            entry["preferred_batch_size"] = [int(size) for size in self.preferred_batch_size]
        if self.preserve_ordering:
            entry["preserve_ordering"] = True
        if self.priority_levels:
            entry["priority_levels"] = self.priority_levels
            entry["default_priority_level"] = self.default_priority_level
        if self.default_queue_policy is not None:
            entry["default_queue_policy"] = self.default_queue_policy.config()
        if self.priority_queue_policy:
            entry["priority_queue_policy"] = {
                str(level): policy.config() for level, policy in self.priority_queue_policy.items()
            }
        if self.strategy is None:
            return {"dynamic_batching": entry}
        parameters = {_STRATEGY_PARAMETER: {"string_value": str(self.strategy)}}
        return {"dynamic_batching": entry, "parameters": parameters}


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that instances share, of which there is only so much.

    Attributes:
        name: of the resource; `--rate-limit-resource` says how much there is.
        count: what one execution needs of it.
        is_global: all devices share it, instead of each having its own.
    """

    name: str
    count: int = 1
    is_global: bool = False

    def config(self) -> JsonObject:
        """As a configuration has it.

        Raises:
            InvalidArg: nothing can need so much.
        """
        if self.count < 0:
            raise InvalidArg(f"resource '{self.name}': got count {self.count}, expected 0 or more")
        return {"name": self.name, "count": self.count, **({"global": True} if self.is_global else {})}


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLimiter:
    """Turns of a model's instances among those of all models.

    The server has to be started with `ServerOptions(…, rate_limit="execution_count")`, or nobody waits.

    Attributes:
        resources: what one execution needs, all or nothing.
        priority: 2 has half the turns of 1; 0 is 1.
    """

    resources: Sequence[Resource] = ()
    priority: int = 0

    def config(self) -> JsonObject:
        """As a configuration has it, in a group of instances."""
        entry: JsonObject = {"resources": [resource.config() for resource in self.resources]}
        if self.priority:
            entry["priority"] = self.priority
        return {"rate_limiter": entry}


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmupInput:
    """An input of a warm-up request: exactly one of the last three.

    Attributes:
        shape: without the dimension of the batch.
        dtype: as of a `Tensor`.
        zero_data: all zeros, or empty strings.
        random_data: random numbers.
        input_data_file: a file with the elements in the protocol's binary form.
    """

    shape: Sequence[int]
    dtype: npt.DTypeLike
    zero_data: bool = False
    random_data: bool = False
    input_data_file: str | Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelWarmup:
    """Requests that a model has executed before it is ready.

    Attributes:
        name: of the sample, in messages.
        batch_size: its rows; 0 for a model that does not batch.
        inputs: by name.
        count: how often it is executed.
    """

    name: str
    batch_size: int = 1
    inputs: Mapping[str, WarmupInput] = field(default_factory=dict)
    count: int = 1

    def config(self) -> JsonObject:
        """As a configuration has it; files are named, not read."""
        return {
            "name": self.name,
            "batch_size": self.batch_size,
            "count": max(self.count, 1),
            "inputs": {name: _warmup_input(name, given) for name, given in self.inputs.items()},
        }


def _warmup_input(name: str, given: WarmupInput) -> JsonObject:
    kinds: JsonObject = {
        key: value
        for key, value in (
            ("zero_data", given.zero_data),
            ("random_data", given.random_data),
            ("input_data_file", given.input_data_file and Path(given.input_data_file).name),
        )
        if value
    }
    if len(kinds) != 1:
        raise InvalidArg(
            f"warm-up input '{name}': got {', '.join(kinds) or 'none'}, expected one of zero_data, "
            "random_data and input_data_file"
        )
    tensor = Tensor(given.shape, given.dtype, name)
    return {
        "data_type": DATATYPES[tensor.datatype].config_name,
        "dims": [int(dim) for dim in given.shape],
        **kinds,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Settings of a function that is served as a model.

    Attributes:
        batching: inputs and outputs have a first dimension, that of the batch, which their shapes leave out.
        max_batch_size: the largest batch.
        batcher: puts requests together, a `DynamicBatcher` only with `batching`; None leaves them single.
        response_cache: answers of equal requests come from the server's cache.
        decoupled: a request has any number of responses; None is true for generators.
        model_warmup: requests to be executed before the model is ready.
        instances: how many calls of one function may run at the same time, each on a thread of its own.
        rate_limiter: what an execution needs that instances share, and its turn; None for nothing.
        parameters: of the configuration; strategies and others read them.
        more: anything else that a configuration may say, in the shape of `GET …/config`.
    """

    batching: bool = True
    max_batch_size: int = 4
    batcher: DynamicBatcher | SequenceBatcher | None = field(default_factory=DynamicBatcher)
    response_cache: bool = False
    decoupled: bool | None = None
    model_warmup: Sequence[ModelWarmup] | None = None
    instances: int = 1
    rate_limiter: RateLimiter | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    more: JsonObject = field(default_factory=dict)

    def config(self) -> JsonObject:
        """As a configuration has it, without tensors and instances.

        Raises:
            InvalidArg: the settings contradict each other.
        """
        if self.batching and self.max_batch_size < 1:
            raise InvalidArg(f"max_batch_size: got {self.max_batch_size}, expected 1 or more with batching")
        entry: JsonObject = {"max_batch_size": self.max_batch_size if self.batching else 0}
        if self.batcher is not None and (self.batching or isinstance(self.batcher, SequenceBatcher)):
            entry |= self.batcher.config()
        if self.response_cache:
            entry["response_cache"] = {"enable": True}
        if self.model_warmup:
            entry["model_warmup"] = [sample.config() for sample in self.model_warmup]
        if self.parameters:
            named = {key: {"string_value": value} for key, value in self.parameters.items()}
            entry["parameters"] = entry.get("parameters", {}) | named
        return entry | dict(self.more)

    def files(self) -> dict[str, bytes]:
        """Contents of the files that warm-up and states need, by path in the model's directory.

        Raises:
            InvalidArg: one cannot be read.
        """
        files = {
            f"warmup/{Path(given.input_data_file).name}": _read(sample, Path(given.input_data_file))
            for sample in self.model_warmup or ()
            for given in sample.inputs.values()
            if given.input_data_file
        }
        if isinstance(self.batcher, SequenceBatcher):
            files |= self.batcher.files()
        return files


def _read(sample: ModelWarmup, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise InvalidArg(
            f"warm-up '{sample.name}': cannot read input_data_file '{path}': {exc.strerror}"
        ) from None
