"""Selection of the scheduler that a configuration asks for."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from operator import attrgetter

from tritonpy.flow import DEFAULT_LIMITS, FlowLimits
from tritonpy.handles import JsonObject
from tritonpy.request import InferRequest
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.compatibility import read_kinds
from tritonpy.scheduler.direct import DirectPolicy
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy.scheduler.ordering import ResponseOrder
from tritonpy.scheduler.queues import LeveledQueue, QueuePolicy
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.scheduler.sequences.controls import ControlInputs
from tritonpy.scheduler.sequences.direct import DirectBatcher
from tritonpy.scheduler.sequences.oldest import OldestBatcher
from tritonpy.scheduler.sequences.policy import Batcher, SequenceBatching
from tritonpy.scheduler.sequences.sequence import SlotRow
from tritonpy.states import StateSpecs
from tritonpy.stats import ModelStats

DELAY_VARIABLE = "TRITONSERVER_DELAY_SCHEDULER"
BACKLOG_VARIABLE = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"


def make_scheduler(
    config: JsonObject,
    stats: ModelStats,
    strategy: BoundStrategy | None,
    states: StateSpecs | None = None,
    flow_limits: FlowLimits = DEFAULT_LIMITS,
) -> Scheduler:
    """The scheduler that a normalised configuration asks for.

    Args:
        config: of the model.
        stats: where it counts.
        strategy: narrows what would go together, for models with a dynamic batcher.
        states: what the server remembers of each sequence.
        flow_limits: how many responses may wait for those of an earlier request.
    """
    if config.get("sequence_batching") is not None:
        policy = make_sequence_batching(config, states)
        return Scheduler(policy, stats, sequences=policy)
    batching: JsonObject | None = config.get("dynamic_batching")
    if batching is None:
        return Scheduler(DirectPolicy(), stats)
    dynamic = _dynamic_policy(config, batching, strategy)
    order = None
    if batching.get("preserve_ordering"):
        # Without levels and timeouts the queue, too, is in the order of arrival.
        order = ResponseOrder(flow_limits, can_wait=not dynamic.may_expire)
    return Scheduler(dynamic, stats, order=order)


def make_sequence_batching(config: JsonObject, states: StateSpecs | None = None) -> SequenceBatching:
    """The sequence batcher that a normalised configuration asks for."""
    batching: JsonObject = config["sequence_batching"]
    oldest: JsonObject | None = batching.get("oldest")
    slot_count = max(1, config["max_batch_size"])
    make: Callable[[SequenceBatching, SlotRow], Batcher]
    if oldest is not None:
        count = oldest.get("max_candidate_sequences", 0)
        slot_count = count if count > 0 else slot_count
        make = partial(_oldest_batcher, config, oldest)
    else:
        make = partial(_direct_batcher, config, batching.get("direct", {}))
    return SequenceBatching(
        config["name"],
        slot_count=slot_count,
        max_idle_us=batching["max_sequence_idle_microseconds"],
        controls=ControlInputs(config),
        make_batcher=make,
        states=states,
        is_iterative=batching.get("iterative_sequence", False),
    )


def _direct_batcher(
    config: JsonObject, direct: JsonObject, policy: SequenceBatching, row: SlotRow
) -> DirectBatcher:
    held_count, backlog_count = _count_in(DELAY_VARIABLE), _count_in(BACKLOG_VARIABLE)
    return DirectBatcher(
        policy.book,
        row,
        policy,
        make_null=policy.make_null,
        kind_of=read_kinds(config).of,
        least_share=direct.get("minimum_slot_utilization", 0.0),
        queue_delay_ns=direct.get("max_queue_delay_microseconds", 0) * 1000,
        frees_early=not policy.is_iterative,
        is_held=partial(policy.holds_fewer, held_count, backlog_count) if held_count else None,
    )


def _oldest_batcher(
    config: JsonObject, oldest: JsonObject, policy: SequenceBatching, row: SlotRow
) -> OldestBatcher:
    return OldestBatcher(
        policy.book,
        row,
        policy,
        make_inner=partial(_dynamic_policy, config, oldest, None),
        order=ResponseOrder() if oldest.get("preserve_ordering") else None,
        is_iterative=policy.is_iterative,
    )


def _count_in(variable: str) -> int:
    """A number of requests that the environment may name."""
    return int(os.environ.get(variable, "0") or 0)


def _dynamic_policy(
    config: JsonObject,
    batching: JsonObject,
    strategy: BoundStrategy | None,
    since_ns: Callable[[InferRequest], int] = attrgetter("queue_start_ns"),
) -> DynamicPolicy:
    return DynamicPolicy(
        max_batch_size=config["max_batch_size"],
        preferred_batch_sizes=batching.get("preferred_batch_size", ()),
        queue_delay_ns=batching.get("max_queue_delay_microseconds", 0) * 1000,
        kinds=read_kinds(config),
        strategy=strategy,
        queue=_leveled_queue(batching),
        hold_until_count=_count_in(DELAY_VARIABLE),
        since_ns=since_ns,
    )


def _leveled_queue(batching: JsonObject) -> LeveledQueue | None:
    """The queue that priorities and policies ask for; None when nothing does."""
    level_count = batching.get("priority_levels", 0)
    default: JsonObject = batching.get("default_queue_policy", {})
    named: JsonObject = batching.get("priority_queue_policy", {})
    if not (level_count or default):
        return None
    return LeveledQueue(
        _queue_policy(default),
        level_count or 1,
        batching.get("default_priority_level", 0) or 1,
        {int(level): _queue_policy(policy) for level, policy in named.items()},
    )


def _queue_policy(policy: JsonObject) -> QueuePolicy:
    return QueuePolicy(
        max_size=policy.get("max_queue_size", 0),
        timeout_ns=policy.get("default_timeout_microseconds", 0) * 1000,
        allows_override=policy.get("allow_timeout_override", False),
        delays=policy.get("timeout_action") == "DELAY",
    )
