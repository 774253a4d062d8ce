"""What a loaded model version does with its requests, in numbers: the facts of `corectl explain`."""

from __future__ import annotations

import time

from tritonpy.handles import JsonObject
from tritonpy.model.model import LoadedModel

_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
_PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


def explanation(model: LoadedModel, now_ns: int | None = None) -> JsonObject:
    """Facts of one version since it was loaded; all of them add up, but for what is so now.

    Args:
        model: the version.
        now_ns: of the monotonic clock.

    Returns:
        `scheduler` (its kind, and its part of the configuration), `seconds` since counting began, `closed`
        (batches by the reason why they left), `batch_sizes` (executions by size), `requests` and their
        `durations_ns`, `failures` by reason, `cache`; and, as they are now, `pending` and `instances`.
    """
    stats, config = model.stats, model.config
    kind = next((kind for kind in _SCHEDULERS if kind in config), "default")
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    return {
        "name": model.name,
        "version": model.version_text,
        "scheduler": {"kind": kind, "settings": config.get(kind, {})},
        "max_batch_size": config.get("max_batch_size", 0),
        "strategy": model.strategy_name,
        "seconds": (now_ns - stats.since_ns) / 1e9,
        "closed": dict(stats.closed_counts),
        "batch_sizes": {
            str(size): {
                "count": batch.count,
                "ns": batch.compute_input_ns + batch.compute_infer_ns + batch.compute_output_ns,
            }
            for size, batch in sorted(stats.batch_stats.items())
        },
        "requests": {phase: getattr(stats, f"{phase}_count") for phase in _PHASES},
        "durations_ns": {phase: getattr(stats, f"{phase}_ns") for phase in _PHASES},
        "inferences": stats.inference_count,
        "executions": stats.execution_count,
        "failures": dict(stats.failures),
        "cache": {"hits": stats.cache_hit_count, "misses": stats.cache_miss_count},
        "pending": stats.pending_count,
        "instances": [
            {"name": instance.name, "is_ready": instance.is_ready, "executing": instance.depth}
            for instance in model.instances
        ],
    }
