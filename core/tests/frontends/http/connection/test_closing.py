"""How long clients of refused requests are listened to."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tritonpy.frontends.http.connection.closing import LingeringClose

from ....simulator.virtual_loop import VirtualLoop, run


class Transport:
    """Of a connection; remembers what it was told, and when."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._began = loop.time()
        self.has_ended = False
        self.closed_after_s: float | None = None

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True

    def is_closing(self) -> bool:
        return self.closed_after_s is not None

    def get_extra_info(self, name: str) -> None:
        return None

    def close(self) -> None:
        self.closed_after_s = round(self._loop.time() - self._began)


def parted(sends_s: int, hurried_after_s: int = 10**6) -> Transport:
    """What becomes of a client that sends something each second for so long."""

    async def part(loop: VirtualLoop) -> Transport:
        transport = Transport(loop)
        closing = LingeringClose(cast(Any, transport))
        for second in range(60):
            closing.has_sent = closing.has_sent or second < sends_s
            if second == hurried_after_s:
                closing.hurry()
            await asyncio.sleep(1)
        return transport

    return run(part)


def test_one_that_sends_nothing_more_is_parted_with_soon() -> None:
    transport = parted(0)

    assert transport.has_ended
    assert transport.closed_after_s == 2


def test_one_that_goes_on_is_listened_to_until_it_is_quiet() -> None:
    assert parted(9).closed_after_s == 12


def test_one_that_never_ends_is_left_after_half_a_minute() -> None:
    assert parted(60).closed_after_s == 30


def test_a_stopping_server_listens_no_longer_than_to_the_next_look() -> None:
    assert parted(60, hurried_after_s=5).closed_after_s == 6
