"""What models do lately, from counters that only grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tritonpy.plugin import ModelActivity

from tritonpy_router.protos import Activity

_HALF_S = 1.0
"""The time after which a mean has half forgotten what it was."""
_FORGOTTEN_S = 10.0
"""Without executions for so long nobody knows how quick a model is: a slow first one must not count on."""
_QUIET_S = 2.0


@dataclass(slots=True)
class _Meter:
    """One model, all its versions together.

    Attributes:
        executed_count, queue_ns, compute_ns: when it was last looked at.
        inflight_count, pending_count, instance_count: then.
        compute_s, queue_s: means for a request.
        looked_s, executed_s: the last look, and the last that found executions.
    """

    executed_count: int
    queue_ns: int
    compute_ns: int
    looked_s: float
    executed_s: float
    inflight_count: int = 0
    pending_count: int = 0
    instance_count: int = 0
    compute_s: float = 0.0
    queue_s: float = 0.0
    lately: float = 0.0  # executions, as they are forgotten


class Meters:
    """Means over the last seconds; they are told the time, and look at nothing themselves."""

    def __init__(self) -> None:
        self._meters: dict[str, _Meter] = {}
        self._now_s = 0.0

    def note(self, rows: Iterable[ModelActivity], now_s: float) -> None:
        """Take what the counters say now."""
        self._now_s = now_s
        sums: dict[str, list[int]] = {}
        for row in rows:
            total = sums.setdefault(row.name, [0] * 6)
            for place, value in enumerate(row[2:]):
                total[place] += value
        for name in self._meters.keys() - sums.keys():
            del self._meters[name]
        for name, (inflight, pending, executed, queue_ns, compute_ns, instances) in sums.items():
            meter = self._meters.get(name)
            if meter is None or executed < meter.executed_count:  # counters begin anew with a reload
                meter = self._meters[name] = _Meter(executed, queue_ns, compute_ns, now_s, float("-inf"))
            meter.inflight_count, meter.pending_count, meter.instance_count = inflight, pending, instances
            self._advance(meter, executed, queue_ns, compute_ns)

    def _advance(self, meter: _Meter, executed: int, queue_ns: int, compute_ns: int) -> None:
        count = executed - meter.executed_count
        kept = 0.5 ** ((self._now_s - meter.looked_s) / _HALF_S)
        meter.looked_s = self._now_s
        meter.lately = meter.lately * kept + count
        if not count:
            return
        is_new = self._now_s - meter.executed_s > _FORGOTTEN_S
        share = 1.0 if is_new else min(1.0, count / meter.lately)
        meter.compute_s += share * (max(0, compute_ns - meter.compute_ns) / count / 1e9 - meter.compute_s)
        meter.queue_s += share * (max(0, queue_ns - meter.queue_ns) / count / 1e9 - meter.queue_s)
        meter.executed_count, meter.queue_ns, meter.compute_ns = executed, queue_ns, compute_ns
        meter.executed_s = self._now_s

    def queue_ms(self) -> float:
        """What requests have waited lately, on average over all models."""
        waited = [(meter.lately, self._queue_s(meter)) for meter in self._meters.values()]
        count = sum(lately for lately, _ in waited)
        return 1000 * sum(lately * queue_s for lately, queue_s in waited) / count if count > 1e-3 else 0.0

    def activity(self) -> Iterator[Activity]:
        """The models that have requests, or have had some lately."""
        for name, meter in self._meters.items():
            is_known = self._now_s - meter.executed_s <= _FORGOTTEN_S
            if meter.inflight_count or is_known:
                rate = max(1, meter.instance_count) / meter.compute_s if is_known and meter.compute_s else 0.0
                yield Activity(
                    name=name,
                    inflight_count=meter.inflight_count,
                    pending_count=meter.pending_count,
                    queue_ms=1000 * self._queue_s(meter),
                    service_rate=rate,
                )

    def _queue_s(self, meter: _Meter) -> float:
        is_quiet = self._now_s - meter.executed_s > _QUIET_S and not meter.pending_count
        return 0.0 if is_quiet else meter.queue_s
