"""Tensors in shared memory that is registered with the server, instead of in requests."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Protocol

from tritonpy.tensor import Tensor

from tritonpy_bench.errors import BenchError
from tritonpy_bench.load import Load
from tritonpy_bench.target import ModelFacts, Target

ALIGNMENT = 64
"""Tensors begin at multiples of so many bytes."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a registered region: the place of a tensor.

    Attributes:
        name: by which the region is registered.
        offset: where the tensor begins in it.
        byte_size: the room it has.
    """

    name: str
    offset: int
    byte_size: int

    @property
    def parameters(self) -> Mapping[str, str | int]:
        """What an input or output of a request says of it."""
        return {
            "shared_memory_region": self.name,
            "shared_memory_byte_size": self.byte_size,
            "shared_memory_offset": self.offset,
        }


class Memory(Protocol):
    """Makes regions of one kind of memory and registers them with a server."""

    def register(self, name: str, byte_size: int, stack: ExitStack) -> None:
        """Make a region; the stack unregisters and removes it.

        Raises:
            BenchError: it cannot be made, or the server does not take it.
        """

    def write(self, name: str, content: bytes | bytearray) -> None:
        """Fill a region."""


class SystemMemory:
    """The system's shared memory; satisfies `Memory`.

    Args:
        target: the server.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._regions: dict[str, SharedMemory] = {}

    def register(self, name: str, byte_size: int, stack: ExitStack) -> None:
        try:
            memory = SharedMemory(name, create=True, size=byte_size)
        except OSError as error:
            raise BenchError(f"shared memory of {byte_size} bytes: {error.strerror or error}") from None
        stack.callback(memory.unlink)
        stack.callback(memory.close)
        self._target.register(name, f"/{memory.name.lstrip('/')}", byte_size)
        stack.callback(self._target.unregister, name)
        self._regions[name] = memory

    def write(self, name: str, content: bytes | bytearray) -> None:
        buffer = self._regions[name].buf
        assert buffer is not None  # it is open
        buffer[: len(content)] = content


class Regions:
    """The regions of a load: one for all inputs, one for all outputs. All requests write into the latter.

    Args:
        memory: where they are.
        input_byte_size: room for the inputs of all requests.
        outputs: the model's outputs.
        output_byte_size: room for each of them.
    """

    def __init__(
        self, memory: Memory, input_byte_size: int, outputs: Sequence[str], output_byte_size: int
    ) -> None:
        self._memory = memory
        self._name = f"bench_{os.getpid()}_{secrets.token_hex(4)}"  # macOS takes no 32 characters
        self._content = bytearray()
        self._stack = ExitStack()
        self.outputs: dict[str, Region] = {}
        try:
            memory.register(f"{self._name}_in", max(1, input_byte_size), self._stack)
            if outputs:
                step = output_byte_size + -output_byte_size % ALIGNMENT
                name = f"{self._name}_out"
                memory.register(name, step * len(outputs), self._stack)
                self.outputs = {
                    output: Region(name, index * step, output_byte_size)
                    for index, output in enumerate(outputs)
                }
        except BaseException:
            self.close()
            raise

    def put(self, tensor: Tensor) -> Region:
        """Put an input behind those that are there; `write` brings all of them into the region."""
        wire = memoryview(tensor.wire()).cast("B")
        region = Region(f"{self._name}_in", len(self._content), wire.nbytes)
        self._content += wire
        self._content += bytes(-wire.nbytes % ALIGNMENT)
        return region

    def write(self) -> None:
        """Fill the region of inputs."""
        if self._content:
            self._memory.write(f"{self._name}_in", self._content)
            self._content = bytearray()

    def close(self) -> None:
        """Unregister and remove them."""
        self._stack.close()


@contextmanager
def open_regions(target: Target, load: Load, facts: ModelFacts, input_byte_size: int) -> Iterator[Regions]:
    """Regions for a model's tensors, until the load is over.

    Raises:
        BenchError: the server does not take them; it has to run on this machine.
    """
    memory: Memory
    if load.shared_memory == "cuda":
        from tritonpy_bench.cuda_memory import CudaMemory

        memory = CudaMemory(target, load.cuda_device)
    else:
        memory = SystemMemory(target)
    outputs = [output.name for output in facts.outputs]
    regions = Regions(memory, input_byte_size, outputs, load.output_byte_size)
    try:
        yield regions
    finally:
        regions.close()
