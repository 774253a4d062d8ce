"""Many threads and event loops wait, and one at a time reads for all of them."""

from __future__ import annotations

import asyncio
import random
import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tritonpy.ipc import frame
from tritonpy.ipc.channel import Endpoint, WorkerChannel
from tritonpy.ipc.frame import FrameReader
from tritonpy_backend_python.worker.inbox import Inbox, ServerGone

TIMEOUT_S = 20


class Pair:
    """An inbox, and the far end of its channel."""

    def __init__(self):
        self.server, theirs = socket.socketpair()
        segments, their_segments = socket.socketpair()
        self.server.settimeout(TIMEOUT_S)
        self.endpoint = Endpoint(segments)
        self.channel = WorkerChannel(theirs, their_segments)
        self.inbox = Inbox(self.channel)
        self.reader = FrameReader()

    def send(self, kind, *payload):
        self.server.sendall(self.endpoint.pack(kind, *payload))

    def asked(self):
        """Yields the numbers that come in ASK messages."""
        while data := self.server.recv(1 << 16):
            for message in self.reader.feed(data):
                yield message[2]

    def ask(self):
        """One question, and its answer's value."""
        number, waiter = self.inbox.open()
        self.channel.send(frame.ASK, number, "what", ())
        try:
            return number, self.inbox.next_reply(waiter)[3]
        finally:
            self.inbox.close(number)

    async def ask_async(self):
        number, waiter = self.inbox.open()
        self.channel.send(frame.ASK, number, "what", ())
        try:
            return number, (await self.inbox.next_reply_async(waiter))[3]
        finally:
            self.inbox.close(number)

    def close(self):
        self.server.close()
        self.endpoint.close()
        self.channel.close()


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.close()


def answer_all(pair, seed, count):
    """A server that answers out of order and mixes commands in; returns how many commands it sent."""
    chance = random.Random(seed)
    held, commands, answered = [], 0, 0
    while answered < count:
        is_more_there = bool(select.select([pair.server], [], [], 0 if held else TIMEOUT_S)[0])
        if is_more_there and (not held or chance.random() < 0.6):
            held += [message[2] for message in pair.reader.feed(pair.server.recv(64))]
        elif held:
            number = held.pop(chance.randrange(len(held)))
            pair.send(frame.ANSWER, number, number * 2, None)
            answered += 1
        if chance.random() < 0.3:
            commands += 1
            pair.send(frame.EXECUTE, commands, [])
    pair.send(frame.FINALIZE)
    return commands


@pytest.mark.parametrize("seed", range(5))
def test_every_reply_reaches_its_own_waiter_and_every_command_the_session_in_order(pair, seed):
    threads, each, tasks = 16, 20, 16

    def on_loop():
        async def all_at_once():
            return await asyncio.gather(*(pair.ask_async() for _ in range(tasks)))

        return asyncio.run(all_at_once())

    def session():
        numbers = []
        while (message := pair.inbox.next_command())[0] == frame.EXECUTE:
            numbers.append(message[2])
        return numbers

    with ThreadPoolExecutor(threads + 4) as pool:
        server = pool.submit(answer_all, pair, seed, threads * each + 2 * tasks)
        commands = pool.submit(session)
        askers = [pool.submit(lambda: [pair.ask() for _ in range(each)]) for _ in range(threads)]
        loops = [pool.submit(on_loop) for _ in range(2)]
        answers = [answer for asker in (*askers, *loops) for answer in asker.result(TIMEOUT_S)]

        assert commands.result(TIMEOUT_S) == list(range(1, server.result(TIMEOUT_S) + 1))
    assert len({number for number, _ in answers}) == len(answers) == threads * each + 2 * tasks
    assert all(value == number * 2 for number, value in answers)


def test_a_thread_that_stops_reading_hands_on_to_one_that_still_waits(pair):
    with ThreadPoolExecutor() as pool:
        first = pool.submit(pair.ask)
        number = next(pair.asked())
        second = pool.submit(pair.ask)
        other = next(pair.asked())
        pair.send(frame.ANSWER, number, "first", None)
        assert first.result(TIMEOUT_S) == (number, "first")

        pair.send(frame.ANSWER, other, "second", None)
        assert second.result(TIMEOUT_S) == (other, "second")


def test_everybody_hears_that_the_server_is_gone(pair):
    outcomes = []

    def ask():
        try:
            pair.ask()
        except ServerGone as exc:
            outcomes.append(str(exc))

    async def ask_async():
        with pytest.raises(ServerGone):
            await pair.ask_async()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    threads.append(threading.Thread(target=lambda: asyncio.run(ask_async())))
    for thread in threads:
        thread.start()
    asked = pair.asked()
    for _ in threads:
        next(asked)
    pair.server.shutdown(socket.SHUT_RDWR)

    for thread in threads:
        thread.join(TIMEOUT_S)
    assert outcomes == ["the server is gone"] * 4
    assert pair.inbox.next_command() is None
    with pytest.raises(ServerGone):
        pair.inbox.open()


def test_what_nobody_waits_for_any_more_gives_its_memory_back(pair):
    number, _ = pair.inbox.open()
    pair.inbox.close(number)
    output = ("Y", "UINT8", (1 << 20,), pair.endpoint.export(bytes(1 << 20)))
    pair.send(frame.CALLED, number, ([output], None, None), True)
    pair.send(frame.FINALIZE)

    assert pair.inbox.next_command()[0] == frame.FINALIZE
    pair.channel.send(frame.FINALIZED, None)
    [message] = pair.reader.feed(pair.server.recv(1 << 16))
    pair.endpoint.accept(message)
    assert pair.endpoint.arena.leased_count == 0


def test_a_task_that_is_cancelled_leaves_the_loop_as_it_found_it(pair):
    async def run():
        task = asyncio.ensure_future(pair.ask_async())
        await asyncio.to_thread(lambda: next(pair.asked()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not asyncio.get_running_loop().remove_reader(pair.channel.fileno())

    asyncio.run(run())
