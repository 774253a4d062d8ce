"""What a server and the processes under it cost: CPU time and memory, read from /proc.

A server's Python models run in processes of their own, so the process we started is never the whole answer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

US_PER_TICK = 1_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class TreeMemory:
    """Memory of a process tree. PSS counts a page shared by n processes as 1/n in each, so it adds up."""

    processes: int
    rss_mib: float
    pss_mib: float | None  # None where the kernel does not tell


def tree_pids(root_pid: int) -> list[int]:
    """Return `root_pid` and every process that descends from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat_fields(int(entry.name))
            if fields is not None:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root_pid]
    for pid in found:  # grows while we walk it
        found.extend(children.get(pid, []))
    return found


def cpu_time_us(root_pid: int) -> int:
    """Return the tree's user and system time so far, with that of children already waited for."""
    ticks = 0
    for pid in tree_pids(root_pid):
        fields = _stat_fields(pid)
        if fields is not None:
            ticks += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return ticks * US_PER_TICK


def memory(root_pid: int) -> TreeMemory:
    """Return what the tree holds in memory now."""
    pids = tree_pids(root_pid)
    rss_kib = 0
    pss_kib: int | None = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            pss_kib = None
            rss_kib += _rss_kib(pid)
            continue
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
        rss_kib += sizes["Rss"]
        if pss_kib is not None:
            pss_kib += sizes["Pss"]
    return TreeMemory(
        len(pids), round(rss_kib / 1024, 1), None if pss_kib is None else round(pss_kib / 1024, 1)
    )


def _rss_kib(pid: int) -> int:
    """Return the resident size of one process, 0 if it has gone."""
    fields = _stat_fields(pid)
    return 0 if fields is None else int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 1024


def _stat_fields(pid: int) -> list[str] | None:
    """Return /proc/PID/stat from the state on; the name before it may hold blanks and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
