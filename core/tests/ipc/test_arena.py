from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.ipc.arena import Arena, PeerSegments, SharedMemoryExhausted

from .conftest import mapped_segments, open_descriptors

KIB = 1024
MIB = 1024 * KIB


@contextmanager
def both_ends() -> Iterator[tuple[Arena, PeerSegments]]:
    """An arena and the view its peer has of it; what the peer releases goes back at once."""
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    theirs.settimeout(30)
    with ours, theirs:
        arena = Arena(ours)
        yield arena, PeerSegments(theirs, arena.release)


def new_segments(before: set[str]) -> list[str]:
    """What is mapped that was not before: one for each mapping."""
    return [inode for inode in mapped_segments() if inode not in before]


@pytest.fixture
def ends() -> Iterator[tuple[Arena, PeerSegments]]:
    with both_ends() as ends:
        yield ends


@pytest.mark.parametrize("byte_size", [1, 4095, 4096, 4097, 3 * MIB, 4 * MIB, 5 * MIB])
def test_the_other_end_reads_what_was_written(ends, byte_size):
    arena, peer = ends
    content = np.random.default_rng(byte_size).bytes(byte_size)

    reference, view = arena.allocate(byte_size)
    view[:] = content

    assert peer.view(reference, byte_size).tobytes() == content


def test_a_block_is_reused_after_the_last_view_of_it_is_gone(ends):
    arena, peer = ends
    reference, view = arena.allocate(10_000)
    view[:] = b"a" * 10_000
    received = peer.view(reference, 10_000)
    part = memoryview(received.view(np.uint16)[10:20])
    del received
    gc.collect()

    assert arena.leased_count == 1
    assert arena.allocate(10_000)[0] != reference

    del part
    assert arena.leased_count == 1  # the second one
    assert arena.allocate(10_000)[0] == reference


def test_closed_ends_let_go_of_memory_with_its_last_view(ends):
    before = set(mapped_segments())
    arena, peer = ends
    reference, view = arena.allocate(10_000)
    view[:] = b"a" * 10_000
    received = peer.view(reference, 10_000)
    del view

    arena.close()
    peer.close()

    assert received.tobytes() == b"a" * 10_000
    assert len(new_segments(before)) == 1
    del received
    assert new_segments(before) == []


def test_a_freed_block_is_taken_before_new_memory_is_touched(ends):
    arena, peer = ends
    for _ in range(2000):
        reference, _ = arena.allocate(MIB)
        peer.view(reference, MIB)

    assert arena.byte_size == 4 * MIB
    assert arena.leased_count == 0


def test_large_blocks_get_segments_of_their_own_size(ends):
    arena, peer = ends
    reference, view = arena.allocate(9 * MIB)
    view[-1:] = b"z"

    assert arena.byte_size == 16 * MIB
    assert peer.view(reference, 9 * MIB)[-1] == ord("z")


def test_segments_are_found_in_any_order(ends):
    arena, peer = ends
    references = []
    for number in range(5):
        reference, view = arena.allocate(4 * MIB)
        view[:1] = bytes([number])
        references.append(reference)

    assert [peer.view(reference, 1)[0] for reference in reversed(references)] == [4, 3, 2, 1, 0]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6 * MIB), st.booleans()), max_size=25), st.randoms())
def test_leased_blocks_never_overlap_and_keep_their_content(steps, random):
    with both_ends() as (arena, peer):
        held: dict[int, np.ndarray] = {}
        for mark, (byte_size, give_back) in enumerate(steps):
            if give_back and held:
                del held[random.choice(sorted(held))]
            reference, view = arena.allocate(byte_size)
            view[:1] = view[-1:] = bytes([mark])
            assert reference not in held
            held[reference] = peer.view(reference, byte_size)
            held[reference].flags.writeable = False

            assert arena.leased_count == len(held)
            spans = sorted((reference, reference + array.nbytes) for reference, array in held.items())
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))
            assert all(array[0] == array[-1] for array in held.values())
        held.clear()
        assert arena.leased_count == 0


def test_blocks_are_allocated_and_given_back_on_many_threads(ends):
    arena, peer = ends
    with_two_segments = [arena.allocate(4 * MIB)[0] for _ in range(2)]
    for reference in with_two_segments:
        peer.view(reference, 1)
    failures: list[int] = []

    def work(mark: int) -> None:
        for _ in range(300):
            reference, view = arena.allocate(64 * KIB)
            view[:] = bytes([mark]) * len(view)
            received = peer.view(reference, 64 * KIB)
            if not (received == mark).all():
                failures.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert arena.leased_count == 0


def test_two_threads_may_wait_for_the_same_segment():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arena, peer = Arena(ours), PeerSegments(theirs, lambda reference: None)
        threads = [threading.Thread(target=peer.segment, args=(0,), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()

        arena.add_segment(4096)

        for thread in threads:
            thread.join(timeout=20)
        assert not any(thread.is_alive() for thread in threads)


def test_releasing_a_block_that_is_not_leased_is_an_error(ends):
    arena, _ = ends
    reference, _ = arena.allocate(1)
    arena.release(reference)

    with pytest.raises(KeyError):
        arena.release(reference)


def test_a_reference_into_a_segment_that_never_comes_is_an_error_when_the_other_end_is_gone():
    ours, theirs = socket.socketpair()
    with theirs:
        peer = PeerSegments(theirs, lambda reference: None)
        ours.close()

        with pytest.raises(ConnectionError, match="closed the channel before it sent a segment"):
            peer.view(0, 1)


def test_views_outlive_both_ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arena = Arena(ours)
        reference, view = arena.allocate(MIB)
        view[:] = b"x" * MIB
        del view
        received = PeerSegments(theirs, lambda reference: None).view(reference, MIB)
    del arena
    gc.collect()

    assert (received == ord("x")).all()


# Linux: what the kernel knows about the memory.

linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")


@linux
def test_segments_have_no_name_anywhere_and_vanish_with_the_last_user():
    gc.collect()
    before, descriptors = set(mapped_segments()), open_descriptors()

    with both_ends() as (arena, peer):
        peer.view(arena.allocate(MIB)[0], MIB)
        assert len(new_segments(before)) == 2  # mapped at both ends
        assert not [name for name in os.listdir("/dev/shm") if name.startswith("tritonpy-")]
        assert len(open_descriptors() - descriptors) == 2 + 2  # two sockets and mmap's own
        del arena, peer
    gc.collect()

    assert new_segments(before) == []
    assert open_descriptors() <= descriptors


def test_the_memory_of_large_free_blocks_goes_back_beyond_what_is_kept(ends):
    arena, peer = ends
    arena.keep_byte_size = 8 * MIB

    others = set(mapped_segments())

    def resident() -> int:
        lines = Path("/proc/self/smaps").read_text().splitlines()
        is_ours, total = False, 0
        for line in lines:
            if "-" in line.split(" ")[0]:
                is_ours = "memfd:tritonpy" in line and line.split()[4] not in others
            elif is_ours and line.startswith("Rss:"):
                total += int(line.split()[1]) * KIB
        return total

    for _ in range(2):
        blocks = [arena.allocate(8 * MIB) for _ in range(4)]
        for _, view in blocks:
            view[:] = b"x" * (8 * MIB)
        assert resident() >= 32 * MIB
        for reference, _ in blocks:
            peer.view(reference, 8 * MIB)  # read and dropped

        assert resident() <= 9 * MIB
    assert arena.byte_size == 32 * MIB


def test_a_sender_does_not_wait_for_an_end_that_takes_no_segments():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        arena = Arena(ours)
        with pytest.raises(BlockingIOError):
            fill(arena)

        with pytest.raises(SharedMemoryExhausted, match="the other end takes no more segments"):
            arena.allocate(MIB)


def fill(arena: Arena) -> None:
    """Announce segments until the socket holds no more."""
    for _ in range(100_000):
        arena.add_segment(4096)


def test_segments_stay_few_however_much_is_held(ends):
    arena, _ = ends
    for _ in range(256):
        arena.allocate(4 * MIB)

    assert arena.byte_size < 2 * 1024 * MIB
    assert len(arena._segments) < 40


def test_what_was_announced_is_taken_without_waiting(ends):
    arena, peer = ends
    for _ in range(3):
        arena.allocate(4 * MIB)
    peer._socket.settimeout(None)  # with a time limit, Python waits in spite of the flag

    assert peer.receive_announced()
    assert len(peer._segments) == 3
    assert peer.receive_announced()


def test_an_end_that_is_gone_is_no_lack_of_memory():
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(ConnectionError, match="the other end is gone"):
        Arena(ours).allocate(MIB)


def test_a_leased_block_is_passed_on_where_it_is_and_once(ends):
    arena, peer = ends
    block = arena.lease(200_000)
    address = block.ctypes.data
    numbers = block[:160_000].view(np.float32).reshape(200, 200)
    numbers[:] = np.arange(40_000, dtype=np.float32).reshape(200, 200)

    data = numbers.reshape(-1).view(np.uint8).data
    reference = arena.give(data)

    assert peer.view(reference, len(data)).tobytes() == np.arange(40_000, dtype=np.float32).tobytes()
    assert arena.give(data) is None
    gc.collect()  # the other end has no view of it any more
    assert arena.leased_count == 0
    del block, numbers, data
    again = arena.lease(200_000)
    assert again.ctypes.data == address
    assert arena.leased_count == 1


def test_a_leased_block_that_is_dropped_is_free_again(ends):
    arena, _ = ends
    addresses = {arena.lease(200_000).ctypes.data for _ in range(100)}

    assert len(addresses) == 1
    assert arena.byte_size == 4 * MIB


def test_only_what_begins_where_a_leased_block_begins_is_passed_on(ends):
    arena, _ = ends
    block = arena.lease(200_000)

    for other in (block[1:], np.zeros(200_000, np.uint8), np.array(block)):
        assert arena.give(other.data) is None
    for other in (block.data[1:], memoryview(b"bytes")):
        assert arena.give(other) is None
    assert arena.give(block.data) is not None


def test_blocks_that_wait_to_be_written_leave_three_quarters_of_a_limit_to_others(ends):
    arena, _ = ends
    arena.most_byte_size = 4 * MIB
    held = [arena.lease(MIB // 2), arena.lease(MIB // 2)]

    assert all(block is not None for block in held)
    assert arena.lease(1) is None
    arena.give(held[0].data)
    assert arena.lease(1) is not None


def test_no_block_is_leased_where_there_is_no_memory_or_no_other_end():
    with both_ends() as (arena, _):
        arena.most_byte_size = 4 * MIB
        arena.allocate(4 * MIB)
        assert arena.lease(4096) is None
    ours, theirs = socket.socketpair()
    ours.close()
    theirs.close()
    assert Arena(ours).lease(4096) is None
