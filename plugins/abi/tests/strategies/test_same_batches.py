"""A strategy in C forms the batches that the same one in Python does, whatever comes in whichever order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tritonpy_batching_volume
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritonpy.plugin import InferRequest, Tensor
from tritonpy.plugin_manager import bind_object
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.decision import Dispatch
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy_abi import load_shared_object

from ..conftest import Compiled
from .conftest import make_model

MAX_BATCH_SIZE = 6
DELAY_NS = 10

SIZES = st.lists(st.integers(0, 80), min_size=1, max_size=3)
"""Bytes of the inputs of a request."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SIZES, st.integers(1, 2)),
        st.tuples(st.just("remove"), st.integers(0, 20)),
        st.tuples(st.just("decide"), st.integers(0, 2 * DELAY_NS)),
    ),
    max_size=60,
)


class Twin:
    """One of two batchers that are given the same requests.

    Attributes:
        batches: names of the requests of each batch, why it left, and its rows.
    """

    def __init__(self, plugin: object, limit: int, preferred: frozenset[int], delay_ns: int) -> None:
        model = make_model(MAX_BATCH_VOLUME_BYTES=str(limit))
        self.strategy = BoundStrategy("volume", bind_object("batching", plugin, "volume"), model)
        self.strategy.open()
        self.policy = DynamicPolicy(
            max_batch_size=MAX_BATCH_SIZE,
            preferred_batch_sizes=preferred,
            queue_delay_ns=delay_ns,
            strategy=self.strategy,
        )
        self.waiting: dict[int, InferRequest] = {}
        self.batches: list[tuple[list[int], str, int]] = []
        self._count = 0

    def add(self, sizes: list[int], rows: int, now_ns: int) -> None:
        inputs = {
            str(index): Tensor(str(index), "UINT8", (rows, size), b"x" * size)
            for index, size in enumerate(sizes)
        }
        request = InferRequest("m", inputs, id=str(self._count))
        request.batch_size = rows
        request.queue_start_ns = now_ns
        self.waiting[self._count] = request
        self._count += 1
        self.policy.add(request)

    def remove(self, number: int) -> None:
        request = self.waiting.pop(number, None)
        if request is not None:
            assert self.policy.remove(request)

    def decide(self, now_ns: int) -> bool:
        decision = self.policy.decide(now_ns)
        assert self.policy.take_refused() == []
        if not isinstance(decision, Dispatch):
            return False
        numbers = [int(request.id) for request in decision.requests]
        for number in numbers:
            del self.waiting[number]
        self.batches.append((numbers, decision.closed, decision.batch_size))
        return True


def shared_object(compiled: Callable[..., Path]) -> object:
    plugin = load_shared_object("batching", str(compiled("strategies/volume.c")))
    assert plugin is not None
    return plugin


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=st.integers(1, 200),
    preferred=st.frozensets(st.integers(1, MAX_BATCH_SIZE), max_size=2),
    delay_ns=st.sampled_from([0, DELAY_NS]),
    steps=STEPS,
)
def test_c_and_python_form_the_same_batches(
    compiled: Compiled,
    limit: int,
    preferred: frozenset[int],
    delay_ns: int,
    steps: list[tuple[str, list[int], int] | tuple[str, int]],
) -> None:
    twins = [
        Twin(plugin, limit, preferred, delay_ns)
        for plugin in (tritonpy_batching_volume, shared_object(compiled))
    ]

    for twin in twins:
        now_ns = 0
        for step in steps:
            match step:
                case ("add", list() as sizes, int() as rows):
                    twin.add(sizes, rows, now_ns)
                case ("remove", int() as number):
                    twin.remove(number)
                case ("decide", int() as passed_ns):
                    now_ns += passed_ns
                    twin.decide(now_ns)
        now_ns += DELAY_NS
        while twin.decide(now_ns):
            pass
        twin.strategy.close()

    python, c = twins
    assert c.batches == python.batches
    assert c.waiting == python.waiting == {}
