"""Who holds what for how long: blocks live as long as they are held, and bytes as long as the blocks."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tritonpy.plugin import InferRequest, Tensor
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.decision import Dispatch
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy_abi import load_shared_object
from tritonpy_abi.shim import open_shim
from tritonpy_abi.strategies.request_blocks import RequestBlocks

from ..conftest import Compiled
from .conftest import Opener, make_model, make_request

Bound = Callable[[], BoundStrategy]


@pytest.fixture
def blocks(library: Path) -> RequestBlocks:
    return RequestBlocks(open_shim().ffi, make_model())


def test_the_bytes_live_as_long_as_the_block(blocks: RequestBlocks) -> None:
    array = np.arange(1000, dtype=np.float32)
    alive = weakref.ref(array)
    request = InferRequest("m", {"X": Tensor.from_numpy("X", array)})

    held = blocks.fill(request)
    del request, array
    gc.collect()

    data = open_shim().ffi.buffer(open_shim().ffi.cast("char *", held[0].inputs[0].data), 4000)
    assert alive() is not None
    assert np.frombuffer(data, np.float32)[-1] == 999
    del held, data
    assert alive() is None


def test_memory_that_a_block_points_to_cannot_be_moved(blocks: RequestBlocks) -> None:
    buffer = bytearray(b"x" * 16)
    held = blocks.fill(InferRequest("m", {"X": Tensor("X", "UINT8", (16,), buffer)}))

    with pytest.raises(BufferError):
        buffer.extend(b"more")
    del held

    buffer.extend(b"more")


def test_a_location_lives_as_long_as_the_block(blocks: RequestBlocks) -> None:
    class Location:
        memory_type = 0
        device_id = 0
        byte_size = 4
        address = 0
        file = None

    location = Location()
    alive = weakref.ref(location)
    held = blocks.fill(InferRequest("m", {"X": Tensor("X", "UINT8", (4,), location)}))  # type: ignore[arg-type]

    del location
    gc.collect()

    assert alive() is not None
    del held
    assert alive() is None


def held_byte_size() -> int:
    """What is held of what was allocated here and in our modules; whatever other threads may be doing."""
    ours = [tracemalloc.Filter(True, place) for place in ("*/tritonpy*", __file__)]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)


def test_filling_a_block_makes_no_cycle_and_leaves_nothing(blocks: RequestBlocks) -> None:
    def fill(count: int) -> None:
        for index in range(count):
            request = make_request(id=str(index), parameters={"key": "value"}, correlation_id="sequence")
            request.batching_state = blocks.fill(request)

    fill(100)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        fill(200)
        before = held_byte_size()
        fill(2000)
        after = held_byte_size()
    finally:
        tracemalloc.stop()
        gc.enable()

    assert after - before < 20_000  # an object left by each would be five times that


def test_blocks_may_outlive_the_strategy_and_the_model(opened: Opener) -> None:
    strategy = opened("volume.c", MAX_BATCH_VOLUME_BYTES="64")
    request = make_request()
    assert strategy.run(request) == 1

    strategy.close()
    del strategy
    gc.collect()

    assert request.batching_state[0].inputs[0].byte_size == 16


def add(policy: DynamicPolicy, request: InferRequest) -> Callable[[], object]:
    """Queue a request; what is returned tells whether its block is there."""
    policy.add(request)
    return weakref.ref(request.batching_state[0])


@pytest.fixture
def bound(compiled: Compiled, request: pytest.FixtureRequest) -> Bound:
    """Open a strategy as the server does; closed when the test is over."""

    def open_one() -> BoundStrategy:
        plugin = load_shared_object("batching", str(compiled("strategies/volume.c")))
        model = make_model(MAX_BATCH_VOLUME_BYTES="40")
        strategy = BoundStrategy("volume.so", lambda hook: getattr(plugin, hook, None), model)
        strategy.open()
        request.addfinalizer(strategy.close)
        return strategy

    return open_one


def test_a_request_that_is_dispatched_lets_its_block_go(bound: Bound) -> None:
    policy = DynamicPolicy(max_batch_size=8, strategy=bound())
    requests = [make_request() for _ in range(3)]
    alive = [add(policy, request) for request in requests]

    taken = [policy.decide(0), policy.decide(0)]

    assert [len(batch.requests) for batch in taken if isinstance(batch, Dispatch)] == [2, 1]
    assert [block() for block in alive] == [None, None, None]


def test_requests_that_are_cancelled_in_an_attempt_take_their_blocks_along(bound: Bound) -> None:
    policy = DynamicPolicy(max_batch_size=8, strategy=bound())
    requests = [make_request() for _ in range(3)]
    alive = [add(policy, request) for request in requests]
    assert policy.has_batch(0)  # the first two are part of an attempt

    while requests:
        policy.remove(requests.pop(0))

    assert [block() for block in alive] == [None, None, None]
