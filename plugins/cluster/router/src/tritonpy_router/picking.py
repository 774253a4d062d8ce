"""The choice of one replica among those that may have a request: pure, with the chance handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from tritonpy_router.model_load import ModelLoad
from tritonpy_router.replica import Replica

Policy: TypeAlias = Callable[[Sequence[Replica], Random, str], Replica]
"""Chooses among at least one replica, for a request to a model; "" for one that concerns none."""

_ALIKE = 1.5
"""Times by the quickest's that count as equal: they are means over requests that differ."""
_GUESS = 4.0
"""Times the quickest's that one takes, for as long as it has answered nothing."""
_PASSED = 1000
"""Requests of which a slow replica gets one, to learn whether it still is: too few for a 99th percentile."""


def two_choices(replicas: Sequence[Replica], chance: Random, model: str = "") -> Replica:
    """The less busy of two that are drawn: nearly as even as looking at all, and routers do not flock.

    Drawn are those that are quick with the model; another one gets it if that one will be done sooner.
    """
    if len(replicas) == 1:
        return replicas[0]
    loads = [(replica, replica.loads.get(model)) for replica in replicas] if model else []
    quickest_s = min(
        (load.service_s for _, load in loads if load is not None and load.service_s), default=0.0
    )
    if not quickest_s:
        return _less_busy_of_two(replicas, chance, model)
    quick, slow = [], []
    for replica, load in loads:
        if load is None or not (load.is_tried or load.inflight):
            return replica  # one request tells how quick it is
        if load.service_s <= _ALIKE * quickest_s and load.is_tried:  # or has told nothing, such as an error
            quick.append(replica)
        else:
            slow.append((replica, load))
    picked = _less_busy_of_two(quick, chance, model)
    return _sooner(picked, slow, quickest_s, model) if slow else picked


def _sooner(
    picked: Replica, slow: Sequence[tuple[Replica, ModelLoad]], quickest_s: float, model: str
) -> Replica:
    """A slow replica that will be done sooner than the one picked or has to be tried, or the one picked."""
    best, best_s = picked, _expected_s(picked.loads[model], quickest_s)
    for replica, load in slow:
        if load.passed_count >= _PASSED and not load.inflight:
            load.forget()
            return replica
        expected_s = _expected_s(load, quickest_s)
        if expected_s < best_s:
            best, best_s = replica, expected_s
    for _, load in slow:
        load.passed_count += 1  # of the best one it begins anew with the request
    return best


def _expected_s(load: ModelLoad, quickest_s: float) -> float:
    """In what time one more request will be answered."""
    service_s = load.service_s or _GUESS * quickest_s
    return service_s * max(1.0, (load.under_way + 1) / load.parallel)


def _less_busy_of_two(replicas: Sequence[Replica], chance: Random, model: str) -> Replica:
    count = len(replicas)
    if count == 1:
        return replicas[0]
    first = int(chance.random() * count)
    second = (first + 1 + int(chance.random() * (count - 1))) % count
    one, other = replicas[first], replicas[second]
    return one if _is_no_busier(one, other, model) else other


def _is_no_busier(one: Replica, other: Replica, model: str) -> bool:
    """Whether a replica has as much to do as another, for each of its instances, or less."""
    load, other_load = one.loads.get(model), other.loads.get(model)
    if load is not None and other_load is not None:
        share = (load.under_way + 1) * max(1, other_load.instance_count)
        other_share = (other_load.under_way + 1) * max(1, load.instance_count)
        if share != other_share:
            return share < other_share
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
