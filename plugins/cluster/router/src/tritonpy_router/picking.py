"""The choice of one replica among those that may have a request: pure, with the chance handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from tritonpy_router.replica import Replica

Policy: TypeAlias = Callable[[Sequence[Replica], Random], Replica]
"""Chooses among at least one replica."""


def two_choices(replicas: Sequence[Replica], chance: Random) -> Replica:
    """The less busy of two that are drawn: nearly as even as looking at all, and routers do not flock."""
    count = len(replicas)
    if count == 1:
        return replicas[0]
    first = int(chance.random() * count)
    second = (first + 1 + int(chance.random() * (count - 1))) % count
    one, other = replicas[first], replicas[second]
    return one if one.inflight <= other.inflight else other


def least_busy(replicas: Sequence[Replica], chance: Random) -> Replica:
    """The one with the fewest requests under way; one of several by chance."""
    fewest = min(replica.inflight for replica in replicas)
    return chance.choice([replica for replica in replicas if replica.inflight == fewest])


def fewest_sent(replicas: Sequence[Replica], chance: Random) -> Replica:
    """The one that this router has sent the fewest requests: each in turn."""
    return min(replicas, key=lambda replica: replica.request_count)


POLICIES: dict[str, Policy] = {
    "two-choices": two_choices,
    "least-busy": least_busy,
    "round-robin": fewest_sent,
}
"""The policies by the name that `--policy` has for them."""
