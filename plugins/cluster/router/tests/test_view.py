"""Which replica gets a request: by what each has, how busy it is, its failures, and sequences."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import InvalidArg, NotFound, TritonError, Unavailable
from tritonpy_router.affinity import Pins, highest
from tritonpy_router.ejection import FAILURES, FIRST_EJECTION_S, LONGEST_EJECTION_S, WINDOW_S, Ejection
from tritonpy_router.model_facts import ModelFacts
from tritonpy_router.picking import POLICIES
from tritonpy_router.replica import Place, Replica
from tritonpy_router.scan import Asked
from tritonpy_router.view import View


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make_view(*names: str, clock: Clock | None = None, policy: str = "two-choices") -> View:
    """A view of replicas that all have the models `echo` and `seq`."""
    view = View(clock or Clock(), POLICIES[policy], Random(7))
    view.set_members([Place(name, name, 8000, 8001) for name in names])
    for replica in view:
        make_ready(replica)
    return view


def make_ready(replica: Replica) -> None:
    replica.is_ready = True
    replica.models = {"echo": frozenset("12"), "seq": frozenset("1")}
    replica.facts = {"seq": ModelFacts(is_sequence=True, idle_s=10)}


def sequence(number: int | str, start: bool = False, end: bool = False) -> Asked:
    return Asked("seq", sequence=number, is_start=start, is_end=end)


# Who may have a request.


def test_a_request_goes_to_a_replica_that_has_the_version() -> None:
    view = make_view("a", "b")
    view.replicas["a"].models = {"echo": frozenset("1")}

    picked = {view.pick(Asked("echo", "2")).name for _ in range(20)}

    assert picked == {"b"}


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (Asked("nosuch"), NotFound, "Request for unknown model: 'nosuch' is not found"),
        (Asked("echo", "9"), NotFound, "Request for unknown model: 'echo' version 9 is not found"),
        (Asked("echo", "x"), InvalidArg, "failed to get model version from specified version string 'x'"),
    ],
)
def test_what_no_replica_has_is_refused_in_tritons_words(
    asked: Asked, error: type[TritonError], text: str
) -> None:
    with pytest.raises(error) as refused:
        make_view("a", "b").pick(asked)

    assert str(refused.value) == text


def test_without_a_ready_replica_the_reason_of_each_is_told() -> None:
    view = make_view("a", "b")
    view.gone(view.replicas["a"], "does not answer: refused")
    view.replicas["b"].is_ready, view.replicas["b"].unready = False, "is not ready: it is stopping"

    with pytest.raises(Unavailable) as refused:
        view.pick(Asked("echo"))

    assert str(refused.value) == (
        "no replica is ready: 'a' does not answer: refused; 'b' is not ready: it is stopping"
    )
    assert View(Clock()).why_not_ready() == "the router knows no replica"


def test_a_replica_that_was_tried_is_not_picked_again() -> None:
    view = make_view("a", "b")
    tried = view.replicas["a"]

    assert {view.pick(Asked("echo"), (tried,)).name for _ in range(9)} == {"b"}
    with pytest.raises(Unavailable, match="tried: a, b"):
        view.pick(Asked("echo"), tuple(view))


def test_members_that_go_get_nothing_and_those_that_come_are_asked_first() -> None:
    view = make_view("a", "b")

    joined, left = view.set_members([Place("b", "b", 8000, 8001), Place("c", "c", 8000, 8001)])

    assert ([each.name for each in joined], [each.name for each in left]) == (["c"], ["a"])
    assert {view.pick(Asked("echo")).name for _ in range(9)} == {"b"}


def test_a_server_that_moved_is_another_replica() -> None:
    view = make_view("a")
    before = view.replicas["a"]

    joined, left = view.set_members([Place("a", "elsewhere", 8000, 8001)])

    assert left == [before]
    assert joined == [view.replicas["a"]] != left


# How even it is.


@given(st.integers(2, 6), st.integers(0, 2**32))
def test_of_two_that_are_drawn_the_less_busy_is_picked(count: int, seed: int) -> None:
    replicas = [Replica(Place(str(n), "", 1, 1), inflight=n) for n in range(count)]

    picked = [POLICIES["two-choices"](replicas, Random(seed + n)) for n in range(50)]

    assert replicas[-1] not in picked  # whoever it is drawn with is less busy
    assert POLICIES["least-busy"](replicas, Random(seed)) is replicas[0]


def test_one_after_the_other_all_get_as_many() -> None:
    view = make_view("a", "b", "c", policy="round-robin")

    for _ in range(9):
        view.pick(Asked("echo")).request_count += 1

    assert [replica.request_count for replica in view] == [3, 3, 3]


# Failures.


def test_a_replica_whose_connections_fail_is_left_out_and_comes_back() -> None:
    clock = Clock()
    view = make_view("a", "b", clock=clock)
    failing = view.replicas["a"]
    for _ in range(FAILURES):
        view.failed(failing)

    while_out = {view.pick(Asked("echo")).name for _ in range(30)}
    clock.now_s += FIRST_EJECTION_S
    later = {view.pick(Asked("echo")).name for _ in range(30)}

    assert (while_out, later) == ({"b"}, {"a", "b"})


def test_ejections_in_a_row_last_twice_as_long_up_to_a_limit() -> None:
    ejection, now_s, lengths = Ejection(), 0.0, []
    for _ in range(8):
        outcomes = [ejection.failed(now_s) for _ in range(FAILURES)]
        assert outcomes == [False] * (FAILURES - 1) + [True]
        lengths.append(ejection.until_s - now_s)
        now_s = ejection.until_s

    assert lengths == [1, 2, 4, 8, 16, LONGEST_EJECTION_S, LONGEST_EJECTION_S, LONGEST_EJECTION_S]


def test_failures_that_are_far_apart_or_parted_by_an_answer_eject_nobody() -> None:
    apart, parted = Ejection(), Ejection()

    assert not any(apart.failed(n * WINDOW_S) for n in range(FAILURES * 3))
    for n in range(FAILURES * 3):
        assert not parted.failed(n / 1000)
        parted.answered()


# Sequences.


@given(st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=6), st.integers(1, 1000))
def test_a_sequence_moves_only_to_a_replica_that_joins(names: set[str], number: int) -> None:
    key = ("seq", number)
    before = highest(key, names)

    after = highest(key, names | {"one more"})

    assert after in (before, "one more")
    assert highest(key, sorted(names, reverse=True)) == before


def test_many_sequences_are_spread_evenly() -> None:
    chosen = [highest(("seq", number), "abcd") for number in range(4000)]

    assert all(900 < chosen.count(name) < 1100 for name in "abcd")
    assert highest(("seq", 1), ()) is None


def test_all_requests_of_a_sequence_go_to_one_replica_also_when_others_join() -> None:
    view = make_view("a", "b")
    begun = {number: view.pick(sequence(number, start=True)) for number in range(1, 60)}
    view.set_members([Place(name, name, 8000, 8001) for name in "abcdef"])
    for replica in view:
        make_ready(replica)

    later = {number: view.pick(sequence(number)) for number in begun}
    anew = {number: view.pick(sequence(number, start=True)) for number in begun}

    assert later == begun
    assert {replica.name for replica in anew.values()} > {"a", "b"}


def test_two_routers_choose_the_same_replica() -> None:
    one, other = make_view("a", "b", "c"), make_view("c", "b", "a")

    for number in range(1, 50):
        assert one.pick(sequence(number, start=True)).name == other.pick(sequence(number)).name


def test_a_sequence_whose_replica_is_gone_is_told_so_once_and_can_be_started_anew() -> None:
    view = make_view("a", "b")
    number = next(n for n in range(1, 99) if view.pick(sequence(n, start=True)).name == "a")
    view.gone(view.replicas["a"], "does not answer")

    with pytest.raises(Unavailable) as lost:
        view.pick(sequence(number))
    again = view.pick(sequence(number, start=True))

    assert str(lost.value) == (
        f"sequence {number} of model 'seq' was on replica 'a', which is gone, and its "
        "state with it: start it anew"
    )
    assert again.name == "b"


def test_a_replica_that_is_stopping_keeps_its_sequences_and_gets_no_new_ones() -> None:
    view = make_view("a", "b")
    on_a = [n for n in range(1, 40) if view.pick(sequence(n, start=True)).name == "a"]
    view.replicas["a"].is_ready = False

    assert {view.pick(sequence(n)).name for n in on_a} == {"a"}
    assert {view.pick(sequence(n, start=True)).name for n in range(100, 140)} == {"b"}


def test_a_member_that_comes_back_before_its_sequences_have_ended_gets_requests_again() -> None:
    view = make_view("a", "b")
    next(n for n in range(1, 99) if view.pick(sequence(n, start=True)).name == "a")
    view.set_members([Place("b", "b", 8000, 8001)])

    joined, left = view.set_members([Place(name, name, 8000, 8001) for name in "ab"])

    assert (joined, left, view.sweep()) == ([], [], [])
    assert {view.pick(Asked("echo")).name for _ in range(99)} == {"a", "b"}


def test_a_member_that_leaves_with_sequences_stays_until_they_have_ended() -> None:
    clock = Clock()
    view = make_view("a", "b", clock=clock)
    number = next(n for n in range(1, 99) if view.pick(sequence(n, start=True)).name == "a")
    other = next(n for n in range(1, 99) if view.pick(sequence(n, start=True)).name == "a" and n != number)

    joined, left = view.set_members([Place("b", "b", 8000, 8001)])

    assert (joined, left, view.pick(sequence(number)).name) == ([], [], "a")
    assert {view.pick(Asked("echo")).name for _ in range(9)} == {"b"}
    view.pick(sequence(number, end=True))
    assert view.sweep() == []  # the other one has not ended
    clock.now_s += 11
    assert other
    assert [replica.name for replica in view.sweep()] == ["a"]


def test_a_sequence_that_nobody_sends_a_request_of_is_forgotten() -> None:
    pins = Pins()
    pins.pin(("seq", 1), "a", 10)
    pins.pin(("seq", 2), "b", 30)

    assert (pins.find(("seq", 1), 9), pins.find(("seq", 1), 10), pins.open_on("a", 10)) == ("a", None, 0)
    pins.pin(("seq", 1), "a", 20)
    pins.sweep(25)
    assert (len(pins), pins.find(("seq", 1), 25)) == (
        2,
        None,
    )  # the older one is not over: no look at the rest
    pins.sweep(31)
    assert len(pins) == 0


def test_an_id_is_a_sequence_for_models_with_sequences_only() -> None:
    view = make_view("a", "b")

    assert {view.pick(Asked("echo", sequence=5)).name for _ in range(30)} == {"a", "b"}
    assert len(view.pins) == 0
