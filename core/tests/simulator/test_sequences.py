"""Sequences stay together and in order, wherever they are executed and whatever ends them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import Cancelled

from .simulation import Arrival, ModelSpec, Simulation, simulate

steps = st.lists(
    st.builds(
        Arrival,
        at_us=st.sampled_from((0, 20, 90, 700)),  # since the one before
        timeout_us=st.sampled_from((0, 0, 0, 150)),
        given_up_us=st.sampled_from((None,) * 8 + (30, 500)),
        length=st.sampled_from((1, 1, 1, 2)),
        is_first=st.sampled_from((False,) * 9 + (True,)),
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def sequences(draw: Any) -> list[Arrival]:
    """Requests of up to eight sequences, some of which never say that they end."""
    arrivals = []
    for number, requests in enumerate(draw(st.lists(steps, max_size=8)), 1):
        at_us = draw(st.integers(0, 20)) * 50
        has_end = draw(st.integers(0, 5)) > 0
        for index, request in enumerate(requests):
            at_us += request.at_us
            is_last = has_end and index == len(requests) - 1
            arrivals.append(
                replace(
                    request,
                    at_us=at_us,
                    sequence=number,
                    is_first=index == 0 or request.is_first,
                    is_last=is_last,
                )
            )
    return arrivals


specs = st.builds(
    ModelSpec,
    max_batch_size=st.integers(0, 4),
    durations_us=st.lists(st.sampled_from((1, 80, 333)), min_size=1, max_size=4).map(tuple),
    instance_count=st.integers(1, 3),
    deaths=st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 2)), max_size=2).map(tuple),
)
strategies = st.one_of(
    st.fixed_dictionaries(
        {
            "direct": st.fixed_dictionaries(
                {
                    "max_queue_delay_microseconds": st.sampled_from((0, 100)),
                    "minimum_slot_utilization": st.sampled_from((0.0, 0.6, 1.0)),
                }
            )
        }
    ),
    st.fixed_dictionaries(
        {
            "oldest": st.fixed_dictionaries(
                {
                    "max_candidate_sequences": st.integers(0, 5),
                    "max_queue_delay_microseconds": st.sampled_from((0, 100)),
                    "preferred_batch_size": st.sampled_from(([], [1])),
                    "preserve_ordering": st.booleans(),
                }
            )
        }
    ),
)


@given(spec=specs, strategy=strategies, idle_us=st.sampled_from((300, 1_000_000)), arrivals=sequences())
def test_an_instance_sees_a_sequence_whole_and_in_order(
    spec: ModelSpec, strategy: dict[str, Any], idle_us: int, arrivals: list[Arrival]
) -> None:
    config = {"sequence_batching": {"max_sequence_idle_microseconds": idle_us, **strategy}}

    simulation = simulate([replace(spec, config=config)], arrivals)

    check_sequences(simulation, is_direct="direct" in strategy)


def test_the_end_of_a_sequence_takes_along_what_a_batcher_has_and_nobody_executes_yet() -> None:
    oldest = {"max_candidate_sequences": 2, "max_queue_delay_microseconds": 1000}
    config = {"sequence_batching": {"max_sequence_idle_microseconds": 1_000_000, "oldest": oldest}}
    arrivals = [
        Arrival(0, sequence=1, is_first=True),
        Arrival(0, sequence=1, given_up_us=100),
        Arrival(200, sequence=1, is_first=True, is_last=True),
    ]

    simulation = simulate([ModelSpec(config, max_batch_size=2)], arrivals)

    answers = [told.answers[0][1] for told in simulation.models[0].told.values()]
    assert [type(error) for error in answers] == [Cancelled, Cancelled, type(None)]


def check_sequences(simulation: Simulation, *, is_direct: bool) -> None:
    """No instance saw a request of a sequence without those before it, and never two of one at once."""
    (model,) = simulation.models
    numbers = defaultdict(list)
    for told in model.told.values():
        numbers[told.arrival.sequence].append(told.number)
    starts = {told.number for told in model.told.values() if told.arrival.is_first}
    start_of = {
        number: max(start for start in starts.intersection(each) if start <= number)
        for each in numbers.values()
        for number in each
    }
    for sequence, seen in model.seen:
        assert seen[0] in starts
        first = numbers[sequence].index(seen[0])
        assert list(seen) == numbers[sequence][first : first + len(seen)]
    ends: dict[int, int] = {}
    for batch in model.batches:
        inside = [told.arrival.sequence for told in batch.requests if told]
        assert len(inside) == len(set(inside))
        assert is_direct or len(inside) == len(batch.requests)
        # One that was ended from outside may still be executed when its client starts another one.
        for start in (start_of[told.number] for told in batch.requests if told):
            assert ends.get(start, 0) <= batch.at_ns
            ends[start] = batch.end_ns
    if not is_direct:
        return
    places: dict[int, tuple[Any, int]] = {}
    for batch in model.batches:
        for index, request in enumerate(batch.requests):
            if request is None:
                continue
            place = batch.instance, index
            if request.arrival.is_first:
                places[request.arrival.sequence] = place
            assert places[request.arrival.sequence] == place


@given(
    spec=specs,
    arrivals=st.lists(
        st.builds(
            Arrival,
            at_us=st.integers(0, 40).map(lambda step: step * 50),
            steps=st.integers(1, 4),
            given_up_us=st.sampled_from((None, None, None, 100)),
        ),
        max_size=20,
    ),
    strategy=strategies,
)
def test_an_iterative_model_executes_each_request_as_often_as_it_wants(
    spec: ModelSpec, arrivals: list[Arrival], strategy: dict[str, Any]
) -> None:
    batching = {"max_sequence_idle_microseconds": 1_000_000, "iterative_sequence": True, **strategy}

    simulation = simulate([replace(spec, config={"sequence_batching": batching})], arrivals)

    for told in simulation.models[0].told.values():
        ((_, error),) = told.answers
        assert len(told.started_ns) <= told.arrival.steps
        assert error is not None or len(told.started_ns) == told.arrival.steps
        assert error is None or told.arrival.given_up_us is not None or spec.deaths
