"""Memory that was freed goes back to the system, whichever allocator the process has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tritonpy.cli.malloc import ALLOCATORS, MallocUnavailable, find_library

# Many blocks that are too small to be mapped each for itself, and one at the end that is kept: it keeps the
# heap from shrinking by itself.
PROGRAM = """
import os
from tritonpy.model.malloc_trim import give_memory_back

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = resident()
blocks = [b"x" * (100_000 + number) for number in range(1000)]
kept = blocks[-1]
full = resident()
del blocks
give_memory_back()
print(before, full, resident())
"""


def measure(**variables: str) -> tuple[int, int]:
    """How much the blocks took, and how much of it is left after they were given back."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **variables},
    )
    assert result.stderr == ""
    before, full, after = map(int, result.stdout.split())
    return full - before, after - before


@pytest.mark.skipif(sys.platform != "linux", reason="allocators of Linux")
def test_freed_memory_goes_back_to_the_system() -> None:
    taken, left = measure()

    assert taken > 90_000_000
    assert left < 10_000_000


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.skipif(sys.platform != "linux", reason="allocators of Linux")
def test_freed_memory_goes_back_with_other_allocators_too(name: str) -> None:
    try:
        library = find_library(name)
    except MallocUnavailable as exc:
        pytest.skip(str(exc))
    taken, left = measure(LD_PRELOAD=str(library))

    assert taken > 90_000_000
    assert left < 10_000_000
