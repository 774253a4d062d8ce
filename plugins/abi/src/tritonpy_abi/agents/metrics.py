"""Metrics of agents: each of their processes tells them with every answer, and what it told last is shown."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Sequence

from tritonpy.abi_host import MetricFamily, MetricSample, add_metrics

_lock = threading.Lock()  # guards the next two
_told: dict[int, Sequence[MetricFamily]] = {}


@functools.cache
def _begin() -> None:
    add_metrics(_shown)


def show(pid: int, families: Sequence[MetricFamily]) -> None:
    """Show these from now on, instead of what the process told before."""
    with _lock:
        _told[pid] = families
        _begin()


def forget(pid: int) -> None:
    """Show no more of a process, which is gone."""
    with _lock:
        _told.pop(pid, None)


def _shown() -> Iterable[MetricFamily]:
    """A family for each name, as there would be if all agents were in one process.

    Where several agents have the same labels in it, those of the first one that began count.
    """
    with _lock:
        told = [family for families in _told.values() for family in families]
    first: dict[str, MetricFamily] = {}
    samples: dict[str, dict[frozenset[tuple[str, str]], MetricSample]] = {}
    for family in told:
        known = first.setdefault(family.name, family)
        if family.kind == known.kind:
            for sample in family.samples:
                samples.setdefault(family.name, {}).setdefault(frozenset(sample.labels.items()), sample)
    return [
        MetricFamily(family.name, family.description, family.kind, [*samples.get(name, {}).values()])
        for name, family in first.items()
    ]
