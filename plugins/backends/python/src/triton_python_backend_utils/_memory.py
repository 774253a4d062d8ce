"""The memory of tensors: where a called model's outputs should be, and what is free."""

from __future__ import annotations

from enum import Enum, IntEnum

from ._arguments import integer
from ._link import current_link


class SharedMemory:
    """The memory that large tensors of this process travel through; one for each process."""

    def free_memory(self) -> int:
        """Its free bytes; 0 where no server is. It grows when more are needed."""
        link = current_link()
        return link.free_memory() if link is not None else 0


shared_memory = SharedMemory()


class MemoryType(IntEnum):
    """Kinds of memory; models write `pb_utils.TRITONSERVER_MEMORY_CPU`."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1

    __str__ = Enum.__str__


TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


class PreferredMemory:
    """A hint: outputs are in host memory in any case, as long as models' tensors are.

    Args:
        preferred_memory_type: `TRITONSERVER_MEMORY_CPU` or `TRITONSERVER_MEMORY_GPU`.
        preferred_device_id: the GPU's number.

    Raises:
        TypeError: an argument is of the wrong type.
    """

    __slots__ = ("_device_id", "_memory_type")

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        if not isinstance(preferred_memory_type, MemoryType):
            kind = type(preferred_memory_type).__name__
            raise TypeError(f"PreferredMemory: preferred_memory_type must be a MemoryType, got {kind}")
        self._memory_type = preferred_memory_type
        self._device_id = integer(
            "PreferredMemory: preferred_device_id", preferred_device_id, -(2**63), 2**63 - 1
        )

    def __repr__(self) -> str:
        return f"PreferredMemory({self._memory_type.name}, {self._device_id})"
