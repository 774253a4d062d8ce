"""How much memory the processes behind model instances hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """One worker.

    Attributes:
        model: the name of its model.
        version: the model's version.
        instance: the name of its instance.
        pid: its process id.
        namespace: the repository that tells its model from others of its name; "" where names are unique.
    """

    model: str
    version: str
    instance: str
    pid: int
    namespace: str = ""


class WorkerMemory:
    """Collects the resident memory of all workers; nothing on systems without `/proc/<pid>/statm`.

    Shared memory counts in each process that has touched it, so the sum over workers says more than there is.

    Args:
        registry: where to register; one per server.
        source: names all workers; called on the loop.
        proc: where the system shows its processes.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        source: Callable[[], Iterable[WorkerSnapshot]],
        *,
        proc: Path = _PROC,
    ) -> None:
        self._source = source
        self._proc = proc
        self._taken: tuple[WorkerSnapshot, ...] = ()
        registry.register(self)

    def take(self) -> None:
        """Note who is there; on the loop, before `collect` runs on a thread."""
        self._taken = tuple(self._source())

    def describe(self) -> Iterator[Metric]:
        """The family without samples."""
        yield _family()

    def collect(self) -> Iterator[Metric]:
        """The family with its samples; reads files, so not on the loop."""
        family = _family()
        for worker in self._taken:
            byte_size = self._resident_byte_size(worker.pid)
            if byte_size is not None:
                labels = {"model": worker.model, "version": worker.version, "instance": worker.instance}
                if worker.namespace:
                    labels["namespace"] = worker.namespace
                family.add_sample(family.name, labels, byte_size)
        yield family

    def _resident_byte_size(self, pid: int) -> int | None:
        try:
            pages = int((self._proc / str(pid) / "statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):  # it has just ended, or this system shows it otherwise
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")


def _family() -> Metric:
    return Metric(
        "tritonpy_worker_memory_bytes", "Resident memory of the process behind an instance", "gauge"
    )
