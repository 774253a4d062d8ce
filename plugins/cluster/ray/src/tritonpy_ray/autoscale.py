"""How many servers there should be, by how long requests wait; no clock and no Ray.

Servers × (delay / target) would be right if delay grew with load in proportion. It does not, so that is a
direction only: one server more at a time, or one less. And since it cannot be told from a delay whether one
server less would do, the traffic is remembered at which a number of servers was too small: that number is not
tried again before there is clearly less traffic. With traffic that stays the same this comes to rest.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from tritonpy_ray.looks import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The limits of decisions.

    Attributes:
        least, most: servers.
        target_ms: that a request may wait, on average, in the worst model.
        window_s: over which the average is taken.
        tolerance: the part of the target by which requests may wait longer.
        least_requests: of a model in the window, for its average to count.
        up_every_s: between one server more and the next.
        down_every_s: between any change and one server less.
        less_traffic: the part of the traffic that was too much for a number of servers, at which that
            number is tried again.
        memory_s: after which it is tried again with any traffic.
    """

    least: int
    most: int
    target_ms: float
    window_s: float = 30.0
    tolerance: float = 0.1
    least_requests: int = 20
    up_every_s: float = 30.0
    down_every_s: float = 300.0
    less_traffic: float = 0.8
    memory_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class _Step:
    at_s: float
    requests: Mapping[str, float]
    queue_us: Mapping[str, float]
    pending: float


class Autoscaler:
    """Decides for one fleet.

    Args:
        rule: its limits.
        now_s: the time; what comes first is compared with it.
    """

    def __init__(self, rule: Rule, now_s: float) -> None:
        self._rule = rule
        self._begun_s = self._changed_s = now_s
        self._last: dict[str, Load] = {}
        self._steps: deque[_Step] = deque()
        self._too_much: dict[int, tuple[float, float]] = {}  # servers: requests/s too much for them, and when

    def observe(self, now_s: float, loads: Mapping[str, Load]) -> None:
        """Take what the servers have done, by their names."""
        requests: dict[str, float] = {}
        queue_us: dict[str, float] = {}
        for name, load in loads.items():
            before = self._last.get(name)
            if before is not None:  # the first look says when all of it was, which may be long ago
                _add_growth(requests, before.requests, load.requests)
                _add_growth(queue_us, before.queue_us, load.queue_us)
        self._last = dict(loads)
        self._steps.append(_Step(now_s, requests, queue_us, sum(load.pending for load in loads.values())))
        while self._steps[0].at_s <= now_s - self._rule.window_s:
            self._steps.popleft()

    def decide(self, now_s: float, count: int) -> int:
        """How many servers there should be.

        Args:
            now_s: the time.
            count: that there are to be now.
        """
        rule = self._rule
        if not rule.least <= count <= rule.most:
            return self._change(now_s, min(max(count, rule.least), rule.most))
        if now_s - self._begun_s < rule.window_s:
            return count
        delay_ms = self.delay_ms()
        ratio = 1.0 if delay_ms is None else delay_ms / rule.target_ms
        rate = self.rate()
        if ratio > 1 + rule.tolerance:
            self._too_much[count] = min(rate, self._limit(now_s, count)), now_s
            if count < rule.most and now_s - self._changed_s >= rule.up_every_s:
                return self._change(now_s, count + 1)
        elif count > rule.least and now_s - self._changed_s >= rule.down_every_s:
            is_idle = delay_ms is None and not any(step.pending for step in self._steps)
            may_do = rate <= rule.less_traffic * self._limit(now_s, count - 1)
            if (math.ceil(count * ratio) < count or is_idle) and may_do:
                return self._change(now_s, count - 1)
        return count

    def delay_ms(self) -> float | None:
        """How long a request of the worst model has waited on average; None if none had enough requests."""
        requests: dict[str, float] = {}
        queue_us: dict[str, float] = {}
        for step in self._steps:
            for model, amount in step.requests.items():
                requests[model] = requests.get(model, 0.0) + amount
                queue_us[model] = queue_us.get(model, 0.0) + step.queue_us.get(model, 0.0)
        enough = [model for model, amount in requests.items() if amount >= self._rule.least_requests]
        return max((queue_us[model] / requests[model] / 1000 for model in enough), default=None)

    def rate(self) -> float:
        """Requests a second in the window."""
        return sum(sum(step.requests.values()) for step in self._steps) / self._rule.window_s

    def _limit(self, now_s: float, count: int) -> float:
        """Requests a second that were too much for a number of servers."""
        rate, at_s = self._too_much.get(count, (math.inf, now_s))
        return rate if now_s - at_s <= self._rule.memory_s else math.inf

    def _change(self, now_s: float, count: int) -> int:
        self._changed_s = now_s
        return count


def _add_growth(into: dict[str, float], before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Add what counters have grown by; one that is smaller than before began anew."""
    for model, value in after.items():
        was = before.get(model, 0.0)
        into[model] = into.get(model, 0.0) + (value - was if value >= was else value)
