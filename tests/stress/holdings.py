"""What a server process holds, read from /proc, so that a test can say that nothing has leaked."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonpy_sdk.testing import until

OUR_NAMES = re.compile(r"tritonpy|psm_")  # in /dev/shm: ours, and those of multiprocessing.shared_memory
POOL_THREADS = (os.cpu_count() or 1) + 4  # asyncio makes the threads of its pool when they are needed
WARM_UP_ROUNDS = 50
MOST_GROWTH = 50_000  # bytes a round


@dataclass(frozen=True)
class Holdings:
    """What one process holds at one moment.

    Attributes:
        descriptors: open descriptors, counted by kind.
        thread_count: threads.
        children: names of the children, by process id.
        zombies: children that ended and were not waited for.
        shared_memory_names: entries of /dev/shm that a server of ours could have made.
        mapping_count: mappings of anonymous shared memory.
    """

    descriptors: Counter[str]
    thread_count: int
    children: dict[int, str]
    zombies: tuple[int, ...]
    shared_memory_names: frozenset[str]
    mapping_count: int

    @classmethod
    def of(cls, pid: int) -> Holdings:
        """Read what process `pid` holds now."""
        process = Path(f"/proc/{pid}")
        kinds: Counter[str] = Counter()
        for entry in os.scandir(process / "fd"):
            try:
                kinds[re.sub(r"\[?\d+\]?", "", os.readlink(entry.path))] += 1
            except FileNotFoundError:
                continue  # closed since
        children, zombies = _children(pid)
        return cls(
            descriptors=kinds,
            thread_count=len(os.listdir(process / "task")),
            children=children,
            zombies=zombies,
            shared_memory_names=shared_memory_names(),
            mapping_count=(process / "maps").read_text().count("/memfd:"),
        )

    def leaked_since(self, before: Holdings) -> list[str]:
        """Say what there is more of than before, in words; empty when there is nothing."""
        found = [
            f"{count} more descriptors of {kind}"
            for kind, count in (self.descriptors - before.descriptors).items()
        ]
        if self.thread_count > before.thread_count + POOL_THREADS:
            found.append(f"{self.thread_count} threads, {before.thread_count} before")
        if len(self.children) > len(before.children):
            found.append(f"children {self.children}, {before.children} before")
        if self.zombies:
            found.append(f"zombies {self.zombies}")
        if names := self.shared_memory_names - before.shared_memory_names:
            found.append(f"{sorted(names)} in /dev/shm")
        if self.mapping_count > before.mapping_count:
            found.append(f"{self.mapping_count} mappings of shared memory, {before.mapping_count} before")
        return found


class Watch:
    """Watches a process from round to round, and says at the end what has leaked.

    Args:
        pid: the process after `WARM_UP_ROUNDS` rounds. Its pools have then grown to what the load needs, and
            further rounds should add nothing.
        name: what to call it.
    """

    def __init__(self, pid: int, name: str = "server") -> None:
        self._pid = pid
        self._name = name
        self._before = Holdings.of(pid)
        self.resident: list[int] = []

    @classmethod
    def with_children(cls, pid: int) -> list[Watch]:
        """Watch a server, and its workers where they are to live as long."""
        return [cls(pid), *(cls(child, f"worker {child}") for child in Holdings.of(pid).children)]

    def sample(self) -> None:
        """Note the memory at the end of a round."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        self.resident.append(pages * os.sysconf("SC_PAGE_SIZE"))

    @property
    def growth(self) -> float:
        """Bytes of memory that a round added.

        A server may hold what the last model had for many rounds in a row, and then for many rounds not. So
        this is the lesser of two: the slope of all, and by how much the least of the later half is above the
        least of the earlier one. What leaks shows in both.
        """
        half = len(self.resident) // 2
        risen = (min(self.resident[half:]) - min(self.resident[:half])) / half
        return min(slope(self.resident), risen)

    def check(self) -> str:
        """Fail if anything leaked, once the server had time to clear up; return the figures in words."""
        until(
            lambda: not Holdings.of(self._pid).leaked_since(self._before),
            lambda: f"{self._name} lets go of {'; '.join(Holdings.of(self._pid).leaked_since(self._before))}",
        )
        after = Holdings.of(self._pid)
        assert self.growth < MOST_GROWTH, f"{self._name} grows by {self.growth:,.0f} bytes a round"
        before = self._before
        return (
            f"{self._name}: memory {self.growth:+,.0f} bytes a round, now {self.resident[-1] >> 20} MiB;"
            f" descriptors {before.descriptors.total()} → {after.descriptors.total()},"
            f" threads {before.thread_count} → {after.thread_count},"
            f" children {len(before.children)} → {len(after.children)},"
            f" mappings {before.mapping_count} → {after.mapping_count}"
        )


def shared_memory_names() -> frozenset[str]:
    """What there is in /dev/shm that a server of ours could have made."""
    return frozenset(filter(OUR_NAMES.match, os.listdir("/dev/shm")))


def slope(values: Sequence[float]) -> float:
    """Return by how much the values rise from one to the next, fitted by least squares."""
    middle = (len(values) - 1) / 2
    mean = sum(values) / len(values)
    rise = sum((number - middle) * (value - mean) for number, value in enumerate(values))
    return rise / sum((number - middle) ** 2 for number in range(len(values)))


def _children(pid: int) -> tuple[dict[int, str], tuple[int, ...]]:
    """Return the children of a process, and those of them that ended and are still there."""
    children: dict[int, str] = {}
    zombies = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            name, _, rest = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")
        except (FileNotFoundError, ProcessLookupError):
            continue  # gone since
        state, parent, *_ = rest.split()
        if int(parent) == pid:
            children[int(entry)] = name.partition("(")[2]
            if state == "Z":
                zombies.append(int(entry))
    return children, tuple(zombies)
