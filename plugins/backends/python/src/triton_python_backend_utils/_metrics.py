"""Metrics of a model: counters, gauges and histograms that appear among the server's own at `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from typing import Protocol, SupportsFloat, SupportsIndex, Union

from ._arguments import text
from ._errors import TritonModelException
from ._link import current_link
from ._local_metrics import LocalMetrics
from ._server_metrics import server_metrics

Number = Union[SupportsFloat, SupportsIndex]  # noqa: UP007 (evaluated, also by Python 3.9)

_local = LocalMetrics()


class MetricKind(IntEnum):
    """The kinds; models write `MetricFamily.COUNTER`."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2

    __str__ = Enum.__str__


class Store(Protocol):
    """The keeper of metrics: the server, or this process where no server is.

    A hold is a family object's share in the family of its name; a series is one set of labels of a family.
    """

    def hold(self, name: str, description: str, kind: int) -> tuple[int, str]:
        """Join or found a family; returns the hold and its owner: the instance, "" without a server."""

    def series(
        self, hold: int, labels: dict[str, str], buckets: list[float] | None
    ) -> tuple[int, list[float]]:
        """Join or found a series; returns it and the upper bounds of its buckets, which a counter has not."""

    def add(self, series: int, amount: float) -> None:
        """Add to a counter or gauge."""

    def set(self, series: int, value: float) -> None:
        """Set a gauge."""

    def observe(self, series: int, bounds: Sequence[float], value: float) -> None:
        """Count a value in a histogram's bucket."""

    def value(self, series: int) -> float:
        """The value of a counter or gauge."""

    def release(self, hold: int) -> None:
        """The family object is garbage; called by its finalizer, in any thread."""


class Hold:
    """The state that a family object and its metrics share.

    Attributes:
        is_over: the family object is gone; its metrics can no longer be used.
    """

    __slots__ = ("id", "is_over", "kind", "owner", "store")

    def __init__(self, store: Store, number: int, owner: str, kind: MetricKind) -> None:
        self.store = store
        self.id = number
        self.owner = owner
        self.kind = kind
        self.is_over = False

    def refusal(self, text: str) -> str:
        """The form in which Triton's server refuses something."""
        return (
            f"Failed to process the request for model '{self.owner}', message: {text}" if self.owner else text
        )


class Metric:
    """One series of a family; made by `MetricFamily.Metric(...)`.

    Metrics with the same family name and labels are one and the same, in all instances of
    all models. Use them from any thread. The server learns of a change when `execute` returns, a response is
    sent, or a twentieth of a second has passed: changing is cheap enough for inner loops.
    """

    __slots__ = ("_bounds", "_hold", "_series")

    def __init__(self, hold: Hold, series: int, bounds: list[float]) -> None:
        self._hold = hold
        self._series = series
        self._bounds = bounds

    def increment(self, value: Number) -> None:
        """Add `value` to a counter or gauge.

        Raises:
            TypeError: `value` is no number.
            TritonModelException: it is negative and this is a counter; this is a histogram; the family object
                has been deleted.
        """
        amount = value if type(value) is float else _as_float("increment", value)
        hold = self._usable("increment", "Increment", MetricKind.HISTOGRAM)
        if amount < 0 and hold.kind is MetricKind.COUNTER:
            reason = hold.refusal(
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by "
                "non-negative values."
            )
            raise TritonModelException(f"Failed to increment metric value: {reason}")
        hold.store.add(self._series, amount)

    def set(self, value: Number) -> None:
        """Set a gauge to `value`.

        Raises:
            TypeError: `value` is no number.
            TritonModelException: this is no gauge; the family object has been deleted.
        """
        level = value if type(value) is float else _as_float("set", value)
        hold = self._usable("set", "Set", MetricKind.HISTOGRAM, MetricKind.COUNTER)
        hold.store.set(self._series, level)

    def observe(self, value: Number) -> None:
        """Count `value` in the bucket of a histogram that it belongs to.

        Raises:
            TypeError: `value` is no number.
            TritonModelException: this is no histogram; the family object has been deleted.
        """
        observed = value if type(value) is float else _as_float("observe", value)
        hold = self._usable("observe", "Observe", MetricKind.COUNTER, MetricKind.GAUGE)
        hold.store.observe(self._series, self._bounds, observed)

    def value(self) -> float:
        """The value of a counter or gauge, with what other instances have added to it.

        Raises:
            TritonModelException: this is a histogram; the family object has been deleted.
        """
        hold = self._usable("get", "Value", MetricKind.HISTOGRAM)
        try:
            return hold.store.value(self._series)
        except TritonModelException as exc:
            raise TritonModelException(f"Failed to get metric value: {exc}") from None

    def _usable(self, verb: str, operation: str, *refused: MetricKind) -> Hold:
        hold = self._hold
        if hold.is_over:
            raise TritonModelException(
                f"Failed to {verb} metric value: Invalid metric operation as the corresponding "
                f"'MetricFamily' has been deleted. The 'MetricFamily' object should be deleted AFTER its "
                f"corresponding 'Metric' objects have been deleted."
            )
        if hold.kind in refused:
            reason = hold.refusal(f"TRITONSERVER_METRIC_KIND_{hold.kind.name} does not support {operation}")
            raise TritonModelException(f"Failed to {verb} metric value: {reason}")
        return hold


class MetricFamily:
    """Metrics of one name, one kind and different labels.

    Keep the object as long as its metrics are to be seen: with it they go, unless another instance or model
    holds a family of the same name and kind. They also go with the model's process.

    Args:
        name: letters, digits, `_` and `:`, the first one no digit; none that the server itself uses.
        description: one line of help; that of the first object with this name is kept.
        kind: `MetricFamily.COUNTER`, `MetricFamily.GAUGE` or `MetricFamily.HISTOGRAM`.

    Raises:
        TypeError: an argument is of the wrong type.
        TritonModelException: the name is not possible, or taken.
    """

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    __slots__ = ("_hold",)

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        name = text("MetricFamily: name", name)
        description = text("MetricFamily: description", description)
        if not isinstance(kind, MetricKind):
            raise TypeError(
                f"MetricFamily: kind must be MetricFamily.COUNTER, MetricFamily.GAUGE or "
                f"MetricFamily.HISTOGRAM, got {kind!r}"
            )
        link = current_link()
        # A link that ends in this process, as that of a model under test, brings its own.
        store: Store = _local if link is None else getattr(link, "metrics", None) or server_metrics(link)
        try:
            number, owner = store.hold(name, description, int(kind))
        except TritonModelException as exc:
            raise TritonModelException(f"Error when creating MetricFamily: {exc}") from None
        self._hold = Hold(store, number, owner, kind)

    def Metric(
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[Number] | None = None
    ) -> Metric:
        """The family's metric with these labels; made when there is none yet.

        Args:
            labels: names and values, all of them text.
            buckets: the upper bounds of a histogram's buckets, rising; `+Inf` is added. A histogram needs
                them and nothing else takes them. Where the metric exists already, it keeps those it has.

        Raises:
            TritonModelException: a label or the buckets are not possible.
        """
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        hold = self._hold
        if hold.kind is MetricKind.HISTOGRAM:
            if buckets is None:
                raise TritonModelException("Failed to create metric. Missing required buckets.")
        elif buckets is not None:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        bounds = None if buckets is None else [_as_float("Metric: buckets", bound) for bound in buckets]
        try:
            series, bounds = hold.store.series(hold.id, _checked(labels or {}, hold), bounds)
        except TritonModelException as exc:
            raise TritonModelException(f"Error when creating Metric: {exc}") from None
        return Metric(hold, series, bounds)

    def __del__(self) -> None:
        hold = getattr(self, "_hold", None)
        if hold is not None:
            hold.is_over = True
            hold.store.release(hold.id)


def _as_float(what: str, value: Number) -> float:
    if not isinstance(value, (str, bytes, bytearray)):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise TypeError(f"{what}: expected a number, got {type(value).__name__}")


def _checked(labels: Mapping[str, str], hold: Hold) -> dict[str, str]:
    for name, value in labels.items():
        if not isinstance(name, str):
            raise TritonModelException(
                hold.refusal(f"Invalid label name: expected a str, got {type(name).__name__}")
            )
        if not isinstance(value, str):
            kind = type(value).__name__
            reason = f"attempt to access JSON non-string as string: label '{name}' must be a str, got {kind}"
            raise TritonModelException(hold.refusal(reason))
    return {str(name): str(value) for name, value in labels.items()}  # subclasses of str cannot travel
