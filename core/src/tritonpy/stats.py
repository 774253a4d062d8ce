"""Counters of a model version: requests, executions and their durations in nanoseconds.

Owned by the loop: plain integers, no lock. Durations are added once per batch, not once per request: every
request of a batch waits for the whole batch, so each phase adds `duration × requests`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonpy.errors import ErrorCode
from tritonpy.latencies import CACHE_HIT, CACHE_MISS, QUEUE, REQUEST, Latencies
from tritonpy.response import InferResponse

MOST_RESPONSES = 1024
"""Responses of one request that are counted, each by its index; a stream may go on for days."""

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
class ResponseStats:
    """Responses of decoupled models that had the same place in their streams.

    Each is counted once, as what it is; sums are computed when they are asked for.

    Attributes:
        success_count: responses with outputs.
        fail_count, fail_ns: errors; both durations together.
        empty_response_count, empty_response_ns: responses without outputs, and final flags that came alone.
        cancel_count, cancel_ns: ends of requests that their clients had given up.
        compute_infer_ns: of all but the cancelled: the time from the response before (or from the start of
            the execution) until the model handed this one over.
        compute_output_ns: of those with outputs or an error: the time it took to bring them on their way.
    """

    success_count: int = 0
    fail_count: int = 0
    fail_ns: int = 0
    empty_response_count: int = 0
    empty_response_ns: int = 0
    cancel_count: int = 0
    cancel_ns: int = 0
    compute_infer_ns: int = 0
    compute_output_ns: int = 0

    @property
    def success_ns(self) -> int:
        """Both durations of the responses with outputs."""
        return self.compute_infer_ns + self.compute_output_ns - self.fail_ns - self.empty_response_ns

    @property
    def compute_infer_count(self) -> int:
        """Responses that were computed."""
        return self.success_count + self.fail_count + self.empty_response_count

    @property
    def compute_output_count(self) -> int:
        """Responses with something to bring on its way."""
        return self.success_count + self.fail_count

    def count(
        self, response: InferResponse | None, infer_ns: int, output_ns: int, is_cancelled: bool
    ) -> None:
        """Count one response; None is a final flag that came alone."""
        error = response.error if response is not None else None
        if error is None and response is not None and response.outputs:
            self.success_count += 1
        elif is_cancelled or (error is not None and error.code is ErrorCode.CANCELLED):
            self.cancel_count += 1
            self.cancel_ns += infer_ns + output_ns
            return
        elif error is None:
            self.empty_response_count += 1
            self.empty_response_ns += infer_ns
            output_ns = 0
        else:
            self.fail_count += 1
            self.fail_ns += infer_ns + output_ns
        self.compute_infer_ns += infer_ns
        self.compute_output_ns += output_ns


@dataclass(slots=True)
class ModelStats:
    """Counters of one model version; they start again when it is reloaded.

    Attributes:
        success_count, success_ns: requests that were executed, and their time from arrival until `execute`
            had returned; an error that a model put into a response does not change that.
        fail_count, fail_ns: requests that failed after they were accepted.
        queue_count, queue_ns: successful requests, from enqueueing to the start of the execution.
        compute_input_count, compute_infer_count, compute_output_count: successful requests.
        compute_input_ns, compute_infer_ns, compute_output_ns: the phases of their batches.
        inference_count: rows of successful requests.
        execution_count: batches executed, those that failed included.
        last_inference_ms: wall clock of the latest execution, milliseconds since the epoch.
        cache_hit_count, cache_hit_ns: requests that the response cache has answered, and their lookups.
        cache_miss_count, cache_miss_ns: those that it did not know, with lookups and insertions.
        pending_count: requests waiting for an execution now.
        failures: failed requests by reason.
        batch_stats: executions by batch size, those that failed included.
        response_stats: responses of decoupled models, by their index in the stream.
        closed_counts: batches by the reason for which they left with the size they had; see
            `tritonpy.scheduler.decision.Closed`.
        latencies: how durations are spread; None where the server does not keep it.
        is_cached: it wants its responses kept in a cache, whether the server has one or not.
        since_ns: when counting began, on the monotonic clock.
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
    response_stats: dict[int, ResponseStats] = field(default_factory=dict)
    closed_counts: Counter[str] = field(default_factory=Counter)
    latencies: Latencies | None = None
    is_cached: bool = False
    since_ns: int = field(default_factory=time.monotonic_ns)

    def count_execution(
        self, request_count: int, row_count: int, batch_size: int, queued_ns: int, times: Sequence[int]
    ) -> None:
        """Count one executed batch.

        Args:
            request_count: requests in it that succeeded.
            row_count: their rows.
            batch_size: all its rows.
            queued_ns: the sum over the requests that succeeded of the time from enqueueing to the start of
                the execution.
            times: start of the execution, start and end of the framework's call, end of the execution.
        """
        start, compute_start, compute_end, end = times
        input_ns = compute_start - start
        infer_ns = compute_end - compute_start
        output_ns = end - compute_end
        self.execution_count += 1
        self.inference_count += row_count
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
        if self.latencies is not None:
            self.latencies.add_compute((input_ns, infer_ns, output_ns), request_count)

    def count_success(self, duration_ns: int) -> None:
        """Count one request that was answered; how it was executed is counted with its batch."""
        self.success_count += 1
        self.success_ns += duration_ns
        if self.latencies is not None:
            self.latencies.add(REQUEST, duration_ns)

    def count_ensemble(
        self, batch_size: int, queue_ns: int, duration_ns: int, compute_ns: Sequence[int]
    ) -> None:
        """Count one request that an ensemble has answered.

        Args:
            batch_size: its rows.
            queue_ns: from enqueueing to its first step.
            duration_ns: from enqueueing to its answer.
            compute_ns: the three phases, each added up over its steps.
        """
        start, ends, now = 0, [], 0
        for phase_ns in compute_ns:
            now += phase_ns
            ends.append(now)
        self.count_success(duration_ns)
        if self.latencies is not None:
            self.latencies.add(QUEUE, queue_ns)
        self.count_execution(1, batch_size, batch_size, queue_ns, (start, *ends))

    def add_compute(self, batch_size: int, compute_ns: Sequence[int]) -> None:
        """Add the durations of a step that ended only after its ensemble had answered."""
        input_ns, infer_ns, output_ns = compute_ns
        batch = self.batch_stats[batch_size]
        for stats in (self, batch):
            stats.compute_input_ns += input_ns
            stats.compute_infer_ns += infer_ns
            stats.compute_output_ns += output_ns

    def count_failure(self, reason: str, duration_ns: int) -> None:
        """Count one request that failed; `reason` is one of `REASONS`."""
        self.fail_count += 1
        self.fail_ns += duration_ns
        self.failures[reason] += 1

    def count_cache_hit(self, queued_ns: int, lookup_ns: int, duration_ns: int) -> None:
        """Count one request that the response cache has answered.

        Args:
            queued_ns: from its arrival to the lookup.
            lookup_ns: the lookup.
            duration_ns: from its arrival to the answer.
        """
        self.count_success(duration_ns)
        self.queue_count += 1
        self.queue_ns += queued_ns
        self.cache_hit_count += 1
        self.cache_hit_ns += lookup_ns
        if self.latencies is not None:
            self.latencies.add(QUEUE, queued_ns)
            self.latencies.add(CACHE_HIT, lookup_ns)

    def count_cache_miss(self, lookup_ns: int) -> None:
        """Count one request that the response cache did not know; it is executed."""
        self.cache_miss_count += 1
        self.cache_miss_ns += lookup_ns

    def count_cache_insertion(self, lookup_ns: int, insertion_ns: int) -> None:
        """Count that the response of such a request was kept; its lookup is part of its success."""
        self.cache_miss_ns += insertion_ns
        self.success_ns += lookup_ns + insertion_ns
        if self.latencies is not None:
            self.latencies.add(CACHE_MISS, lookup_ns + insertion_ns)

    def count_first_response(self, queued_since_ns: int) -> None:
        """Count that a request of a decoupled model, which was queued then, has its first response now."""
        if self.latencies is not None and self.latencies.first_response is not None:
            self.latencies.first_response.add((time.monotonic_ns() - queued_since_ns) / 1_000_000)

    def count_response(
        self,
        index: int,
        response: InferResponse | None,
        durations: tuple[int, int],
        is_cancelled: bool = False,
    ) -> None:
        """Count one response of a decoupled model.

        Args:
            index: its place in the stream.
            response: None for a final flag that came alone.
            durations: to compute it, and to bring it on its way.
            is_cancelled: its client had given up.
        """
        stats = self.response_stats.get(index)
        if stats is None:
            if index >= MOST_RESPONSES:
                return
            stats = self.response_stats[index] = ResponseStats()
        stats.count(response, durations[0], durations[1], is_cancelled)

    def snapshot(self) -> ModelStats:
        """A copy that another thread may read while the loop counts on; without the `response_stats`."""
        copy = ModelStats(*(getattr(self, name) for name in self.__slots__))
        copy.failures = dict(self.failures)
        copy.batch_stats = {
            size: BatchStats(*(getattr(batch, name) for name in BatchStats.__slots__))
            for size, batch in self.batch_stats.items()
        }
        copy.response_stats = {}
        copy.closed_counts = self.closed_counts.copy()
        copy.latencies = self.latencies.snapshot() if self.latencies is not None else None
        return copy


_REQUEST_PHASES = (
    "success",
    "fail",
    "queue",
    "compute_input",
    "compute_infer",
    "compute_output",
    "cache_hit",
    "cache_miss",
)
_RESPONSE_PHASES = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")


def statistics_json(
    name: str, version: str, stats: ModelStats, memory_usage: Sequence[Mapping[str, object]] = ()
) -> dict[str, object]:
    """One element of `model_stats` in the statistics extension, with its field names."""
    return {
        "name": name,
        "version": version,
        "last_inference": stats.last_inference_ms,
        "inference_count": stats.inference_count,
        "execution_count": stats.execution_count,
        "inference_stats": _phases(stats, _REQUEST_PHASES),
        "response_stats": {
            str(index): _phases(response, _RESPONSE_PHASES)
            for index, response in sorted(stats.response_stats.items())
        },
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": _leaf(batch.count, batch.compute_input_ns),
                "compute_infer": _leaf(batch.count, batch.compute_infer_ns),
                "compute_output": _leaf(batch.count, batch.compute_output_ns),
            }
            for size, batch in sorted(stats.batch_stats.items())
        ],
        "memory_usage": list(memory_usage),
    }


def _phases(stats: ModelStats | ResponseStats, phases: Sequence[str]) -> dict[str, dict[str, int]]:
    return {phase: _leaf(getattr(stats, f"{phase}_count"), getattr(stats, f"{phase}_ns")) for phase in phases}


def _leaf(count: int, duration_ns: int) -> dict[str, int]:
    return {"count": count, "ns": duration_ns}
