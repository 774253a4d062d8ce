"""Models with a batching strategy: no batch breaks its limit, and its hooks are called as promised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import NotFound, Unavailable
from tritonpy.handles import Backend, Batch, Batcher, Model
from tritonpy.request import InferRequest
from tritonpy.scheduler.batcher import BoundStrategy

from .simulation import Arrival, ModelSpec, Simulation, Told, simulate

MOST_ROWS = 6

arrivals = st.lists(
    st.builds(
        Arrival,
        at_us=st.integers(0, 40).map(lambda step: step * 50),
        rows=st.integers(1, 3),
        length=st.sampled_from((1, 1, 1, 2)),
        priority=st.integers(0, 3),
        timeout_us=st.sampled_from((0, 0, 1, 120, 400)),
        given_up_us=st.sampled_from((None, None, None, 0, 60, 300)),
    ),
    max_size=40,
)
specs = st.builds(
    ModelSpec,
    max_batch_size=st.just(MOST_ROWS),
    durations_us=st.lists(st.sampled_from((1, 80, 333)), min_size=1, max_size=4).map(tuple),
    instance_count=st.integers(1, 3),
    concurrency=st.integers(1, 2),
    deaths=st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 2)), max_size=2).map(tuple),
)
levels = {
    "priority_levels": 2,
    "default_priority_level": 2,
    "default_queue_policy": {"default_timeout_microseconds": 200, "allow_timeout_override": True},
}


def batchings(*kinds: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda delay_us, preferred, more: {
            "max_queue_delay_microseconds": delay_us,
            "preferred_batch_size": preferred,
            **more,
        },
        st.sampled_from((0, 0, 30, 500)),
        st.lists(st.integers(1, MOST_ROWS), max_size=2, unique=True),
        st.sampled_from(kinds),
    )


in_order = {"preserve_ordering": True}
limits = st.integers(4, 60)  # bytes; one row has 4 or 8


class Volume:
    """Bounds the bytes of a batch, and checks that it is called as its hooks promise.

    Args:
        limit: in bytes.
        failing: numbers of requests that it fails for.
        failing_batches: which of the batches that it is to begin it fails for, from 1 on.
        asks_alone: is asked request by request, and not for a run of them.
    """

    def __init__(
        self,
        limit: int,
        failing: frozenset[int] = frozenset(),
        failing_batches: frozenset[int] = frozenset(),
        *,
        asks_alone: bool = False,
    ) -> None:
        self.limit = limit
        self.failing = failing
        self.failing_batches = failing_batches
        self.admitted: list[InferRequest] = []
        self.begun = 0
        self.open: Batch | None = None
        self.inside: list[InferRequest] = []
        hooks: dict[str, Callable[..., Any]] = {
            "model_batcher_initialize": lambda model: None,
            "model_batcher_finalize": lambda batcher: None,
            "model_batcher_admit_request": self.admit,
            "model_batch_initialize": self.initialize,
            "model_batch_include_request": self.include,
            "model_batch_finalize": self.finalize,
        }
        if not asks_alone:
            hooks["model_batch_include_requests"] = self.include_many
        model = Model("m", 1, {"name": "m"}, Path("/m"), Backend("b"))
        self.bound = BoundStrategy("volume", hooks.get, model)

    def admit(self, batcher: Batcher, request: InferRequest) -> list[int]:
        assert request not in self.admitted
        self.admitted.append(request)
        return [request.byte_size]

    def initialize(self, batcher: Batcher) -> list[int]:
        assert self.open is None, "the batch before was not finalised"
        self.begun += 1
        if self.begun in self.failing_batches:
            raise Unavailable("no batch now")
        self.inside = []
        return [self.limit]

    def include(self, request: InferRequest, batch: Batch) -> bool:
        assert request in self.admitted
        assert self.open in (None, batch)
        assert request not in self.inside, "it was asked twice"
        self.open = batch
        self.inside.append(request)
        if int(request.id) in self.failing:
            raise NotFound(f"cannot read {request.id}")
        (volume,) = request.batching_state
        if volume > batch.state[0]:
            return False
        batch.state[0] -= volume
        return True

    def include_many(self, batch: Batch, requests: list[InferRequest]) -> int | tuple[int, Exception]:
        for count, request in enumerate(requests):
            try:
                if not self.include(request, batch):
                    return count
            except NotFound as error:
                return count, error
        return len(requests)

    def finalize(self, batch: Batch) -> None:
        assert self.open in (None, batch)
        assert all(request.batching_state for request in self.inside), "a request was let go before its batch"
        self.open = None


def volume_of(told: Told | None) -> int:
    assert told is not None
    return told.arrival.rows * told.arrival.length * 4


def check_limit(simulation: Simulation, limit: int) -> None:
    for batch in simulation.models[0].batches:
        assert len(batch.requests) == 1 or sum(map(volume_of, batch.requests)) <= limit


@given(
    spec=specs,
    batching=batchings({}, in_order, levels),
    limit=limits,
    asks_alone=st.booleans(),
    arrivals=arrivals,
)
def test_no_batch_breaks_the_limit_unless_it_is_a_single_request(
    spec: ModelSpec, batching: dict[str, Any], limit: int, asks_alone: bool, arrivals: list[Arrival]
) -> None:
    volume = Volume(limit, asks_alone=asks_alone)
    spec = replace(spec, config={"dynamic_batching": batching}, strategy=volume.bound)

    simulation = simulate([spec], arrivals)

    check_limit(simulation, limit)
    assert len(volume.admitted) == len(arrivals)
    assert all(request.batching_state is None for request in volume.admitted if started(simulation, request))


def started(simulation: Simulation, request: InferRequest) -> bool:
    return bool(simulation.models[0].told[request].started_ns)


@given(
    spec=specs,
    batching=batchings({}, levels),  # where errors wait for nobody
    limit=limits,
    failing=st.frozensets(st.integers(0, 40), max_size=5),
    failing_batches=st.frozensets(st.integers(1, 12), max_size=5),
    asks_alone=st.booleans(),
    arrivals=arrivals,
)
def test_an_error_costs_one_request_and_no_batch_its_limit(
    spec: ModelSpec,
    batching: dict[str, Any],
    limit: int,
    failing: frozenset[int],
    failing_batches: frozenset[int],
    asks_alone: bool,
    arrivals: list[Arrival],
) -> None:
    volume = Volume(limit, failing, failing_batches, asks_alone=asks_alone)
    spec = replace(spec, config={"dynamic_batching": batching}, strategy=volume.bound)

    simulation = simulate([spec], arrivals)

    check_limit(simulation, limit)
    (model,) = simulation.models
    unbegun = 0
    for told in model.told.values():
        answers = [str(error) for _, error in told.answers]
        assert told.number not in failing or not told.started_ns
        assert f"cannot read {told.number}" not in answers or told.number in failing
        unbegun += "no batch now" in answers
    assert unbegun == len(failing_batches & set(range(1, volume.begun + 1)))


@given(
    spec=specs,
    batching=batchings({}, in_order, levels),
    limit=limits,
    need=st.integers(1, 2),
    rival_duration_us=st.sampled_from((50, 400)),
    arrivals=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(range(0, 1000, 50))), max_size=30),
)
def test_a_limit_holds_while_instances_compete_for_a_resource(
    spec: ModelSpec,
    batching: dict[str, Any],
    limit: int,
    need: int,
    rival_duration_us: int,
    arrivals: list[tuple[int, int]],
) -> None:
    volume = Volume(limit)
    limited = replace(
        spec, config={"dynamic_batching": batching}, strategy=volume.bound, needs=(("R", need),), deaths=()
    )
    rival = ModelSpec(durations_us=(rival_duration_us,), needs=(("R", 1),))
    coming = [Arrival(at_us, model, rows=1 if model else 1 + at_us % 3) for model, at_us in arrivals]

    simulation = simulate([limited, rival], coming, limits={"R": 2})

    check_limit(simulation, limit)


def test_a_limit_holds_while_the_instance_is_busy_and_there_is_no_delay() -> None:
    volume = Volume(12)
    spec = ModelSpec({"dynamic_batching": {}}, 64, durations_us=(500_000, 10), strategy=volume.bound)
    arrivals = [Arrival(at_us) for at_us in range(0, 4000, 200)]

    simulation = simulate([spec], arrivals)

    assert [len(batch.requests) for batch in simulation.models[0].batches] == [1, 3, 3, 3, 3, 3, 3, 1]
