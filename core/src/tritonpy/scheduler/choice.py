"""Which scheduler a configuration asks for."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tritonpy.handles import JsonObject
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.decision import BatchingPolicy
from tritonpy.scheduler.direct import DirectPolicy
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy.scheduler.ordering import ResponseOrder
from tritonpy.scheduler.queues import LeveledQueue, QueuePolicy
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.stats import ModelStats

DELAY_VARIABLE = "TRITONSERVER_DELAY_SCHEDULER"


def make_scheduler(config: JsonObject, stats: ModelStats, strategy: BoundStrategy | None) -> Scheduler:
    """The scheduler that a normalised configuration asks for."""
    batching: JsonObject | None = config.get("dynamic_batching")
    iterative = config.get("sequence_batching")
    if iterative is not None:
        # Rescheduled requests join whatever waits; without a batch dimension, one at a time.
        batching = iterative.get("oldest", {}) if config["max_batch_size"] > 0 else None
    if batching is None:
        return Scheduler(DirectPolicy(), stats, starts_sequences=iterative is not None)
    order = ResponseOrder() if batching.get("preserve_ordering") else None
    policy = _dynamic_policy(config, batching, strategy)
    return Scheduler(policy, stats, order=order, starts_sequences=iterative is not None)


def _dynamic_policy(
    config: JsonObject, batching: JsonObject, strategy: BoundStrategy | None
) -> BatchingPolicy:
    inputs: Iterable[JsonObject] = config.get("input", ())
    return DynamicPolicy(
        max_batch_size=config["max_batch_size"],
        preferred_batch_sizes=batching.get("preferred_batch_size", ()),
        queue_delay_ns=batching.get("max_queue_delay_microseconds", 0) * 1000,
        equal_shape_inputs=[
            tensor["name"]
            for tensor in inputs
            if -1 in tensor["dims"] and not tensor.get("allow_ragged_batch", False)
        ],
        has_optional_inputs=any(tensor.get("optional", False) for tensor in inputs),
        strategy=strategy,
        queue=_leveled_queue(batching),
        hold_until_count=int(os.environ.get(DELAY_VARIABLE, "0") or 0),
    )


def _leveled_queue(batching: JsonObject) -> LeveledQueue | None:
    """The queue that priorities and policies ask for; None when nothing does."""
    levels = batching.get("priority_levels", 0)
    default: JsonObject = batching.get("default_queue_policy", {})
    named: JsonObject = batching.get("priority_queue_policy", {})
    if not (levels or default):
        return None
    policies = [_queue_policy(named.get(str(level), default)) for level in range(1, max(1, levels) + 1)]
    return LeveledQueue(policies, batching.get("default_priority_level", 0) or 1)


def _queue_policy(policy: JsonObject) -> QueuePolicy:
    return QueuePolicy(
        max_size=policy.get("max_queue_size", 0),
        timeout_ns=policy.get("default_timeout_microseconds", 0) * 1000,
        allows_override=policy.get("allow_timeout_override", False),
        delays=policy.get("timeout_action") == "DELAY",
    )
