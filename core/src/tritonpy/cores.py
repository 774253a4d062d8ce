"""Processor cores that this process may use, which frameworks count as all cores of the machine."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # quota and period, as version 2 of control groups writes them


def usable_core_count() -> int:
    """Count the cores of the affinity, or those of the control group's quota where that has fewer.

    Returns:
        At least 1; a part of a core counts as one.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, min(cores, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no control group, or no quota ("max")
        return cores
