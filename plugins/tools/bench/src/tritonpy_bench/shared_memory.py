"""Tensors in the system's shared memory, registered with the server, instead of in requests."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory

from tritonpy.tensor import Tensor

from tritonpy_bench.errors import BenchError
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


class Regions:
    """The regions of a load: one for all inputs, one for all outputs. All requests write into the latter.

    Args:
        target: the server with which they are registered.
        input_byte_size: room for the inputs of all requests.
        outputs: the model's outputs.
        output_byte_size: room for each of them.
    """

    def __init__(
        self, target: Target, input_byte_size: int, outputs: Sequence[str], output_byte_size: int
    ) -> None:
        self._target = target
        self._name = f"bench_{os.getpid()}_{secrets.token_hex(4)}"  # macOS takes no 32 characters
        self._end = 0
        self._stack = ExitStack()
        self.outputs: dict[str, Region] = {}
        try:
            self._memory = self._registered(f"{self._name}_in", input_byte_size)
            if outputs:
                step = output_byte_size + -output_byte_size % ALIGNMENT
                name = f"{self._name}_out"
                self._registered(name, step * len(outputs))
                self.outputs = {
                    output: Region(name, index * step, output_byte_size)
                    for index, output in enumerate(outputs)
                }
        except BaseException:
            self.close()
            raise

    def put(self, tensor: Tensor) -> Region:
        """Write an input behind those that are there."""
        wire = tensor.wire()
        size = memoryview(wire).nbytes
        region = Region(f"{self._name}_in", self._end, size)
        assert self._memory.buf is not None  # it is open
        self._memory.buf[self._end : self._end + size] = memoryview(wire).cast("B")
        self._end += size + -size % ALIGNMENT
        return region

    def close(self) -> None:
        """Unregister and remove them."""
        self._stack.close()

    def _registered(self, name: str, byte_size: int) -> SharedMemory:
        try:
            memory = SharedMemory(name, create=True, size=max(1, byte_size))
        except OSError as error:
            raise BenchError(f"shared memory of {byte_size} bytes: {error.strerror or error}") from None
        self._stack.callback(memory.unlink)
        self._stack.callback(memory.close)
        self._target.register(name, f"/{memory.name.lstrip('/')}", max(1, byte_size))
        self._stack.callback(self._target.unregister, name)
        return memory


@contextmanager
def open_regions(
    target: Target, facts: ModelFacts, input_byte_size: int, output_byte_size: int
) -> Iterator[Regions]:
    """Regions for a model's tensors, until the load is over.

    Raises:
        BenchError: the server does not take them; it has to run on this machine.
    """
    regions = Regions(target, input_byte_size, [output.name for output in facts.outputs], output_byte_size)
    try:
        yield regions
    finally:
        regions.close()
