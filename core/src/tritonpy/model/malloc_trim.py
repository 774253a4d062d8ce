"""Return of freed memory to the system; allocators keep it for later requests otherwise.

What a model's framework frees when the model is unloaded stays with the process: the allocator expects that
it will be needed again. For a server that loads and unloads models that is often wrong, and looks like a
leak.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

_ALL_ARENAS = b"arena.4096.purge"
"""jemalloc: the unused pages of every arena; 4096 is its MALLCTL_ARENAS_ALL."""


@cache
def _find_release() -> Callable[[], Any] | None:  # Any: what a C function returns
    """The function of this process's allocator; None where there is none that is known."""
    if sys.platform != "linux":
        return None
    process = ctypes.CDLL(None)
    # An allocator that was preloaded comes before the C library, whose functions are there in any case.
    if hasattr(process, "MallocExtension_ReleaseFreeMemory"):  # tcmalloc
        return process.MallocExtension_ReleaseFreeMemory
    if hasattr(process, "mallctl"):  # jemalloc
        return lambda: process.mallctl(_ALL_ARENAS, None, None, None, ctypes.c_size_t(0))
    if hasattr(process, "malloc_trim"):  # glibc
        return lambda: process.malloc_trim(ctypes.c_size_t(0))
    return None


def give_memory_back() -> None:
    """Have the allocator return what it does not need; blocking, some milliseconds for a gigabyte.

    Other threads go on meanwhile, but may wait for a moment when they ask for memory.
    """
    release = _find_release()
    if release is not None:
        release()
