"""The connection that ends for one more, what it costs to find it, and who loses a place beyond the limit."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.frontends.http.connection.eviction import QuietOrder
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
