"""What was measured: of the client, and of the server in the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonpy_bench.histogram import Histogram
from tritonpy_bench.load import Load

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Percentiles that reports show."""


@dataclass(slots=True)
class Window:
    """What one client, or all of them, saw in a window of time.

    Attributes:
        duration_s: its length.
        latency_ns: of requests answered without an error, until all is received; from when they were sent
            in a closed loop, and in an open one from when they were to be sent.
        errors: how often each error came, by its text.
        sent_count: requests sent in it.
        client_cpu_s: processor time that the clients used.
        client_count: how many processes sent.
        first_ns: where requests may have several responses: from a request to its first response.
        between_ns: likewise, from one response to the next.
        due_count: in an open loop, requests that were to be sent in it; 0 in a closed one.
        service_ns: in an open loop, as `latency_ns` but from when they were sent; empty in a closed one.
        token_count: elements of the output that is counted, of all responses in it.
        token_gap_ns: where requests may have several responses: from one element to the next, those of a
            response at equal distances from the response before.
        has_responses: requests may have several responses, or none.
    """

    duration_s: float = 0.0
    latency_ns: Histogram = field(default_factory=Histogram)
    errors: Counter[str] = field(default_factory=Counter)
    sent_count: int = 0
    client_cpu_s: float = 0.0
    client_count: int = 1
    service_ns: Histogram = field(default_factory=Histogram)
    first_ns: Histogram = field(default_factory=Histogram)
    between_ns: Histogram = field(default_factory=Histogram)
    due_count: int = 0
    token_count: int = 0
    token_gap_ns: Histogram = field(default_factory=Histogram)
    has_responses: bool = False

    @property
    def tokens_per_s(self) -> float:
        """Elements of the output that is counted, in a second."""
        return self.token_count / self.duration_s if self.duration_s else 0.0

    @property
    def tokens_per_request(self) -> float:
        """Elements of the output that is counted; those of requests that failed count, and these, too."""
        return self.token_count / max(1, self.request_count + self.error_count)

    @property
    def response_count(self) -> int:
        """Responses; as many as requests where each has one."""
        return self.first_ns.count + self.between_ns.count if self.has_responses else self.request_count

    @property
    def responses_per_s(self) -> float:
        """Responses in a second."""
        return self.response_count / self.duration_s if self.duration_s else 0.0

    @property
    def request_count(self) -> int:
        """Requests answered without an error."""
        return self.latency_ns.count

    @property
    def error_count(self) -> int:
        """Requests that failed."""
        return self.errors.total()

    @property
    def requests_per_s(self) -> float:
        """Requests answered without an error in a second."""
        return self.request_count / self.duration_s if self.duration_s else 0.0


def beside(windows: Sequence[Window]) -> Window:
    """What several clients saw in the same window of time, together."""
    return _together(
        windows, sum(w.duration_s for w in windows) / len(windows), sum(w.client_count for w in windows)
    )


def after(windows: Sequence[Window]) -> Window:
    """What was seen in windows of time that follow each other, together."""
    return _together(windows, sum(w.duration_s for w in windows), max(w.client_count for w in windows))


def _together(windows: Sequence[Window], duration_s: float, client_count: int) -> Window:
    return Window(
        duration_s,
        Histogram.merged(w.latency_ns for w in windows),
        sum((w.errors for w in windows), Counter()),
        sum(w.sent_count for w in windows),
        sum(w.client_cpu_s for w in windows),
        client_count,
        Histogram.merged(w.service_ns for w in windows),
        Histogram.merged(w.first_ns for w in windows),
        Histogram.merged(w.between_ns for w in windows),
        sum(w.due_count for w in windows),
        sum(w.token_count for w in windows),
        Histogram.merged(w.token_gap_ns for w in windows),
        any(w.has_responses for w in windows),
    )


@dataclass(frozen=True, slots=True)
class ServerSide:
    """What the server counted of a model in the same time.

    Attributes:
        model: its name; beside the model that was asked, those of an ensemble's steps are told of.
        version: of the model.
        inference_count: rows.
        execution_count: calls of its backend.
        success_count: requests answered.
        fail_count: requests refused or failed.
        durations_us: mean time of a request in `queue`, `compute_input`, `compute_infer`, `compute_output`,
            and where there is a response cache `cache_hit` and `cache_miss`; `request` is the whole.
        batch_sizes: how many executions had so many rows.
        closed: how many batches closed for which reason; empty for servers that do not tell it.
    """

    model: str
    version: str
    inference_count: int
    execution_count: int
    success_count: int
    fail_count: int
    durations_us: Mapping[str, float]
    batch_sizes: Mapping[int, int]
    closed: Mapping[str, int] = field(default_factory=dict)

    @property
    def mean_batch_size(self) -> float:
        """Rows of an execution."""
        return self.inference_count / self.execution_count if self.execution_count else 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one load.

    Attributes:
        load: what was asked.
        is_stable: the last windows agreed. If they did not, the numbers are of the last windows still.
        windows: all windows, in order.
        total: the windows that count, together.
        server: the asked model first, if the server keeps statistics, then the steps of an ensemble.
    """

    load: Load
    is_stable: bool
    windows: Sequence[Window]
    total: Window
    server: Sequence[ServerSide] = ()

    @property
    def requests_per_s(self) -> float:
        """Requests answered without an error in a second."""
        return self.total.requests_per_s

    @property
    def infer_per_s(self) -> float:
        """Rows answered without an error in a second."""
        return self.total.requests_per_s * self.load.batch_size

    @property
    def latency_ns(self) -> Histogram:
        """Latencies of the requests answered without an error."""
        return self.total.latency_ns

    @property
    def error_count(self) -> int:
        """Requests that failed."""
        return self.total.error_count

    def latency_us(self, percent: float | None = None) -> float:
        """A percentile of the latencies, or their mean."""
        latency = self.latency_ns
        return (latency.mean if percent is None else latency.percentile(percent)) / 1000

    @property
    def client_busy(self) -> float:
        """The part of a processor core that each client used; near 1, clients limit what is measured."""
        total = self.total
        return total.client_cpu_s / total.duration_s / total.client_count if total.duration_s else 0.0
