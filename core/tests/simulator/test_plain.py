"""Models without sequences: order, limits, time-outs and delays hold, whatever comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import Cancelled, Unavailable
from tritonpy.handles import Backend, Batch, Model
from tritonpy.request import InferRequest
from tritonpy.scheduler.batcher import BoundStrategy

from .simulation import US, Arrival, ModelSpec, Simulation, Told, simulate

MOST_ROWS = 6

arrivals = st.lists(
    st.builds(
        Arrival,
        at_us=st.integers(0, 40).map(lambda step: step * 50),
        rows=st.integers(1, 3),
        length=st.sampled_from((1, 1, 1, 2)),
        priority=st.integers(0, 4),
        timeout_us=st.sampled_from((0, 0, 1, 120, 400)),
        given_up_us=st.sampled_from((None, None, None, 0, 60, 300)),
    ),
    max_size=40,
)
durations = st.lists(st.sampled_from((1, 80, 333)), min_size=1, max_size=4).map(tuple)
deaths = st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 2)), max_size=2).map(tuple)
specs: dict[str, Any] = {"durations_us": durations, "instance_count": st.integers(1, 3), "deaths": deaths}


def dispatched(simulation: Simulation) -> list[int]:
    return [told.number for batch in simulation.models[0].batches for told in batch.requests if told]


@given(spec=st.builds(ModelSpec, concurrency=st.integers(1, 2), **specs), arrivals=arrivals)
def test_without_a_batcher_requests_run_in_order_as_soon_as_an_instance_is_free(
    spec: ModelSpec, arrivals: list[Arrival]
) -> None:
    def nobody_waits_in_vain(simulation: Simulation) -> None:
        (model,) = simulation.models
        is_free = any(each.is_ready and each.depth < each.concurrency for each in model.instances)
        assert not (is_free and model.waiting)

    simulation = simulate(
        [spec],
        [Arrival(each.at_us, given_up_us=each.given_up_us) for each in arrivals],
        at_rest=nobody_waits_in_vain,
    )

    assert dispatched(simulation) == sorted(dispatched(simulation))


@given(
    spec=st.builds(ModelSpec, max_batch_size=st.just(MOST_ROWS), concurrency=st.integers(1, 2), **specs),
    preferred=st.lists(st.integers(1, MOST_ROWS), max_size=3, unique=True),
    delay_us=st.sampled_from((0, 30, 500)),
    arrivals=arrivals,
)
def test_batches_are_in_order_and_nobody_waits_longer_than_the_delay_for_company(
    spec: ModelSpec, preferred: list[int], delay_us: int, arrivals: list[Arrival]
) -> None:
    batching = {"preferred_batch_size": preferred, "max_queue_delay_microseconds": delay_us}

    def nobody_waits_in_vain(simulation: Simulation) -> None:
        (model,) = simulation.models
        if model.waiting and any(each.is_ready and each.depth < each.concurrency for each in model.instances):
            waited_ns = simulation.now_ns - model.waiting[0].at_ns
            assert waited_ns < delay_us * US
            assert sum(told.arrival.rows for told in model.waiting) < max(preferred or [MOST_ROWS])

    simulation = simulate(
        [replace(spec, config={"dynamic_batching": batching})], arrivals, at_rest=nobody_waits_in_vain
    )

    assert dispatched(simulation) == sorted(dispatched(simulation))
    for batch in simulation.models[0].batches:
        assert len({told.arrival.length for told in batch.requests if told}) == 1


@given(
    spec=st.builds(ModelSpec, max_batch_size=st.just(MOST_ROWS), **specs),
    level_count=st.integers(1, 3),
    most=st.integers(0, 3),
    timeout_us=st.sampled_from((0, 200)),
    action=st.sampled_from(("REJECT", "DELAY")),
    delay_us=st.sampled_from((0, 100)),
    arrivals=arrivals,
)
def test_levels_have_their_order_their_limits_and_their_timeouts(
    spec: ModelSpec,
    level_count: int,
    most: int,
    timeout_us: int,
    action: str,
    delay_us: int,
    arrivals: list[Arrival],
) -> None:
    policy = {
        "max_queue_size": most,
        "default_timeout_microseconds": timeout_us,
        "allow_timeout_override": True,
        "timeout_action": action,
    }
    batching = {
        "max_queue_delay_microseconds": delay_us,
        "priority_levels": level_count,
        "default_priority_level": level_count,
        "default_queue_policy": policy,
    }

    def level(told: Told) -> int:
        return told.arrival.priority if 1 <= told.arrival.priority <= level_count else level_count

    def deadline_ns(told: Told) -> int:
        own_us = told.arrival.timeout_us
        allowed_us = own_us if 0 < own_us < timeout_us else timeout_us
        return told.at_ns + allowed_us * US if allowed_us else 10**18

    def queues_are_bounded(simulation: Simulation) -> None:
        (model,) = simulation.models
        for number in range(1, level_count + 1):
            waiting = [told for told in model.waiting if level(told) == number]
            assert not most or len(waiting) <= most
            assert action == "DELAY" or all(simulation.now_ns < deadline_ns(told) for told in waiting)

    simulation = simulate(
        [replace(spec, config={"dynamic_batching": batching})], arrivals, at_rest=queues_are_bounded
    )

    requests = list(simulation.models[0].told.values())
    for told in requests:
        if told.refused is not None:
            assert "Exceeds maximum queue size" in told.refused.message
        elif isinstance(told.answers[0][1], Unavailable):
            assert action == "REJECT"
            late_ns = told.answers[0][0] - deadline_ns(told)
            assert 0 <= late_ns <= US  # on time, whether an instance is free or not
            assert not told.started_ns
        elif told.started_ns:
            assert action == "DELAY" or told.started_ns[0] <= deadline_ns(told)
    place = {told.number: (level(told), told.number) for told in requests}
    for batch in simulation.models[0].batches:
        inside = [told for told in batch.requests if told]
        if action == "DELAY":
            inside = [told for told in inside if batch.at_ns < deadline_ns(told)]
        if not inside:
            continue
        assert [place[told.number] for told in inside] == sorted(place[told.number] for told in inside)
        for told in requests:  # nobody was passed over who had been there with a higher place
            started_ns = told.started_ns[0] if told.started_ns else 10**18
            gone_ns = min([started_ns, *(at_ns for at_ns, _ in told.answers)])
            if told.refused is None and told.at_ns < batch.at_ns < min(gone_ns, deadline_ns(told)):
                assert place[told.number] > place[inside[-1].number]


@given(
    spec=st.builds(ModelSpec, max_batch_size=st.just(MOST_ROWS), **specs),
    delay_us=st.sampled_from((0, 300)),
    arrivals=arrivals,
)
def test_with_preserve_ordering_answers_come_in_order(
    spec: ModelSpec, delay_us: int, arrivals: list[Arrival]
) -> None:
    batching = {"preserve_ordering": True, "max_queue_delay_microseconds": delay_us}

    simulation = simulate([replace(spec, config={"dynamic_batching": batching})], arrivals)

    answered = [told.answers[0][0] for told in simulation.models[0].told.values()]
    assert answered == sorted(answered)


@given(
    spec=st.builds(ModelSpec, max_batch_size=st.just(MOST_ROWS), **specs),
    sizes=st.lists(st.integers(1, MOST_ROWS), max_size=3, unique=True),
    delay_us=st.sampled_from((0, 300)),
    arrivals=arrivals,
)
def test_padded_batches_have_the_sizes_of_their_model(
    spec: ModelSpec, sizes: list[int], delay_us: int, arrivals: list[Arrival]
) -> None:
    batching = {"preferred_batch_size": sizes, "max_queue_delay_microseconds": delay_us}
    allowed = sorted({*sizes, MOST_ROWS})
    strategy = bound_strategy(lambda batch, size: next(each for each in allowed if each >= size))

    simulation = simulate([replace(spec, config={"dynamic_batching": batching}, strategy=strategy)], arrivals)

    assert all(batch.row_count in allowed for batch in simulation.models[0].batches)
    assert dispatched(simulation) == sorted(dispatched(simulation))


@given(
    spec=st.builds(ModelSpec, max_batch_size=st.just(MOST_ROWS), **specs),
    failing=st.sets(st.integers(0, 40), max_size=5),
    most=st.integers(1, 4),
    arrivals=arrivals,
)
def test_a_strategy_bounds_batches_and_fails_only_those_it_fails_for(
    spec: ModelSpec, failing: set[int], most: int, arrivals: list[Arrival]
) -> None:
    def include(request: InferRequest, batch: Batch) -> bool:
        if int(request.id) in failing:
            raise ValueError("no")
        batch.state = (batch.state or 0) + 1
        return bool(batch.state <= most)

    strategy = bound_strategy(None, include)

    simulation = simulate([replace(spec, config={"dynamic_batching": {}}, strategy=strategy)], arrivals)

    (model,) = simulation.models
    assert all(len(batch.requests) <= most for batch in model.batches)
    assert not failing.intersection(dispatched(simulation))
    for told in model.told.values():
        if told.number in failing:
            assert told.answers[0][1] is not None


@pytest.mark.parametrize("batching", [{}, {"max_queue_delay_microseconds": 1000}])
def test_a_request_that_is_given_up_leaves_the_queue_at_once(batching: dict[str, int]) -> None:
    spec = ModelSpec({"dynamic_batching": batching}, max_batch_size=2, durations_us=(5000,))
    arrivals = [Arrival(0, rows=2), Arrival(100, given_up_us=200), Arrival(150)]

    simulation = simulate([spec], arrivals)

    _, unwanted, last = simulation.models[0].told.values()
    assert [(at_ns - unwanted.at_ns, type(error)) for at_ns, error in unwanted.answers] == [
        (pytest.approx(200 * US, abs=US), Cancelled)
    ]
    assert last.started_ns == [simulation.models[0].batches[0].end_ns]


def bound_strategy(
    padded_size: Callable[[Batch, int], int] | None,
    include: Callable[[InferRequest, Batch], bool] = lambda request, batch: True,
) -> BoundStrategy:
    hooks: dict[str, Any] = {
        "model_batcher_initialize": lambda model: None,
        "model_batcher_finalize": lambda batcher: None,
        "model_batch_initialize": lambda batcher: None,
        "model_batch_include_request": include,
        "model_batch_finalize": lambda batch: None,
        "model_batch_padded_size": padded_size,
    }
    return BoundStrategy("s", hooks.get, Model("m", 1, {"name": "m"}, Path("/m"), Backend("b")))
