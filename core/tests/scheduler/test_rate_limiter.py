"""Resources and turns, with numbers only."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import InvalidArg
from tritonpy.model.placement import ResourceNeed, Slot
from tritonpy.scheduler.rate_limiter import Claim, RateLimiter, ResourceLimit


class Harness:
    """A limiter whose calls to the loop the test makes, and instances by name.

    Attributes:
        turns: names of instances that took what they need, in order.
        waiting: those in the line, each with the number of turns when it came.
    """

    def __init__(self, *limits: ResourceLimit) -> None:
        self.due: list[Callable[[], None]] = []
        self.limiter = RateLimiter(limits, self.due.append)
        self.claims: dict[str, Claim] = {}
        self.turns: list[str] = []
        self.waiting: dict[str, int] = {}

    def join(self, name: str, *needs: tuple[Any, ...], priority: int = 1, device: int = 0) -> Claim:
        """An instance; each of its needs is a name, a count and, for a global one, True."""
        resources = tuple(ResourceNeed(need, count, any(is_global)) for need, count, *is_global in needs)
        slot = Slot(name, 0, "KIND_GPU", device, resources=resources, priority=priority)
        claim = self.claims[name] = self.limiter.join(slot, lambda: self.go(name))
        return claim

    def go(self, name: str) -> bool:
        """Take the resources of an instance, or wait for them."""
        if self.limiter.take(self.claims[name]):
            self.turns.append(name)
            self.waiting.pop(name, None)
            return True
        self.limiter.wait(self.claims[name])
        self.waiting.setdefault(name, len(self.turns))
        return False

    def end(self, name: str) -> list[str]:
        """An execution is over; who goes then."""
        self.limiter.give_back(self.claims[name])
        return self.loop()

    def loop(self) -> list[str]:
        before = len(self.turns)
        while self.due:
            self.due.pop(0)()
        return self.turns[before:]


def one_that_needs_all_of_it() -> Harness:
    """One that needs both of two resources, and two that need one each."""
    harness = Harness()
    harness.join("most", ("R", 2))
    harness.join("a", ("R", 1))
    harness.join("b", ("R", 1))
    return harness


def test_two_instances_that_need_the_same_execute_one_after_the_other() -> None:
    harness = Harness()
    harness.join("a", ("R", 1))
    harness.join("b", ("R", 1))

    assert harness.go("a")
    assert not harness.go("b")
    assert harness.end("a") == ["b"]


def test_there_is_as_much_as_the_instance_that_needs_most() -> None:
    harness = Harness()
    harness.join("a", ("R", 1))
    harness.join("b", ("R", 1))
    most = harness.join("c", ("R", 2))

    assert harness.go("a")
    assert harness.go("b")
    harness.limiter.leave(most)
    harness.end("a")
    assert not harness.go("a")
    assert harness.end("b") == ["a"]


def test_the_verbose_log_has_how_much_there_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tritonpy.scheduler")
    harness = Harness(ResourceLimit("R", 5), ResourceLimit("G", 2))
    harness.join("a", ("R", 4))
    caplog.clear()

    shared = harness.join("b", ("G", 1, True))
    harness.limiter.leave(shared)

    own = "\nMax Resource Map===>\n\tDevice: 0\n\t\tResource: R\t Count: 5\n"
    assert caplog.messages == [own + "\tDevice: GLOBAL\n\t\tResource: G\t Count: 2\n", own]


def test_each_device_has_its_own_and_a_global_resource_is_shared() -> None:
    harness = Harness()
    for device in (0, 1):
        harness.join(f"own {device}", ("R", 1), device=device)
        harness.join(f"shared {device}", ("G", 1, True), device=device)

    assert harness.go("own 0")
    assert harness.go("own 1")
    assert harness.go("shared 0")
    assert not harness.go("shared 1")


def test_all_resources_are_taken_or_none() -> None:
    harness = Harness()
    harness.join("a", ("S", 1))
    harness.join("both", ("R", 1), ("S", 1))
    harness.join("r", ("R", 1))
    harness.go("a")

    assert not harness.limiter.take(harness.claims["both"])

    assert harness.go("r")


def test_priorities_share_as_in_triton() -> None:
    harness = Harness()
    harness.join("g", ("R", 1))
    harness.join("a", ("R", 1))
    harness.join("b", ("R", 1), priority=2)
    harness.go("g")
    order = []

    harness.go("a")
    harness.go("b")
    running = "g"
    for _ in range(9):
        (running,) = (harness.end(running),)[0]
        order.append(running)
        harness.limiter.wait(harness.claims[running])  # it has more to execute

    assert order == ["a", "a", "b"] * 3  # what the real server does


def test_of_equals_goes_who_has_not_executed_for_longer() -> None:
    harness = Harness()
    for name in ("g", "b", "a"):
        harness.join(name, ("R", 1))
    harness.go("g")
    harness.go("a")
    harness.go("b")

    assert harness.end("g") == ["a"]
    harness.go("a")
    assert harness.end("a") == ["b"]
    harness.go("b")
    assert harness.end("b") == ["a"]


def test_an_end_lets_everybody_go_for_whom_there_is_enough() -> None:
    harness = one_that_needs_all_of_it()
    harness.go("most")
    harness.go("a")
    harness.go("b")

    assert harness.end("most") == ["a", "b"]


def test_whoever_needs_nothing_of_it_is_not_held_up() -> None:
    harness = Harness()
    for name, need in (("a", "R"), ("b", "R"), ("other", "S")):
        harness.join(name, (need, 1))
    harness.join("free", priority=9)
    harness.go("a")
    harness.go("b")

    assert harness.go("other")
    assert harness.go("free")


def test_one_that_needs_much_is_not_overtaken_for_ever() -> None:
    harness = one_that_needs_all_of_it()
    harness.go("a")
    harness.go("b")

    assert not harness.go("most")
    assert harness.end("a") == []
    assert not harness.go("a")  # one is free, and reserved
    assert harness.end("b") == ["most"]


def test_what_was_reserved_is_there_for_others_when_nobody_wants_it_any_more() -> None:
    harness = one_that_needs_all_of_it()
    harness.go("a")
    harness.go("most")
    harness.go("b")

    harness.limiter.forget(harness.claims["most"])

    assert harness.loop() == ["b"]


def test_an_instance_that_leaves_takes_its_reservation_along() -> None:
    harness = Harness(ResourceLimit("R", 2))
    harness.join("most", ("R", 2))
    harness.join("a", ("R", 1))
    harness.join("b", ("R", 1))
    harness.go("a")
    harness.go("most")
    harness.go("b")

    harness.limiter.leave(harness.claims["most"])
    harness.limiter.leave(harness.claims["most"])

    assert harness.loop() == ["b"]


def test_a_resource_of_which_there_will_never_be_enough_is_refused_with_tritons_words() -> None:
    harness = Harness(ResourceLimit("R", 1), ResourceLimit("R", 3, device=1))
    harness.join("b", ("R", 3), device=1)

    with pytest.raises(
        InvalidArg,
        match=r'^Resource count for "R" is limited to 1 which will prevent scheduling of one or more model '
        "instances, the minimum required count is 2 ",
    ):
        harness.join("a", ("R", 2))
    with pytest.raises(InvalidArg, match=r'^Resource count for "S" is limited to 0 '):
        harness.join("a", ("S", 1))

    assert harness.go("b")


def test_limits_count_whatever_the_case_of_their_names() -> None:
    harness = Harness(ResourceLimit("gpu_memory", 2))
    harness.join("a", ("GPU_Memory", 1))
    harness.join("b", ("GPU_Memory", 1))

    assert harness.go("a")
    assert harness.go("b")


def test_a_global_resource_has_the_most_that_any_device_was_given() -> None:
    harness = Harness(ResourceLimit("G", 1), ResourceLimit("G", 2, device=7))
    harness.join("a", ("G", 2, True))

    assert harness.go("a")


@pytest.mark.parametrize("shared_first", [False, True])
def test_a_resource_is_global_for_all_or_for_none(shared_first: bool) -> None:
    harness = Harness()
    harness.join("a", ("R", 1, shared_first), device=1)

    with pytest.raises(
        InvalidArg,
        match=r'^Resource "R" is present as both global and device-specific resource in the model '
        r"configuration\. ",
    ):
        harness.join("b", ("R", 1, not shared_first))
    with pytest.raises(InvalidArg, match="both global and device-specific"):
        harness.join("c", ("S", 1), ("S", 1, True))

    assert harness.go("a")


@given(
    instances=st.lists(
        st.tuples(st.dictionaries(st.sampled_from("RST"), st.integers(0, 3), max_size=3), st.integers(1, 3)),
        min_size=1,
        max_size=6,
    ),
    steps=st.lists(st.integers(0, 5), max_size=150),
)
def test_resources_are_never_exceeded_and_nobody_starves(
    instances: list[tuple[dict[str, int], int]], steps: list[int]
) -> None:
    harness = Harness()
    for index, (needs, priority) in enumerate(instances):
        harness.join(str(index), *needs.items(), priority=priority)
    most = {name: max(needs.get(name, 0) for needs, _ in instances) for name in "RST"}
    running: set[str] = set()

    for step in steps:
        name, before = str(step % len(instances)), len(harness.turns)
        if name in running:
            running.remove(name)
            harness.end(name)
        else:
            harness.go(name)
        running.update(harness.turns[before:])

        for resource, count in most.items():
            assert sum(instances[int(one)][0].get(resource, 0) for one in running) <= count
        for since in harness.waiting.values():  # each of the others may catch up with it, and no more
            assert len(harness.turns) - since <= 4 * len(instances)
    while running or harness.waiting:  # and in the end everybody goes
        before = len(harness.turns)
        harness.end(running.pop())
        running.update(harness.turns[before:])
