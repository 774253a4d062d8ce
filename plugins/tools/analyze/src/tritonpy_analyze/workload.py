"""Load on the models of a server, by tritonpy-bench, as windows of measurement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tritonpy.errors import Unavailable
from tritonpy_bench import BenchError, Concurrency, Inputs, Load, Rate, Stability, measure
from tritonpy_bench.errors import NothingAnswered as NoneAnswered
from tritonpy_bench.histogram import Histogram as BenchHistogram
from tritonpy_bench.measurement import Measurement, ServerSide
from tritonpy_bench.measurement import Window as BenchWindow

from tritonpy_analyze.histogram import Histogram
from tritonpy_analyze.measurement import Window
from tritonpy_analyze.space import Value
from tritonpy_analyze.trial import NothingAnswered
from tritonpy_analyze.usage import Usage, UsageMeter

_LEAST_ANSWERED = 0.97
"""The part of the requests that are due that a server which keeps a rate answers."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of models, without the pace.

    Attributes:
        models: that are asked, all at the same time.
        batch_size: rows of each request.
        inputs: contents, for all models.
        timeout_s: of a request.
        streaming: those of the models that are asked over streams of gRPC, because they are decoupled.
        tokens: the output whose elements are counted; "" to count none.
    """

    models: tuple[str, ...]
    batch_size: int = 1
    inputs: Inputs = field(default_factory=Inputs)
    timeout_s: float = 60.0
    streaming: frozenset[str] = frozenset()
    tokens: str = ""

    def measure(
        self, url: str, load: Mapping[str, Value], seconds: float, meter: UsageMeter, grpc_url: str = ""
    ) -> Window:
        """Ask the models of a server for so long.

        Args:
            url: `host:port` of HTTP.
            load: requests at once, or in a second: by chance, as of many clients.
            seconds: how long.
            meter: of what the server uses.
            grpc_url: `host:port` of gRPC, for models that stream.

        Raises:
            NothingAnswered: a model answered nothing, because the time is too short.
            Unavailable: a model answered nothing; says why.
        """
        loads = [
            Load(
                model=model,
                url=grpc_url if model in self.streaming else url,
                protocol="grpc" if model in self.streaming else "http",
                endpoint="stream" if model in self.streaming else "infer",
                http_url=url if model in self.streaming else None,
                pace=_pace(load),
                batch_size=self.batch_size,
                inputs=self.inputs,
                timeout_s=self.timeout_s,
                tokens=self.tokens,
            )
            for model in self.models
        ]
        window = Stability(window_s=seconds, windows=1, most_windows=1, warmup_s=min(0.2, seconds / 5))
        meter.begin()
        try:
            if len(loads) == 1:  # on this thread, where Ctrl-C is heard at once
                found = [measure(loads[0], window)]
            else:
                with ThreadPoolExecutor(len(loads)) as pool:
                    found = list(pool.map(lambda each: measure(each, window), loads))
        except NoneAnswered as exc:
            raise NothingAnswered(f"{exc.reason}; measure longer (--window)") from exc
        except BenchError as exc:
            raise Unavailable(str(exc)) from exc
        return _window(found, meter.end())


def _pace(load: Mapping[str, Value]) -> Concurrency | Rate:
    rate, concurrency = load.get("rate"), load.get("concurrency", 1)
    if isinstance(rate, int | float):
        return Rate(float(rate), "poisson")
    return Concurrency(concurrency if isinstance(concurrency, int) else 1)


def _window(found: Sequence[Measurement], usage: Usage) -> Window:
    parts = {each.load.model: _part(each, usage) for each in found}
    if len(parts) == 1:
        return next(iter(parts.values()))
    latency, first, between, gaps = Histogram(), Histogram(), Histogram(), Histogram()
    sizes: Counter[int] = Counter()
    for part in parts.values():
        latency, first = latency + part.latency, first + part.first_response
        between, gaps = between + part.between_responses, gaps + part.between_tokens
        sizes.update(part.batch_sizes)
    requests = max(1, latency.count)

    def mean(name: str) -> float:
        return sum(float(getattr(part, name)) * part.latency.count for part in parts.values()) / requests

    return Window(
        sum(part.seconds for part in parts.values()) / len(parts),
        sum(part.rows for part in parts.values()),
        sum(part.failed for part in parts.values()),
        latency,
        first,
        between,
        memory_byte_size=usage.memory_byte_size,
        cpu_cores=usage.cpu_cores,
        gpu_memory_byte_size=usage.gpu_memory_byte_size,
        gpu_utilization=usage.gpu_utilization,
        batch_sizes=dict(sorted(sizes.items())),
        queue_us=mean("queue_us"),
        compute_us=mean("compute_us"),
        parts=parts,
        due=sum(part.due for part in parts.values()),
        unanswered=sum(part.unanswered for part in parts.values()),
        tokens=sum(part.tokens for part in parts.values()),
        between_tokens=gaps,
    )


def _part(found: Measurement, usage: Usage) -> Window:
    sizes: Counter[int] = Counter()
    for side in found.server:
        sizes.update(side.batch_sizes)
    return Window(
        found.total.duration_s,
        found.total.request_count * found.load.batch_size,
        found.error_count,
        _histogram(found.latency_ns),
        _histogram(found.total.first_ns),
        _histogram(found.total.between_ns),
        memory_byte_size=usage.memory_byte_size,
        cpu_cores=usage.cpu_cores,
        gpu_memory_byte_size=usage.gpu_memory_byte_size,
        gpu_utilization=usage.gpu_utilization,
        batch_sizes=dict(sorted(sizes.items())),
        queue_us=_mean_us(found.server, "queue"),
        compute_us=_mean_us(found.server, "compute_input", "compute_infer", "compute_output"),
        due=found.total.due_count,
        unanswered=_unanswered(found.total),
        tokens=found.total.token_count,
        between_tokens=_histogram(found.total.token_gap_ns),
    )


def _unanswered(total: BenchWindow) -> int:
    """Requests that a rate asked for and that were not answered; 0 where that may be chance.

    As many as are in flight at the end of a window, more than at its beginning, are answered after it; that
    goes up and down with about the root of what is in flight on the average, by Little's law.
    """
    if not total.due_count:
        return 0
    missing = total.due_count - total.request_count - total.error_count
    flying = total.due_count / total.duration_s * total.latency_ns.mean / 1e9
    chance = 4 * math.sqrt(flying + 1)
    return missing if missing > (1 - _LEAST_ANSWERED) * total.due_count + chance else 0


def _mean_us(sides: Sequence[ServerSide], *phases: str) -> float:
    """Mean time of a request in phases; of an ensemble the sum over its steps."""
    executed = [side for side in sides if side.execution_count]
    times = [side.durations_us.get(phase, 0.0) for side in executed for phase in phases]
    return sum(times) if times else math.nan


def _histogram(found: BenchHistogram) -> Histogram:
    if not found.count:
        return Histogram()
    durations = [(value / 1000, count) for value, count in found.bins()]
    return Histogram.weighted(durations, found.mean / 1000 * found.count)
