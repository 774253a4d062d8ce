"""How even, and how quick, answers are by the picks: in virtual time, with a slow member and without."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from tritonpy_router.model_facts import ModelFacts, facts_of
from tritonpy_router.model_load import ModelLoad
from tritonpy_router.picking import POLICIES
from tritonpy_router.replica import Place, Replica

from .virtual_fleet import (
    SERVICE_S,
    Draw,
    Hosted,
    Member,
    VirtualFleet,
    alike,
    at_random,
    percentile,
)

COUNT = 6000
NAMES = "abcd"
GOAL = 1.5


def fewer_of_two(replicas: Sequence[Replica], chance: Random, model: str = "") -> Replica:
    """Two choices without knowing more than what is under way, as a measure."""
    one, other = chance.sample(replicas, 2)
    return one if one.load <= other.load else other


def members(instances: int, slow: str = "", names: str = NAMES, batch: int = 1) -> dict[str, Member]:
    """Servers that are alike but for one that takes five times as long."""
    return {
        name: Member({"m": Hosted(instances, SERVICE_S * (5 if name == slow else 1), batch)})
        for name in names
    }


def p99_s(servers: dict[str, Member], rates: dict[str, float], model: str = "m", **settings: Any) -> float:
    """Of all answers once the router has had the time to learn."""
    fleet = VirtualFleet(servers, **settings)
    fleet.ask(rates, COUNT)
    return percentile(fleet.latencies_s[model][COUNT // 20 :], 0.99)


def rate(instances: int, load: float, batch: int = 1) -> float:
    """Requests per second that are a share of what four servers can do."""
    return load * 4 * instances * batch / SERVICE_S


@pytest.mark.parametrize("tells", [False, True], ids=["asked", "telling"])
@pytest.mark.parametrize("load", [0.1, 0.5])
@pytest.mark.parametrize("instances", [1, 2, 4, 8])
def test_one_slow_member_of_four_is_hardly_felt(instances: int, load: float, tells: bool) -> None:
    rates = {"m": rate(instances, load)}

    even = p99_s(members(instances), rates, tells=tells)
    slowed = p99_s(members(instances, "d"), rates, tells=tells)

    assert slowed < GOAL * even


@pytest.mark.parametrize("instances", [1, 4])
def test_near_what_is_left_it_is_no_worse_than_without_the_slow_member(instances: int) -> None:
    rates = {"m": rate(instances, 0.7)}  # nine tenths of what the other three can do

    without = p99_s(members(instances, names="abc"), rates)
    slowed = p99_s(members(instances, "d"), rates)

    assert slowed < 1.1 * without


@pytest.mark.parametrize("draw", [alike, at_random])
@pytest.mark.parametrize("load", [0.5, 0.9])
@pytest.mark.parametrize("instances", [1, 4])
def test_members_that_are_alike_are_as_even_as_by_what_is_under_way(
    instances: int, load: float, draw: Draw
) -> None:
    rates = {"m": rate(instances, load)}

    measure = p99_s(members(instances), rates, policy=fewer_of_two, draw=draw)
    even = p99_s(members(instances), rates, draw=draw)

    assert even < 1.1 * measure


@pytest.mark.parametrize("instances", [1, 4])
def test_times_that_differ_from_request_to_request_do_not_hide_it(instances: int) -> None:
    rates = {"m": rate(instances, 0.5)}

    even = p99_s(members(instances), rates, draw=at_random)
    slowed = p99_s(members(instances, "d"), rates, draw=at_random)

    assert slowed < GOAL * even


@pytest.mark.parametrize("batch", [1, 8])
def test_what_no_configuration_tells_is_learnt_from_answers(batch: int) -> None:
    rates = {"m": rate(4, 0.5, batch)}

    even = p99_s(members(4, batch=batch), rates, knows_instances=False)
    slowed = p99_s(members(4, "d", batch=batch), rates, knows_instances=False)

    assert slowed < GOAL * even


def test_a_member_may_be_slow_with_one_model_alone() -> None:
    def servers(slow: str) -> dict[str, Member]:
        return {
            name: Member({"m": Hosted(4, SERVICE_S * (5 if name == slow else 1)), "other": Hosted(1, 0.005)})
            for name in NAMES
        }

    rates = {"m": rate(4, 0.5), "other": 300.0}
    even, slowed = VirtualFleet(servers("")), VirtualFleet(servers("d"))
    for fleet in (even, slowed):
        fleet.ask(rates, COUNT)

    for model in rates:
        assert percentile(slowed.latencies_s[model][300:], 0.99) < GOAL * percentile(
            even.latencies_s[model][300:], 0.99
        )
    learnt = slowed.views[0].replicas["d"].loads
    assert learnt["other"].service_s == pytest.approx(0.005, rel=0.5)
    assert slowed.counts["d"] > 300  # it still has its part of the other


def test_members_with_more_instances_get_more() -> None:
    servers = {name: Member({"m": Hosted(int(name))}) for name in "1124"[1:]}
    fleet = VirtualFleet(servers)

    fleet.ask({"m": 0.8 * 7 / SERVICE_S}, COUNT)

    assert fleet.counts["4"] > 1.6 * fleet.counts["2"] > 1.6 * fleet.counts["1"]
    assert percentile(fleet.latencies_s["m"], 0.99) < 4 * SERVICE_S


@pytest.mark.parametrize("tells", [False, True], ids=["asked", "telling"])
def test_two_routers_leave_the_slow_member_alone_both(tells: bool) -> None:
    rates = {"m": rate(4, 0.5)}

    even = p99_s(members(4), rates, routers=2, tells=tells)
    slowed = p99_s(members(4, "d"), rates, routers=2, tells=tells)

    assert slowed < GOAL * even


def test_a_member_that_becomes_slow_and_quick_again_is_found_out_both_times() -> None:
    servers = members(4)
    fleet = VirtualFleet(servers)
    rates = {"m": rate(4, 0.5)}
    shares = []
    for factor in (1, 5, 1):
        servers["d"].models["m"].service_s = factor * SERVICE_S
        fleet.ask(rates, 3000)  # until it is found out
        before = fleet.counts["d"]
        fleet.ask(rates, 3000)
        shares.append((fleet.counts["d"] - before) / 3000)

    assert shares[0] > 0.2
    assert shares[1] < 0.005
    assert shares[2] > 0.2


def test_a_first_execution_that_takes_long_is_forgiven() -> None:
    servers = members(1)
    servers["d"].models["m"].service_s = 3.0
    fleet = VirtualFleet(servers)
    fleet.ask({"m": rate(1, 0.5)}, 20)
    servers["d"].models["m"].service_s = SERVICE_S
    fleet.ask({"m": rate(1, 0.5)}, 3000)
    before = fleet.counts["d"]

    fleet.ask({"m": rate(1, 0.5)}, 3000)

    assert fleet.counts["d"] - before > 600


def test_one_that_refuses_all_is_not_taken_for_a_quick_one() -> None:
    servers = members(1)
    servers["d"].answers_errors = True
    fleet = VirtualFleet(servers)

    fleet.ask({"m": rate(1, 0.3)}, COUNT)

    assert fleet.views[0].replicas["d"].loads["m"].service_s == 0
    assert fleet.counts["d"] < 0.5 * COUNT  # as by what is under way there


def test_one_that_joins_is_tried_with_one_request_before_it_gets_more() -> None:
    replicas = [Replica(Place(name, name, 1, 2)) for name in "ab"]
    replicas[0].loads["m"] = ModelLoad(1, is_tried=True, service_s=0.02)
    picks = []
    for _ in range(4):
        picked = POLICIES["two-choices"](replicas, Random(1), "m")
        picked.load_of("m").begin()
        picks.append(picked.name)

    assert picks == ["b", "a", "a", "a"]
    replicas[1].loads["m"].over()  # and it has told nothing, such as an error
    assert POLICIES["two-choices"](replicas, Random(1), "m").name == "b"


@pytest.mark.parametrize(
    ("config", "instances", "steps"),
    [
        ({"instance_group": [{"count": 2, "kind": "KIND_CPU"}, {"count": 1, "kind": "KIND_CPU"}]}, 3, ()),
        ({"instance_group": [{"count": 2, "kind": "KIND_GPU", "gpus": [0, 1]}]}, 4, ()),
        ({"instance_group": [{"count": 2}, {"count": 5, "passive": True}]}, 2, ()),
        ({"ensemble_scheduling": {"step": [{"model_name": "b"}, {"model_name": "a"}]}}, 0, ("a", "b")),
        ({}, 0, ()),
    ],
)
def test_a_configuration_tells_how_many_instances_execute(
    config: dict[str, Any], instances: int, steps: tuple[str, ...]
) -> None:
    facts = facts_of(config)

    assert (facts.instance_count, facts.steps) == (instances, steps)


def test_an_ensemble_has_as_many_instances_as_its_scarcest_step_and_follows_what_it_becomes() -> None:
    replica = Replica(Place("a", "a", 1, 2))
    models = dict.fromkeys(("all", "one", "two"), frozenset("1"))

    def facts(count: int) -> dict[str, ModelFacts]:
        return {
            "all": ModelFacts(steps=("one", "two")),
            "one": ModelFacts(instance_count=count),
            "two": ModelFacts(instance_count=6),
        }

    replica.have(models, facts(4))
    before = replica.load_of("all").instance_count
    replica.have(models, facts(8))

    assert (before, replica.load_of("all").instance_count) == (4, 6)
    replica.have({}, {})
    assert not replica.loads
