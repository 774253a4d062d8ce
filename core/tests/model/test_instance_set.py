"""Which instances are kept, started and closed when a model's groups change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tritonpy.errors import Internal, TritonError, Unavailable
from tritonpy.model.instance_set import InstanceSet
from tritonpy.model.placement import Slot, place_instances


class FakeInstance:
    """An instance that the test says to be busy; it tells what becomes of it."""

    def __init__(self, slot: Slot, history: list[str]) -> None:
        self.name = slot.name
        self.closed_with: list[TritonError | None] = []
        self.idle = asyncio.Event()
        self.idle.set()
        self._history = history

    async def drain(self) -> None:
        await self.idle.wait()

    async def close(self, error: TritonError | None = None) -> None:
        self.closed_with.append(error)
        self._history.append(f"close {self.name}")


class Harness:
    """A set of instances whose starts the test can hold up or fail.

    Attributes:
        history: starts and ends in their order.
        failing: names of instances that cannot be started.
        gate: starts wait for it.
        told: what was said of the progress.
    """

    def __init__(self, is_parallel: bool = False) -> None:
        self.history: list[str] = []
        self.failing: set[str] = set()
        self.told: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.set = InstanceSet(self._start, is_parallel=is_parallel, on_start=self.told.append)

    async def _start(self, slot: Slot) -> Any:
        self.history.append(f"start {slot.name}")
        await self.gate.wait()
        if slot.name in self.failing:
            raise Internal(f"{slot.name} does not start")
        return FakeInstance(slot, self.history)

    async def become(self, *groups: dict[str, Any]) -> list[str]:
        """Change to other groups; what was started and closed for it."""
        self.history.clear()
        self.set.switch(await self.set.prepare(slots(*groups)))
        await settle()
        return list(self.history)

    @property
    def names(self) -> list[str]:
        return [instance.name for instance in self.set.instances]


def slots(*groups: dict[str, Any]) -> Sequence[Slot]:
    filled = [
        {"name": f"m_{index}", "kind": "KIND_CPU", "count": 1, **group} for index, group in enumerate(groups)
    ]
    return place_instances({"instance_group": filled})


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_more_instances_come_beside_those_that_serve_and_fewer_leave_the_first_ones() -> None:
    harness = Harness()

    assert await harness.become({"count": 1}) == ["start m_0_0"]
    assert await harness.become({"count": 3}) == ["start m_0_1", "start m_0_2"]
    assert await harness.become({"count": 2}) == ["close m_0_2"]
    assert await harness.become({"count": 2}) == []
    assert harness.names == ["m_0_0", "m_0_1"]
    assert harness.told == ["instance 1 of 1", "instance 1 of 2", "instance 2 of 2"]


async def test_the_names_of_groups_and_their_order_do_not_count() -> None:
    harness = Harness()
    await harness.become({"count": 2})

    assert await harness.become({"name": "a", "count": 2}) == []
    assert await harness.become({"name": "a"}, {"name": "b"}) == []
    assert await harness.become({"name": "b"}, {"name": "a"}) == []
    assert harness.names == ["m_0_0", "m_0_1"]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "KIND_MODEL"},
        {"kind": "KIND_GPU", "gpus": [1]},
        {"rate_limiter": {"priority": 2}},
        {"host_policy": "own"},
        {"profile": ["p"]},
        {"secondary_devices": [{"kind": "KIND_NVDLA", "device_id": 1}]},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_an_instance_with_other_settings_is_another_one(change: dict[str, Any]) -> None:
    harness = Harness()
    await harness.become({"count": 1})

    assert await harness.become({"count": 1, **change}) == ["start m_0_0", "close m_0_0"]


async def test_only_the_devices_that_are_new_get_instances() -> None:
    harness = Harness()
    await harness.become({"kind": "KIND_GPU", "gpus": [0, 1]})

    assert await harness.become({"kind": "KIND_GPU", "gpus": [1, 2]}) == ["start m_0_0", "close m_0_0"]


async def test_no_two_instances_on_one_device_have_one_name() -> None:
    harness = Harness()
    await harness.become({"count": 2}, {"kind": "KIND_MODEL"})
    # m_1_0 goes on as the first of group m_0, and of m_0_0 and m_0_1 one as that of m_1.
    await harness.become({"kind": "KIND_MODEL", "count": 1}, {"count": 1})
    await harness.become({"kind": "KIND_MODEL", "count": 2}, {"count": 2})

    assert len(set(harness.names)) == 4
    assert {"m_1_0", "m_0_0"} < set(harness.names)


@pytest.mark.parametrize("is_parallel", [False, True])
async def test_what_cannot_be_started_changes_nothing(is_parallel: bool) -> None:
    harness = Harness(is_parallel)
    await harness.become({"count": 1})
    before = harness.set.instances
    harness.failing = {"m_0_2"}

    with pytest.raises(Internal, match="m_0_2 does not start"):
        await harness.become({"count": 4})

    assert harness.set.instances == before
    assert "close m_0_1" in harness.history
    assert ("close m_0_3" in harness.history) is is_parallel  # it was begun together with the others
    assert "close m_0_0" not in harness.history


async def test_instances_start_at_once_where_their_backend_allows_it() -> None:
    for is_parallel, begun in ((True, 3), (False, 1)):
        harness = Harness(is_parallel)
        harness.gate.clear()
        change = asyncio.ensure_future(harness.become({"count": 3}))
        await settle()
        assert len(harness.history) == begun
        harness.gate.set()
        await change
        assert harness.names == ["m_0_0", "m_0_1", "m_0_2"]


@pytest.mark.parametrize("is_parallel", [False, True])
async def test_a_change_that_is_cancelled_leaves_nothing_behind(is_parallel: bool) -> None:
    harness = Harness(is_parallel)
    await harness.become({"count": 1})
    harness.gate.clear()
    change = asyncio.ensure_future(harness.become({"count": 3}))
    await settle()

    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change

    assert harness.names == ["m_0_0"]


async def test_a_change_that_is_discarded_closes_what_was_started_for_it() -> None:
    harness = Harness()
    await harness.become({"count": 1})
    change = await harness.set.prepare(slots({"count": 2}))

    await harness.set.discard(change)

    assert harness.history == ["start m_0_0", "start m_0_1", "close m_0_1"]
    assert harness.names == ["m_0_0"]


async def test_an_instance_that_is_left_out_finishes_before_it_is_closed() -> None:
    harness = Harness()
    await harness.become({"count": 2})
    busy: Any = harness.set.instances[1]
    busy.idle.clear()

    assert await harness.become({"count": 1}) == []
    busy.idle.set()
    await settle()

    assert busy.closed_with == [None]


@pytest.mark.parametrize("error", [None, Unavailable("stop")])
async def test_closing_the_set_closes_those_that_are_leaving_too(error: TritonError | None) -> None:
    harness = Harness()
    await harness.become({"count": 2})
    stays, leaves = list[Any](harness.set.instances)
    leaves.idle.clear()
    await harness.become({"count": 1})

    closing = asyncio.ensure_future(harness.set.close(error))
    await settle()
    if error is None:
        assert not closing.done()  # it has something to finish
        leaves.idle.set()
    await asyncio.wait_for(closing, 20)

    assert stays.closed_with == leaves.closed_with == [error]
    assert harness.set.instances == []
