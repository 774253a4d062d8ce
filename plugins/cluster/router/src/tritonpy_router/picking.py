"""The choice of one replica among those that may have a request: pure, with the chance handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from tritonpy_router.replica import Replica

Policy: TypeAlias = Callable[[Sequence[Replica], Random, str], Replica]
"""Chooses among at least one replica, for a request to a model; "" for one that concerns none."""

_ALIKE = 1.25
"""Rates that differ less count as equal: they are measured, and the quickest is not to have everything."""


def two_choices(replicas: Sequence[Replica], chance: Random, model: str = "") -> Replica:
    """The better of two that are drawn: nearly as even as looking at all, and routers do not flock."""
    count = len(replicas)
    if count == 1:
        return replicas[0]
    first = int(chance.random() * count)
    second = (first + 1 + int(chance.random() * (count - 1))) % count
    one, other = replicas[first], replicas[second]
    return one if _is_no_later(one, other, model) else other


def _is_no_later(one: Replica, other: Replica, model: str) -> bool:
    """Whether a replica will be done with one more request as soon as another, by what both have to do.

    Where both have told how quick they are with the model, a replica that is twice as quick may have twice as
    much to do.
    """
    rate, other_rate = one.rates.get(model), other.rates.get(model)
    if rate and other_rate and not 1 / _ALIKE < rate / other_rate < _ALIKE:
        return (one.load + 1) * other_rate <= (other.load + 1) * rate
    return one.load <= other.load


def least_busy(replicas: Sequence[Replica], chance: Random, model: str = "") -> Replica:
    """The one with the fewest requests under way; one of several by chance."""
    fewest = min(replica.load for replica in replicas)
    return chance.choice([replica for replica in replicas if replica.load == fewest])


def fewest_sent(replicas: Sequence[Replica], chance: Random, model: str = "") -> Replica:
    """The one that this router has sent the fewest requests: each in turn."""
    return min(replicas, key=lambda replica: replica.request_count)


POLICIES: dict[str, Policy] = {
    "two-choices": two_choices,
    "least-busy": least_busy,
    "round-robin": fewest_sent,
}
"""The policies by the name that `--policy` has for them."""
