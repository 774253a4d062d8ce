from __future__ import annotations

from dataclasses import dataclass

import pytest
from tritonpy.frontends.reserve import PLACES, Reserve


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
