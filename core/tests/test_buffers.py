from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.buffers import BlockPool, byte_view

MIB = 1 << 20


def address(array: np.ndarray) -> int:
    """Where the block lies; a plain number, so that asking keeps nothing alive."""
    return int(array.__array_interface__["data"][0])


VIEWS: dict[str, Callable[[np.ndarray], object]] = {
    "slice": lambda block: block[5:9],
    "slice of a slice": lambda block: block[64:][::2][1:3],
    "typed view": lambda block: block[:4096].view(np.float32),
    "reshaped": lambda block: block[:4096].reshape(64, 64).T[1],
    "memoryview": lambda block: memoryview(block)[8:16],
    "data attribute": lambda block: block[16:32].data,
    "array over a memoryview": lambda block: np.frombuffer(memoryview(block)[128:], np.int64),
    "dlpack": lambda block: np.from_dlpack(block),
    "read-only view": lambda block: np.lib.stride_tricks.as_strided(block, (10,), (1,), writeable=False),
    "iterator": lambda block: iter(memoryview(block)),
}


@pytest.mark.parametrize("view_of", VIEWS.values(), ids=VIEWS.keys())
def test_a_block_is_not_reused_while_any_view_of_it_lives(view_of):
    pool = BlockPool()
    block = pool.lease(MIB)
    where = address(block)
    view = view_of(block)
    del block
    gc.collect()

    assert address(pool.lease(MIB)) != where

    del view
    assert address(pool.lease(MIB)) == where


def test_bytes_a_slow_reader_holds_survive_a_thousand_later_leases():
    pool = BlockPool()
    block = pool.lease(MIB)
    block[:] = 1
    held = memoryview(block)[: MIB // 2]
    del block

    for round_number in range(1000):
        pool.lease(MIB)[:] = round_number % 256

    assert bytes(held) == b"\x01" * (MIB // 2)


@given(st.lists(st.integers(1, 4 * MIB), min_size=1, max_size=12))
def test_leased_blocks_have_the_size_asked_for_and_never_overlap(sizes):
    pool = BlockPool()

    blocks = [pool.lease(size) for size in sizes]

    ranges = sorted((address(block), address(block) + block.nbytes) for block in blocks)
    assert [block.nbytes for block in blocks] == sizes
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_a_block_serves_every_size_of_its_class():
    pool = BlockPool()
    where = address(pool.lease(600_000))

    assert address(pool.lease(MIB)) == where
    assert address(pool.lease(MIB + 1)) != where


@given(st.lists(st.integers(BlockPool.SMALLEST, 2**20), min_size=1, max_size=8))
def test_large_blocks_begin_where_frameworks_take_them_without_a_copy(sizes):
    pool = BlockPool()

    blocks = [pool.lease(size) for size in sizes]  # held, so that each lies elsewhere

    assert all(address(block) % BlockPool.ALIGNMENT == 0 for block in blocks)


def test_small_and_empty_blocks_are_not_pooled():
    pool = BlockPool()
    block = pool.lease(BlockPool.SMALLEST - 1)

    assert block.nbytes == BlockPool.SMALLEST - 1
    assert block.base is None
    assert pool.lease(0).nbytes == 0


def free_byte_size(pool: BlockPool) -> int:
    return sum(size * len(blocks) for size, blocks in pool._free.items())


def test_a_full_pool_lets_memory_go():
    pool = BlockPool(retained_byte_size=2 * MIB)
    blocks = [pool.lease(MIB) for _ in range(3)]

    blocks.clear()

    assert free_byte_size(pool) == 2 * MIB


def test_blocks_may_die_on_any_thread():
    pool = BlockPool()
    failures: list[str] = []

    def work(seed: int) -> None:
        held = []
        for round_number in range(300):
            block = pool.lease(BlockPool.SMALLEST + seed)
            block[:] = seed
            held.append(block)
            if len(held) > 3 and not (held.pop(0) == seed).all():
                failures.append(f"thread {seed}, round {round_number}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert free_byte_size(pool) == pool._retained


def test_a_block_outlives_its_pool():
    pool = BlockPool()
    block = pool.lease(MIB)
    block[:] = 7
    del pool
    gc.collect()

    assert (block == 7).all()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.arange(6, dtype=np.int16).reshape(2, 3).T,
        np.array(5.0),
        np.empty((0, 4), np.float32),
        np.array([True, False]),
    ],
    ids=["contiguous", "transposed", "scalar", "empty", "bool"],
)
def test_byte_view_is_the_row_major_bytes_of_any_array(array):
    view = byte_view(array)

    assert (view.format, view.ndim, view.nbytes) == ("B", 1, array.nbytes)
    assert bytes(view) == array.tobytes()


def test_byte_view_of_a_contiguous_array_is_no_copy():
    array = np.zeros(4, np.int32)

    byte_view(array)[0] = 9

    assert array[0] == 9
