"""What a model version counts: requests, executions and where their time went, in nanoseconds.

Owned by the loop: plain integers, no lock. Durations are added once per batch, not once per request: every
request of a batch waits for the whole batch, so each phase adds `duration × requests`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
"""Why requests fail, as the label of `nv_inference_request_failure` says it."""


@dataclass(slots=True)
class BatchStats:
    """Executions of one batch size.

    Attributes:
        count: executions.
        compute_input_ns, compute_infer_ns, compute_output_ns: their phases, once per execution.
    """

    count: int = 0
    compute_input_ns: int = 0
    compute_infer_ns: int = 0
    compute_output_ns: int = 0


@dataclass(slots=True)
class ModelStats:
    """Counters of one model version; they start again when it is reloaded.

    Attributes:
        success_count, success_ns: requests answered by the model, and their time from arrival to answer.
        fail_count, fail_ns: requests that failed after they were accepted.
        queue_count, queue_ns: time from enqueueing to the start of the execution.
        compute_input_count, compute_infer_count, compute_output_count: requests executed.
        compute_input_ns, compute_infer_ns, compute_output_ns: the phases of their batches.
        inference_count: rows inferred.
        execution_count: batches executed.
        last_inference_ms: wall clock of the latest execution, milliseconds since the epoch.
        pending_count: requests waiting for an execution now.
        failures: failed requests by reason.
        batch_stats: executions by batch size.
    """

    success_count: int = 0
    success_ns: int = 0
    fail_count: int = 0
    fail_ns: int = 0
    queue_count: int = 0
    queue_ns: int = 0
    compute_input_count: int = 0
    compute_input_ns: int = 0
    compute_infer_count: int = 0
    compute_infer_ns: int = 0
    compute_output_count: int = 0
    compute_output_ns: int = 0
    cache_hit_count: int = 0
    cache_hit_ns: int = 0
    cache_miss_count: int = 0
    cache_miss_ns: int = 0
    inference_count: int = 0
    execution_count: int = 0
    last_inference_ms: int = 0
    pending_count: int = 0
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    batch_stats: dict[int, BatchStats] = field(default_factory=dict)

    def count_execution(
        self, request_count: int, batch_size: int, queued_ns: int, times: Sequence[int]
    ) -> None:
        """Count one executed batch.

        Args:
            request_count: requests in it.
            batch_size: rows in it.
            queued_ns: the sum over its requests of the time from enqueueing to the start of the execution.
            times: start of the execution, start and end of the framework's call, end of the execution.
        """
        start, compute_start, compute_end, end = times
        input_ns = compute_start - start
        infer_ns = compute_end - compute_start
        output_ns = end - compute_end
        self.execution_count += 1
        self.inference_count += batch_size
        self.queue_count += request_count
        self.queue_ns += queued_ns
        self.compute_input_count += request_count
        self.compute_input_ns += input_ns * request_count
        self.compute_infer_count += request_count
        self.compute_infer_ns += infer_ns * request_count
        self.compute_output_count += request_count
        self.compute_output_ns += output_ns * request_count
        self.last_inference_ms = time.time_ns() // 1_000_000
        batch = self.batch_stats.get(batch_size)
        if batch is None:
            batch = self.batch_stats[batch_size] = BatchStats()
        batch.count += 1
        batch.compute_input_ns += input_ns
        batch.compute_infer_ns += infer_ns
        batch.compute_output_ns += output_ns

    def count_failure(self, reason: str, duration_ns: int) -> None:
        """Count one request that failed; `reason` is one of `REASONS`."""
        self.fail_count += 1
        self.fail_ns += duration_ns
        self.failures[reason] += 1

    def snapshot(self) -> ModelStats:
        """A copy that another thread may read while the loop counts on."""
        copy = ModelStats(*(getattr(self, name) for name in self.__slots__))
        copy.failures = dict(self.failures)
        copy.batch_stats = {
            size: BatchStats(*(getattr(batch, name) for name in BatchStats.__slots__))
            for size, batch in self.batch_stats.items()
        }
        return copy


def statistics_json(name: str, version: str, stats: ModelStats) -> dict[str, object]:
    """One element of `model_stats` in the statistics extension, with its field names."""

    def leaf(count: int, duration_ns: int) -> dict[str, int]:
        return {"count": count, "ns": duration_ns}

    phases = (
        "success",
        "fail",
        "queue",
        "compute_input",
        "compute_infer",
        "compute_output",
        "cache_hit",
        "cache_miss",
    )
    return {
        "name": name,
        "version": version,
        "last_inference": stats.last_inference_ms,
        "inference_count": stats.inference_count,
        "execution_count": stats.execution_count,
        "inference_stats": {
            phase: leaf(getattr(stats, f"{phase}_count"), getattr(stats, f"{phase}_ns")) for phase in phases
        },
        "response_stats": {},
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": leaf(batch.count, batch.compute_input_ns),
                "compute_infer": leaf(batch.count, batch.compute_infer_ns),
                "compute_output": leaf(batch.count, batch.compute_output_ns),
            }
            for size, batch in sorted(stats.batch_stats.items())
        ],
        "memory_usage": [],
    }
