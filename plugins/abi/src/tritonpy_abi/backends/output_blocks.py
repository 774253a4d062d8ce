"""Memory that a backend in C writes outputs to, and that is answered without a copy."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from tritonpy.plugin import Array

from tritonpy_abi.shim import CData, Shim

_MOST_BYTE_SIZE = 64 * 1024 * 1024
"""Of blocks that wait to be written to, all together."""

_LEAST_BYTE_SIZE = 256 * 1024
"""Of an output: a smaller one is copied in less time than a block takes to be leased (ADR 0036)."""

Lease = Callable[[int], Array | None]
"""See `ModelInstance.lease_output`."""


class OutputBlocks:
    """Gives the library a block for the next output of a size when it has seen one; from any thread.

    Threads of a backend ask for memory and must not wait for the interpreter, so blocks are there before. All
    models of a process share them.

    Args:
        shim: the library.
    """

    def __init__(self, shim: Shim) -> None:
        self._shim = shim
        self._lock = threading.Lock()  # guards the next two
        self._blocks: dict[int, Array] = {}
        self._byte_size = 0

    def take(self, address: int, byte_size: int, lease: Lease) -> Array | None:
        """The block in which an output is, as an array of its bytes; None where it is in memory of C.

        Args:
            address: of the output.
            byte_size: of the output.
            lease: gives a block for the next one.
        """
        if byte_size <= _LEAST_BYTE_SIZE:
            return None
        with self._lock:
            block = self._blocks.pop(address, None)
            if block is not None:
                self._byte_size -= block.nbytes
            self._add(1 << (byte_size - 1).bit_length(), lease)
        return None if block is None else block[:byte_size]

    def _add(self, byte_size: int, lease: Lease) -> None:
        """Lease a block in place of those that nobody has used for the longest time."""
        if byte_size > _MOST_BYTE_SIZE:
            return
        while self._byte_size + byte_size > _MOST_BYTE_SIZE and self._withdraw():
            pass
        block = lease(byte_size)
        if block is not None:
            data: CData = self._shim.ffi.from_buffer(block.data)
            self._blocks[self._address(data)] = block
            self._byte_size += byte_size
            self._shim.lib.TRITONPY_BlockAdd(data, byte_size)

    def _withdraw(self) -> bool:
        data = self._shim.lib.TRITONPY_BlockWithdraw()
        if data == self._shim.ffi.NULL:
            return False
        self._byte_size -= self._blocks.pop(self._address(data)).nbytes
        return True

    def _address(self, data: CData) -> int:
        return int(self._shim.ffi.cast("uintptr_t", data))


@functools.cache
def output_blocks(shim: Shim) -> OutputBlocks:
    """Those of the process."""
    return OutputBlocks(shim)
