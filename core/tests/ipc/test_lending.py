"""A block that one worker wrote is read by another one where it is."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator

import numpy as np
import pytest
from tritonpy.ipc.arena import SharedMemoryExhausted
from tritonpy.ipc.channel import Endpoint

from .conftest import open_descriptors

MIB = 1024 * 1024


class Wire:
    """Both ends of one channel's shared memory; releases travel when told to."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.server = Endpoint(ours, lends=True)
        self.worker = Endpoint(theirs)
        self.forgotten: list[int] = []
        self.server.arena.on_forget = self._forget

    def _forget(self, segment: int) -> None:
        self.worker.peer.forget(segment)
        self.forgotten.append(segment)

    def give_back(self) -> None:
        """Bring the references that each end has finished reading to the other one."""
        gc.collect()
        for ours, theirs in ((self.worker, self.server), (self.server, self.worker)):
            while ours._releases:
                theirs.arena.release(ours._releases.popleft())

    def close(self) -> None:
        self.server.close()
        self.worker.close()


@pytest.fixture
def wires() -> Iterator[tuple[Wire, Wire]]:
    pair = Wire(), Wire()
    yield pair
    for wire in pair:
        wire.close()


def written_by(wire: Wire, content: bytes) -> np.ndarray:
    """A block as the server sees it after the worker of `wire` has sent it."""
    return wire.server.adopt(wire.worker.export(content))


def test_the_borrower_reads_the_writer_s_own_memory(wires):
    writer, reader = wires
    block = written_by(writer, b"a" * MIB)

    read = reader.worker.adopt(reader.server.lend_or_export(block))
    block[:3] = np.frombuffer(b"xyz", np.uint8)

    assert read[:4].tobytes() == b"xyza"
    assert reader.server.arena.byte_size == 0


def test_a_lent_block_goes_back_to_its_writer_only_when_nobody_reads_it(wires):
    writer, reader = wires
    block = written_by(writer, b"a" * MIB)
    first = reader.worker.adopt(reader.server.lend_or_export(block))
    second = reader.worker.adopt(reader.server.lend_or_export(block))
    del block
    writer.give_back()
    assert writer.worker.arena.leased_count == 1

    del first
    reader.give_back()
    writer.give_back()
    assert writer.worker.arena.leased_count == 1

    del second
    reader.give_back()
    writer.give_back()
    assert writer.worker.arena.leased_count == 0
    assert reader.server.arena.leased_count == 0


def test_small_tensors_and_the_server_s_own_bytes_are_exported(wires):
    _, reader = wires

    assert reader.server.lend_or_export(b"abc") == b"abc"
    own = np.full(MIB, 7, np.uint8)
    assert reader.worker.adopt(reader.server.lend_or_export(own)).tobytes() == own.tobytes()
    assert reader.server.arena.byte_size > 0


def test_a_segment_is_forgotten_once_its_writer_is_gone_and_nobody_reads_it(wires):
    writer, reader = wires
    block = written_by(writer, b"a" * MIB)
    read = reader.worker.adopt(reader.server.lend_or_export(block))
    del block

    writer.close()
    assert reader.forgotten == []
    assert read.tobytes() == b"a" * MIB

    del read
    reader.give_back()
    assert reader.forgotten == [0]


def test_a_segment_nobody_reads_is_forgotten_as_soon_as_its_writer_is_gone(wires):
    writer, reader = wires
    reader.worker.adopt(reader.server.lend_or_export(written_by(writer, b"a" * MIB)))
    reader.give_back()
    writer.close()

    assert reader.forgotten == [0]


def test_a_reader_that_dies_gives_back_what_was_lent_to_it(wires):
    writer, reader = wires
    block = written_by(writer, b"a" * MIB)
    reader.server.lend_or_export(block)
    del block

    reader.server.close()
    writer.give_back()

    assert writer.worker.arena.leased_count == 0
    assert writer.server.peer.on_close == {}


def test_closing_leaves_no_descriptor_open():
    gc.collect()
    before = open_descriptors()
    writer, reader = Wire(), Wire()
    reader.worker.adopt(reader.server.lend_or_export(written_by(writer, b"a" * MIB)))

    writer.close()
    reader.close()
    del writer, reader  # a mapping holds a descriptor too
    gc.collect()

    assert open_descriptors() <= before


def test_what_does_not_fit_names_the_size_wanted_the_size_free_and_the_setting(wires):
    writer, _ = wires
    arena = writer.worker.arena
    arena.first_byte_size = arena.growth_byte_size = MIB
    arena.most_byte_size = 2 * MIB
    held = arena.allocate(MIB)

    with pytest.raises(SharedMemoryExhausted) as refusal:
        arena.allocate(2 * MIB - 5)

    for part in (f"wanted {2 * MIB - 5} bytes", "free are 0 bytes", f"of {2 * MIB}", "shm-max-byte-size"):
        assert part in str(refusal.value)
    assert held[1].nbytes == MIB
    assert arena.allocate(MIB)[1].nbytes == MIB
