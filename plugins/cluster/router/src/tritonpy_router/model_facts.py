"""What routers have to know of a model, from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model's configuration says to a router.

    Attributes:
        is_sequence: requests of a sequence have to come to one replica.
        idle_s: how long a sequence may have no request.
        is_retriable: a request whose replica was lost may be executed again.
        instance_count: instances that execute it; 0 where the configuration does not say.
        steps: the models of an ensemble.
    """

    is_sequence: bool = False
    idle_s: float = 1.0
    is_retriable: bool = False
    instance_count: int = 0
    steps: tuple[str, ...] = ()


def facts_of(config: Mapping[str, Any]) -> ModelFacts:  # Any: JSON
    """What a model's configuration says to a router; the JSON of `/v2/models/<name>/config`."""
    sequences = config.get("sequence_batching")
    idle_us = int((sequences or {}).get("max_sequence_idle_microseconds") or 0) or 1_000_000
    retry = config.get("parameters", {}).get("retry_on_replica_loss", {}).get("string_value", "")
    instances = sum(
        int(group.get("count") or 1) * max(1, len(group.get("gpus") or ()))
        for group in config.get("instance_group") or ()
        if not group.get("passive")
    )
    steps = (config.get("ensemble_scheduling") or {}).get("step") or ()
    return ModelFacts(
        sequences is not None,
        idle_us / 1e6,
        retry.lower() in ("true", "1", "yes", "on"),
        instances,
        tuple(sorted({str(step["model_name"]) for step in steps})),
    )
