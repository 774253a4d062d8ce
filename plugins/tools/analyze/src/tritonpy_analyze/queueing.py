"""A queueing model of a batched model: how long requests would wait with other instances, batches or delays.

It knows a rate of requests, the time of an execution by its rows, and the settings. Batches grow until as
many requests arrive during an execution as a batch takes; waiting is then, whichever is longer, the rest of
the executions under way, or the queue of full batches before busy instances (Allen and Cunneen's formula,
with Erlang's probability that all are). A delay is added as far as no instance is busy anyway. Requests are
taken to come by chance (Poisson). Where what was measured waits longer or shorter than that, the same factor
is applied to all predictions. Tests compare it with a simulation of the server's own batcher.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

_BUSY = 0.98
"""Above it a queue grows for as long as it is asked, and no time can be told."""
_ROUNDS = 60
_LARGER = 1.5
"""Rows by which the batch of the mean request exceeds the mean batch, where batches have many rows."""
_LEAST_FACTOR, _MOST_FACTOR = 0.25, 8.0


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """The time of an execution: `base_us` and `row_us` for each row.

    Attributes:
        sizes: the least and the largest number of rows that were seen; beyond them it is a guess.
    """

    base_us: float
    row_us: float
    sizes: tuple[int, int] = (1, 1)

    @property
    def is_of_one_size(self) -> bool:
        """True if nothing is known of other sizes."""
        return self.sizes[0] == self.sizes[1]

    @property
    def at_best(self) -> ServiceTime:
        """Where only one size was seen: what larger ones would take if further rows cost nothing."""
        return ServiceTime(self.us(self.sizes[0]), 0.0, self.sizes)

    def us(self, rows: float) -> float:
        """The time of an execution of so many rows."""
        return self.base_us + self.row_us * rows


def fit(executions: Mapping[int, tuple[int, float]]) -> ServiceTime | None:
    """The service time that suits executions best, by weighted least squares.

    Args:
        executions: by rows, how many there were, and their mean time in µs.

    Returns:
        None of none. Of one size only, all of it is taken to be of the rows; see `ServiceTime.at_best`.
    """
    known = {rows: each for rows, each in executions.items() if each[0] > 0 and rows > 0}
    if not known:
        return None
    sizes = (min(known), max(known))
    total = sum(count for count, _ in known.values())
    mean_rows = sum(rows * count for rows, (count, _) in known.items()) / total
    mean_us = sum(us * count for count, us in known.values()) / total
    spread = sum(count * (rows - mean_rows) ** 2 for rows, (count, _) in known.items())
    if not spread:
        return ServiceTime(0.0, mean_us / mean_rows, sizes)
    together = sum(count * (rows - mean_rows) * (us - mean_us) for rows, (count, us) in known.items())
    row_us = min(max(0.0, together / spread), mean_us / mean_rows)
    return ServiceTime(mean_us - row_us * mean_rows, row_us, sizes)


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be changed.

    Attributes:
        instances: that execute.
        most_rows: of a batch.
        delay_us: that the oldest request may wait for others.
        batches: the scheduler joins requests.
    """

    instances: int
    most_rows: int
    delay_us: float = 0.0
    batches: bool = True


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of settings.

    Attributes:
        settings: that it is about.
        rows: of a batch, on the average.
        busy: the part of the time in which an instance executes; 1 where it cannot keep up.
        queue_us: mean time that a request waits; infinite where it cannot keep up.
        compute_us: of the execution that the mean request is in.
        most_rows_per_s: that the instances can do in full batches.
    """

    settings: Settings
    rows: float
    busy: float
    queue_us: float
    compute_us: float
    most_rows_per_s: float

    @property
    def latency_us(self) -> float:
        """Waiting and execution together."""
        return self.queue_us + self.compute_us


@dataclass(frozen=True, slots=True)
class Traffic:
    """What comes.

    Attributes:
        requests_per_s: of the model.
        rows: of a request, on the average.
        factor: by which requests wait longer than the model says, from what was measured.
    """

    requests_per_s: float
    rows: float = 1.0
    factor: float = 1.0


def predict(service: ServiceTime, traffic: Traffic, settings: Settings) -> Prediction:
    """Predict what the mean request would see."""
    per_us = traffic.requests_per_s / 1e6
    most = max(1.0, settings.most_rows / traffic.rows) if settings.batches else 1.0
    count = settings.instances

    def took_us(requests: float) -> float:
        return service.us(requests * traffic.rows)

    requests = 1.0
    delayed = min(most, 1 + per_us * settings.delay_us) if settings.batches else 1.0
    for _ in range(_ROUNDS):  # a fixed point; halving each step keeps it from swinging
        arriving = per_us * took_us(requests) / count
        # The mean of what arrives by chance, of which there is at least one.
        requests = (requests + min(most, max(delayed, arriving + math.exp(-arriving)))) / 2
    compute_us = took_us(requests)
    busy = per_us * compute_us / (count * requests)
    full_busy = per_us * took_us(most) / (count * most)
    capacity = count * most * traffic.rows / took_us(most) * 1e6
    if full_busy >= _BUSY:
        return Prediction(settings, most * traffic.rows, 1.0, math.inf, took_us(most), capacity)
    all_busy = _erlang(count, min(busy, 1.0))
    rest_us = all_busy * compute_us / (count + 1)
    # Of full batches requests come in groups, evenly: an Erlang distribution of `most` stages.
    queue_us = (
        _erlang(count, full_busy) / most / 2 * took_us(most) / (count * (1 - full_busy)) if full_busy else 0.0
    )
    # More requests are in the larger batches: what a request sees is not the mean of executions.
    seen_us = took_us(min(most, requests + _LARGER * (1 - 1 / requests)))
    waiting_us = max(rest_us, queue_us) * traffic.factor
    if settings.batches and settings.delay_us and most > 1:
        waiting_us += (1 - all_busy) * _company_us(per_us, most, settings.delay_us)
    return Prediction(settings, requests * traffic.rows, min(1.0, busy), waiting_us, seen_us, capacity)


def _company_us(per_us: float, most: float, delay_us: float) -> float:
    """Mean time that requests wait for company: the first until the batch leaves, others half of that."""
    if not per_us:
        return delay_us
    first_us = min(delay_us, (most - 1) / per_us)
    requests = min(most, 1 + per_us * delay_us)
    return first_us * (1 + (requests - 1) / 2) / requests


def _erlang(count: int, busy: float) -> float:
    """Erlang's C: the probability that all of some servers are busy."""
    if busy >= 1:
        return 1.0
    load, blocked = busy * count, 1.0
    for number in range(1, count + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - busy * (1 - blocked))


def calibrated(
    service: ServiceTime, traffic: Traffic, settings: Settings, measured_queue_us: float
) -> Traffic:
    """The traffic with the factor by which its requests wait longer or shorter than the model says."""
    company = predict(service, replace(traffic, factor=0.0), settings).queue_us
    said = predict(service, replace(traffic, factor=1.0), settings).queue_us - company
    if not math.isfinite(said) or said <= 0:
        return traffic
    factor = (measured_queue_us - company) / said
    return replace(traffic, factor=min(_MOST_FACTOR, max(_LEAST_FACTOR, factor)))


def changes(settings: Settings, service: ServiceTime) -> Sequence[tuple[str, Settings]]:
    """Other settings that are worth a prediction, each with what it would say in the configuration."""
    found: list[tuple[str, Settings]] = []
    for count in dict.fromkeys((settings.instances + 1, settings.instances * 2)):
        found.append((f"instance_group {{ count: {count} }}", replace(settings, instances=count)))
    if settings.instances > 1:
        count = settings.instances - 1
        found.append((f"instance_group {{ count: {count} }}", replace(settings, instances=count)))
    if settings.most_rows > 1 and not settings.batches:
        found.append(("dynamic_batching { }", replace(settings, batches=True)))
    elif settings.most_rows >= 1 and settings.batches:
        found.append(
            (f"max_batch_size: {settings.most_rows * 2}", replace(settings, most_rows=settings.most_rows * 2))
        )
    if settings.batches and settings.delay_us:
        found.append(("max_queue_delay_microseconds: 0", replace(settings, delay_us=0)))
    if settings.batches and settings.most_rows > 1:
        delay_us = round(max(100.0, settings.delay_us * 2 or service.us(1) / 2), -2)
        found.append((f"max_queue_delay_microseconds: {delay_us:.0f}", replace(settings, delay_us=delay_us)))
    return found
