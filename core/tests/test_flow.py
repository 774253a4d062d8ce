"""What is held for a client that does not read, and who waits for it."""

from __future__ import annotations

import asyncio
from collections import deque

from hypothesis import given
from hypothesis import strategies as st
from tritonpy.flow import Backlog, FlowLimits, ResponseFlow, flow_limits
from tritonpy.ipc import window
from tritonpy.options import ServerOptions

from .simulator.virtual_loop import VirtualLoop, run

LIMITS = FlowLimits(max_response_count=4, max_byte_size=100, timeout_s=0)


class Client:
    """A backlog and what became of it."""

    def __init__(self, limits: FlowLimits = LIMITS) -> None:
        self.reasons: list[str] = []
        self.backlog = Backlog(limits, self._stalled)

    def _stalled(self, reason: str) -> None:
        self.reasons.append(reason)
        self.backlog.close()


def test_the_limits_are_those_of_the_options() -> None:
    options = ServerOptions((), max_stream_response_count=1, max_stream_byte_size=2, slow_client_timeout_s=3)

    assert flow_limits(options) == FlowLimits(1, 2, 3)
    assert flow_limits(ServerOptions(())) == FlowLimits()


async def test_a_sender_waits_from_the_limit_until_half_of_it() -> None:
    client, flow = Client(), ResponseFlow()
    paused = []
    for _ in range(5):
        client.backlog.add(10, lambda: flow)
        paused.append(flow.is_paused)
    for _ in range(5):
        client.backlog.take(10)
        paused.append(flow.is_paused)

    assert paused == [False, False, False, True, True, True, True, False, False, False]


async def test_a_response_of_any_size_is_held_when_nothing_else_is() -> None:
    client, flow = Client(), ResponseFlow()

    assert client.backlog.add(10**9, lambda: flow)
    assert flow.is_paused


async def test_all_senders_of_a_client_go_on_when_it_has_read() -> None:
    client, flows = Client(), [ResponseFlow(), ResponseFlow()]
    client.backlog.add(100, lambda: flows[0])
    client.backlog.add(100, lambda: flows[1])
    went_on: list[int] = []
    for index, flow in enumerate(flows):
        flow.when_open(lambda index=index: went_on.append(index))  # type: ignore[misc]
    client.backlog.take(100)
    assert went_on == []
    client.backlog.take(100)

    assert went_on == [0, 1]


async def test_who_cannot_wait_is_given_up_far_beyond_the_limit() -> None:
    client, flow = Client(), ResponseFlow()
    count = 0
    while client.backlog.add(1024 * 1024, lambda: flow):
        count += 1

    assert (count - 1) * 1024 * 1024 < 100 + 2 * window.MOST_BYTE_SIZE
    assert client.reasons[0].startswith(f"{count} responses of {count << 20} bytes wait for the client")
    assert not flow.is_paused
    assert not client.backlog.add(1, lambda: flow)


def test_a_client_that_takes_nothing_is_given_up_in_time() -> None:
    async def take_nothing(loop: VirtualLoop) -> list[str]:
        client, flow = Client(FlowLimits(4, 100, timeout_s=30)), ResponseFlow()
        client.backlog.add(200, lambda: flow)
        await asyncio.sleep(29)
        assert client.reasons == []
        await asyncio.sleep(2)
        return client.reasons

    assert run(take_nothing) == [
        "the client has taken nothing for 30 seconds (--slow-client-timeout), while 1 responses of 200 "
        "bytes wait for it"
    ]


def test_a_loop_that_was_kept_from_its_clients_gives_none_up_for_it() -> None:
    async def be_kept(loop: VirtualLoop) -> list[str]:
        client, flow = Client(FlowLimits(4, 100, timeout_s=30)), ResponseFlow()
        client.backlog.add(200, lambda: flow)
        loop.now_ns += 60 * 10**9  # the process stood still
        await asyncio.sleep(1)
        client.backlog.take(200)
        return client.reasons

    assert run(be_kept) == []


def test_a_client_that_takes_nothing_more_is_given_up_in_time() -> None:
    async def stop_taking(loop: VirtualLoop) -> list[str]:
        client, flow = Client(FlowLimits(4, 100, timeout_s=30)), ResponseFlow()
        for _ in range(20):
            client.backlog.add(50, lambda: flow)
        client.backlog.take(50)
        await asyncio.sleep(29)
        assert client.reasons == []
        await asyncio.sleep(10)
        client.backlog.close()
        return client.reasons

    assert len(run(stop_taking)) == 1


def test_a_client_that_takes_something_now_and_then_is_waited_for() -> None:
    async def take_slowly(loop: VirtualLoop) -> None:
        client, flow = Client(FlowLimits(4, 100, timeout_s=30)), ResponseFlow()
        for _ in range(20):
            client.backlog.add(50, lambda: flow)
        for _ in range(8):
            await asyncio.sleep(29)
            client.backlog.take(50)

        assert flow.is_paused
        assert client.reasons == []
        client.backlog.close()

    run(take_slowly)


async def test_a_flow_waits_for_the_one_upstream() -> None:
    flow, upstream = ResponseFlow(), ResponseFlow()
    flow.upstream = upstream
    went_on: list[str] = []
    flow.pause()
    upstream.pause()
    flow.when_open(lambda: went_on.append("x"))
    flow.resume()
    assert went_on == []
    upstream.resume()

    assert went_on == ["x"]


async def test_nobody_waits_for_the_client_of_a_request_that_is_over() -> None:
    flow = ResponseFlow()
    flow.pause()
    went_on: list[str] = []
    flow.when_open(lambda: went_on.append("before"))
    flow.end()
    flow.when_open(lambda: went_on.append("after"))

    assert went_on == ["before", "after"]


@given(st.lists(st.one_of(st.integers(0, 60), st.just(None)), max_size=200))
def test_a_sender_that_waits_is_never_given_up_and_always_let_go(steps: list[int | None]) -> None:
    client, flow = Client(), ResponseFlow()
    held: deque[int] = deque()
    for step in steps:
        if step is None:
            if held:
                client.backlog.take(held.popleft())
        elif not flow.is_paused:
            assert client.backlog.add(step, lambda: flow)
            held.append(step)
        assert client.backlog.byte_size == sum(held) < LIMITS.max_byte_size + 60
        assert client.backlog.count == len(held) <= LIMITS.max_response_count
    while held:
        client.backlog.take(held.popleft())

    assert not flow.is_paused
    assert client.reasons == []
