"""Several models under the rate limiter: no resource is exceeded, everybody gets a turn, shares are fair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from .simulation import Arrival, ModelSpec, simulate
from .test_sequences import check_sequences, sequences, specs

CONFIGS: list[dict[str, Any]] = [
    {},
    {"dynamic_batching": {}},
    {"dynamic_batching": {"max_queue_delay_microseconds": 200, "preserve_ordering": True}},
    {"dynamic_batching": {"default_queue_policy": {"default_timeout_microseconds": 400}}},
]
needs = st.dictionaries(st.sampled_from("RST"), st.integers(0, 2)).map(lambda each: tuple(each.items()))


@given(
    models=st.lists(
        st.builds(
            ModelSpec,
            config=st.sampled_from(CONFIGS),
            max_batch_size=st.just(4),
            durations_us=st.lists(st.sampled_from((1, 80, 333)), min_size=1, max_size=4).map(tuple),
            instance_count=st.integers(1, 3),
            concurrency=st.integers(1, 2),
            deaths=st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 2)), max_size=1).map(tuple),
            needs=needs,
            priority=st.integers(1, 3),
        ),
        min_size=1,
        max_size=4,
    ),
    limits=st.fixed_dictionaries({name: st.integers(2, 4) for name in "RST"}),
    arrivals=st.lists(
        st.builds(
            Arrival,
            at_us=st.integers(0, 40).map(lambda step: step * 50),
            model=st.integers(0, 3),
            rows=st.integers(1, 2),
            given_up_us=st.sampled_from((None, None, None, 60)),
        ),
        max_size=40,
    ),
)
def test_resources_are_never_exceeded_and_every_request_is_answered(
    models: list[ModelSpec], limits: dict[str, int], arrivals: list[Arrival]
) -> None:
    simulate(models, arrivals, limits=limits)  # it checks that


@given(
    priorities=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    late_us=st.sampled_from((0, 5000)),
)
def test_models_that_always_have_something_to_do_share_by_their_priorities(
    priorities: list[int], late_us: int
) -> None:
    models = [ModelSpec(durations_us=(100,), needs=(("R", 1),), priority=priority) for priority in priorities]
    last = len(models) - 1
    arrivals = [
        Arrival(late_us if index == last else 0, model=index)
        for _ in range(24)
        for index in range(len(models))
    ]

    simulation = simulate(models, arrivals, limits={"R": 1})

    # Where all of them have work, nobody is ahead of another by more than a turn, counted by priority.
    start_ns = min(told.at_ns for model in simulation.models for told in model.told.values())
    from_ns, until_ns = start_ns + late_us * 1000, min(model.batches[-1].at_ns for model in simulation.models)
    for first, one in enumerate(simulation.models):
        for other in simulation.models[first + 1 :]:
            shares = [
                sum(from_ns <= batch.at_ns < until_ns for batch in model.batches) * model.spec.priority
                for model in (one, other)
            ]
            most = one.spec.priority + other.spec.priority
            assert abs(shares[0] - shares[1]) <= 2 * most + 2


@given(
    spec=specs, strategy=st.sampled_from(({"direct": {}}, {"oldest": {}})), arrivals=sequences(), needs=needs
)
def test_sequences_stay_together_though_their_instances_wait_for_resources(
    spec: ModelSpec, strategy: dict[str, Any], arrivals: list[Arrival], needs: tuple[tuple[str, int], ...]
) -> None:
    config = {"sequence_batching": {"max_sequence_idle_microseconds": 1_000_000, **strategy}}
    model = replace(spec, config=config, needs=needs)

    simulation = simulate([model], arrivals, limits=dict.fromkeys("RST", 2))

    check_sequences(simulation, is_direct="direct" in strategy)
