"""The connection that ends for one more, what it costs to find it, and who loses a place beyond the limit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tritonpy.frontends.http.connection.eviction import PLACES, QuietOrder, Reserve
from tritonpy.frontends.http.connection.stalled_clients import Sweeper


@dataclass(eq=False)
class Connection:
    """One whose client does what it is told; counts how often it is looked at."""

    number: int = 1
    is_running: bool = False
    looks: int = 0

    @property
    def is_quiet(self) -> bool:
        self.looks += 1
        return not self.is_running

    @property
    def has_asked(self) -> bool:
        return self.number > 1

    def progress(self) -> object:
        return None

    def idle_mark(self) -> object:
        return None if self.is_running else self.number

    def time_out(self) -> None:
        raise AssertionError


def order_of(*connections: Connection) -> QuietOrder[Connection]:
    order = QuietOrder[Connection]()
    for connection in connections:
        order.add(connection)
    return order


def test_those_that_asked_nothing_go_first_and_the_others_by_how_long_ago_it_was() -> None:
    often, once, first, second, running = (Connection() for _ in range(5))
    connections = (often, once, first, second, running)
    order = order_of(*connections)
    sweeper = Sweeper(connections, order)
    once.number += 1
    running.is_running = True
    for _ in range(2):
        often.number += 1
        sweeper.sweep()

    assert [order.take() for _ in range(5)] == [first, second, once, often, None]


def test_one_that_was_found_busy_is_found_again_when_it_has_been_answered() -> None:
    connection = Connection(is_running=True)
    order = order_of(connection)
    assert order.take() is None
    connection.is_running = False
    assert order.take() is None

    order.answered(connection)

    assert order.take() is connection
    order.answered(connection)  # it is closed for another one: nothing remains of it
    assert order.take() is None


def test_one_that_is_closed_is_not_found() -> None:
    silent, asked, busy = Connection(), Connection(number=2), Connection(is_running=True)
    order = order_of(silent, asked, busy)
    Sweeper((asked,), order).sweep()
    for connection in (silent, asked):
        order.discard(connection)
    assert order.take() is None
    order.discard(busy)
    order.answered(busy)
    assert order.take() is None


def test_a_newcomer_costs_a_look_or_two_though_all_are_busy() -> None:
    connections = [Connection(is_running=True) for _ in range(1000)]
    order = order_of(*connections)
    for _ in range(1000):
        assert order.take() is None
    assert sum(connection.looks for connection in connections) == 1000

    for _ in range(1000):  # a client that frees one place after the other
        connection = connections[500]
        connection.is_running = False
        order.answered(connection)
        assert order.take() is connection
        connection.is_running = True
        order.add(connection)
    assert sum(connection.looks for connection in connections) <= 3000


@dataclass(eq=False)
class Newcomer:
    """One from an address."""

    peer: str


@pytest.mark.parametrize(
    "flood",
    [
        ["10.0.0.7"],
        ["10.0.0.7", "::ffff:10.0.0.7"],
        ["2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:1::3%eth0"],
    ],
)
def test_clients_of_one_network_displace_one_another_only(flood: list[str]) -> None:
    reserve = Reserve[Newcomer]()
    probe, mapped = Newcomer("10.0.0.8"), Newcomer("::ffff:10.0.0.9")
    assert reserve.add(probe) is None
    assert reserve.add(mapped) is None
    come = [Newcomer(flood[index % len(flood)]) for index in range(100)]

    displaced = [reserve.add(each) for each in come]

    most = PLACES - 2
    assert displaced == [None] * most + come[:-most]


def test_a_probe_gets_its_place_from_those_who_have_most() -> None:
    reserve = Reserve[Newcomer]()
    alone, *crowd = (Newcomer(peer) for peer in ["", *["10.0.0.7"] * (PLACES - 1)])
    for each in (alone, *crowd):
        reserve.add(each)
    reserve.discard(crowd[1])
    assert reserve.add(Newcomer("10.0.0.8")) is None

    assert reserve.add(Newcomer("10.0.0.9")) is crowd[0]
    assert reserve.add(Newcomer("10.0.0.10")) is crowd[2]


def test_among_as_many_networks_as_there_are_places_the_oldest_goes() -> None:
    reserve = Reserve[Newcomer]()
    connections = [Newcomer(f"10.0.0.{number}") for number in range(2 * PLACES)]

    displaced = [reserve.add(each) for each in connections]

    assert displaced == [None] * PLACES + connections[:PLACES]
