"""A GPU as the server knows it, and the interface of what finds GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU.

    Attributes:
        id: its number in configurations: the position among the devices that this process may see.
        name: what the vendor calls it.
        uuid: its identity, which no reordering changes.
        compute_capability: of CUDA, such as (8, 6).
        memory_byte_size: all of its memory.
        free_memory_byte_size: what was free when it was found.
        pci_bus: where it is plugged in, such as `0000:3b:00.0`.
        numa_node: the node of the machine's memory that is nearest; None where the system does not say.
    """

    id: int
    name: str
    uuid: str
    compute_capability: tuple[int, int]
    memory_byte_size: int
    free_memory_byte_size: int
    pci_bus: str
    numa_node: int | None = None

    @property
    def capability_text(self) -> str:
        """The compute capability as the keys of `cc_model_filenames` are written: `8.6`."""
        major, minor = self.compute_capability
        return f"{major}.{minor}"


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """Load, memory and power of a GPU at one moment; None for what it does not tell.

    Attributes:
        utilization: the part of the time, from 0 to 1, in which something ran on it lately.
        memory_byte_size, used_memory_byte_size: its memory, and the part taken by all processes.
        power_w, power_limit_w: what it draws, and the most that it may.
        energy_j: what it has drawn since its driver was loaded.
    """

    utilization: float | None = None
    memory_byte_size: int | None = None
    used_memory_byte_size: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None


class NoDevices(Exception):
    """There is nothing to be found, and the text says why."""


class DeviceFinder(Protocol):
    """Finds GPUs and looks at their memory; may block, and is asked on threads that may."""

    def find(self) -> Sequence[Device]:
        """The GPUs that this process may use, in the order of their ids.

        Raises:
            NoDevices: why there are none.
        """

    def used_memory_byte_size(self, device: Device) -> int:
        """Bytes of a device's memory that all processes take now.

        Raises:
            NoDevices: it cannot be asked any more.
        """

    def sample(self, device: Device) -> DeviceSample:
        """Sample a device now.

        Raises:
            NoDevices: it cannot be asked any more.
        """
