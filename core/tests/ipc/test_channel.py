from __future__ import annotations

import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tritonpy.ipc.arena import CONTROL_SLOTS
from tritonpy.ipc.channel import (
    CHANNEL_VARIABLE,
    INLINE_BYTE_SIZE,
    SEGMENT_VARIABLE,
    Endpoint,
    WorkerChannel,
)
from tritonpy.ipc.frame import FrameReader

from .conftest import mapped_segments, open_descriptors

INVERT, STATE, IS_CANCELLED, HOLD, HANG = range(1, 6)
MIB = 1024 * 1024


def invert(worker, *arrays: np.ndarray) -> list[np.ndarray]:
    [answer] = worker.ask(INVERT, [worker.endpoint.export(array.data) for array in arrays])
    return [np.frombuffer(worker.endpoint.adopt(data), np.uint8) for data in answer]


def test_small_tensors_travel_in_the_frame_and_large_ones_beside_it(start_worker):
    endpoint = start_worker().endpoint

    assert endpoint.export(b"x" * INLINE_BYTE_SIZE) == b"x" * INLINE_BYTE_SIZE
    assert endpoint.arena.byte_size == 0
    _, byte_size = endpoint.export(b"x" * (INLINE_BYTE_SIZE + 1))
    assert byte_size == INLINE_BYTE_SIZE + 1
    assert endpoint.arena.leased_count == 1


@pytest.mark.parametrize("byte_size", [0, 1, INLINE_BYTE_SIZE, INLINE_BYTE_SIZE + 1, 3 * MIB, 20 * MIB])
def test_tensors_of_any_size_go_to_a_process_and_come_back(start_worker, byte_size):
    array = np.frombuffer(np.random.default_rng(0).bytes(byte_size), np.uint8)

    [inverted] = invert(start_worker(), array)

    assert np.array_equal(inverted, ~array)


@pytest.mark.parametrize("byte_size", [0, INLINE_BYTE_SIZE, INLINE_BYTE_SIZE + 1])
def test_what_lies_elsewhere_is_copied_to_where_it_is_needed_at_once(start_worker, byte_size):
    worker = start_worker()
    source = np.random.default_rng(0).integers(0, 256, byte_size, np.uint8)

    def fill(target):
        assert len(target) == byte_size
        target[:] = source.data

    data = worker.endpoint.export_from(byte_size, fill)
    [[answer]] = worker.ask(INVERT, [data])

    assert np.array_equal(np.frombuffer(worker.endpoint.adopt(answer), np.uint8), ~source)


@pytest.mark.parametrize("byte_size", [1, INLINE_BYTE_SIZE + 1])
def test_what_cannot_be_copied_leaves_no_block_behind(start_worker, byte_size):
    endpoint = start_worker().endpoint

    def fail(target):
        raise ValueError("it is gone")

    with pytest.raises(ValueError, match="it is gone"):
        endpoint.export_from(byte_size, fail)

    assert endpoint.arena.leased_count == 0


def test_blocks_go_round_between_two_processes_without_growing(start_worker):
    worker = start_worker()
    array = np.arange(MIB, dtype=np.uint8)
    sizes = set()

    for _ in range(100):
        first, second = invert(worker, array, array)
        assert np.array_equal(first, ~array)
        del first, second
        sizes.add((worker.endpoint.arena.byte_size, *worker.ask(STATE)[:1]))

    assert sizes == {(4 * MIB, 4 * MIB)}
    # Every message carries back what its sender has finished reading, so one more round frees the rest.
    assert worker.ask(STATE)[1] == 0
    assert worker.endpoint.arena.leased_count == 0


def test_a_tensor_that_is_kept_keeps_its_block_and_its_bytes(start_worker):
    worker = start_worker()
    array = np.arange(MIB, dtype=np.uint8)
    [kept] = invert(worker, array)

    for value in range(20):
        invert(worker, np.full(MIB, value, np.uint8))

    assert np.array_equal(kept, ~array)
    assert worker.ask(STATE)[1] == 1


def test_a_frame_that_cannot_be_encoded_gives_nothing_back_by_mistake(start_worker):
    worker = start_worker()
    invert(worker, np.zeros(MIB, np.uint8))

    with pytest.raises(ValueError, match="unmarshallable"):
        worker.endpoint.pack(INVERT, object())

    assert worker.ask(STATE)[1] == 0


def test_a_cancellation_flag_is_seen_by_the_process(start_worker):
    worker = start_worker()
    flags = worker.endpoint.arena.add_segment(CONTROL_SLOTS)

    before = worker.ask(IS_CANCELLED, CONTROL_SLOTS - 1)
    flags[CONTROL_SLOTS - 1] = 1
    after = worker.ask(IS_CANCELLED, CONTROL_SLOTS - 1)

    assert (before, after) == ((False,), (True,))
    assert worker.ask(IS_CANCELLED, 0) == (False,)


def test_a_worker_ends_when_the_server_closes_the_channel(start_worker):
    worker = start_worker()
    worker.ask(STATE)

    worker.channel.close()

    assert worker.process.wait(timeout=30) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs poll")
def test_a_worker_that_computes_ends_with_its_server(start_worker):
    worker = start_worker("--exit-with-server")
    worker.ask(HANG)

    worker.channel.close()

    assert worker.process.wait(timeout=30) == 1


# A peer that dies


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
def test_killing_a_worker_leaks_neither_memory_nor_descriptors(start_worker):
    gc.collect()
    memory, descriptors = set(mapped_segments()), open_descriptors()
    worker = start_worker()
    [inverted] = invert(worker, np.arange(MIB, dtype=np.uint8))
    worker.ask(HOLD, worker.endpoint.export(bytes(MIB)))
    assert len(mapped_segments(worker.process.pid)) == 2  # its own and the server's
    assert len(set(mapped_segments()) - memory) == 2

    worker.process.send_signal(signal.SIGKILL)
    assert worker.process.wait(timeout=30) == -signal.SIGKILL

    assert worker.channel.recv(1) == b""
    assert np.array_equal(inverted, ~np.arange(MIB, dtype=np.uint8))  # still mapped here
    del inverted
    worker.close()
    gc.collect()
    assert set(mapped_segments()) <= memory
    assert open_descriptors() <= descriptors
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("tritonpy-")]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches a process that is no child of this one")
def test_killing_a_server_ends_its_worker():
    # A process in between plays the server: it starts a worker, tells its pid and is killed.
    folder = str(Path(__file__).parent)
    program = (
        f"import sys, time; sys.path.insert(0, {folder!r})\n"
        "from conftest import Worker\n"
        "worker = Worker('--exit-with-server')\n"
        f"worker.ask({HOLD}, worker.endpoint.export(bytes({MIB})))\n"
        "print(worker.process.pid, flush=True)\n"
        f"worker.send({HANG})\n"
        "time.sleep(3600)\n"
    )
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    with server.stdout:
        worker_pid = int(server.stdout.readline())
    watched = os.pidfd_open(worker_pid)

    server.kill()
    server.wait()

    assert select.select([watched], [], [], 30)[0] == [watched], "the worker outlived its server"
    os.close(watched)


# The worker's end alone


@pytest.fixture
def pair():
    channel, ours = socket.socketpair()
    segments, our_segments = socket.socketpair()
    for end in (channel, ours, segments, our_segments):
        end.settimeout(30)
    worker = WorkerChannel(channel, segments)
    with channel, ours, segments, our_segments:
        yield worker, ours, Endpoint(our_segments)


def test_receive_says_when_the_server_is_gone(pair):
    worker, server, endpoint = pair
    server.sendall(endpoint.pack(STATE, "last"))
    server.close()

    assert worker.receive() == (STATE, (), "last")
    assert worker.receive() is None
    assert worker.receive() is None


def test_receive_gives_messages_one_by_one_however_they_arrive(pair):
    worker, server, endpoint = pair
    stream = b"".join(endpoint.pack(STATE, number) for number in range(5))
    sender = threading.Thread(target=lambda: [server.sendall(bytes([byte])) for byte in stream])
    sender.start()

    received = [worker.receive() for _ in range(5)]

    sender.join()
    assert received == [(STATE, (), number) for number in range(5)]


def test_frames_of_many_senders_do_not_mix(pair):
    worker, server, _ = pair
    senders = [
        threading.Thread(
            target=lambda mark=mark: [worker.send(mark, bytes([mark]) * 5000) for _ in range(100)]
        )
        for mark in range(4)
    ]
    for sender in senders:
        sender.start()

    reader = FrameReader()
    messages = []
    while len(messages) < 400:
        messages.extend(reader.feed(server.recv(1 << 16)))
    for sender in senders:
        sender.join()

    assert all(payload == bytes([kind]) * 5000 for kind, _, payload in messages)


def test_descriptors_are_taken_from_the_environment_and_given_to_no_child(monkeypatch):
    channel, server = socket.socketpair()
    segments, our_segments = socket.socketpair()
    for variable, end in ((CHANNEL_VARIABLE, channel), (SEGMENT_VARIABLE, segments)):
        os.set_inheritable(end.fileno(), True)
        monkeypatch.setenv(variable, str(end.detach()))

    worker = WorkerChannel.from_environment()

    with server, our_segments:
        assert CHANNEL_VARIABLE not in os.environ
        assert SEGMENT_VARIABLE not in os.environ
        assert not worker._socket.get_inheritable()
        worker.send(STATE, 1)
        assert list(FrameReader().feed(server.recv(100))) == [(STATE, (), 1)]
        worker._socket.close()
        worker.endpoint.close()


def test_a_message_sent_while_another_is_sent_follows_it() -> None:
    ours, theirs = socket.socketpair()
    segments, their_segments = socket.socketpair()
    channel = WorkerChannel(theirs, their_segments)

    def interrupted(data: bytes) -> None:
        """Sending is interrupted by a finalizer or a signal handler that sends too."""
        if len(sent) == 0:
            sent.append("first")
            channel.send(STATE, "second")
            channel.send(STATE, "third")
        theirs.sendall(data)

    sent: list[str] = []
    channel.send_by(interrupted)

    channel.send(STATE, "first")

    messages = FrameReader().feed(ours.recv(10_000))
    assert [message[2] for message in messages] == ["first", "second", "third"]
    for end in (ours, theirs, segments, their_segments):
        end.close()
