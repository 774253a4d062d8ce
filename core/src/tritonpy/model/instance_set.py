"""The instances of one loaded version: started, warmed up, exchanged while the model serves, and closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from tritonpy.errors import TritonError, Unavailable
from tritonpy.model.execution import Instance
from tritonpy.model.placement import Slot

_log = logging.getLogger("tritonpy.model")

_PATIENCE_S = 30.0
"""The longest wait of `wait_for_left_out`: an execution may itself wait for its caller."""

StartInstance = Callable[[Slot], Awaitable[Instance]]
"""Starts, initialises and warms up the instance of a slot; when it raises, nothing is left of it."""


@dataclass(frozen=True, slots=True)
class PlacedInstance:
    """An instance and the slot it was started for."""

    slot: Slot
    instance: Instance


@dataclass(frozen=True, slots=True)
class InstanceChange:
    """Instances for an `InstanceSet` to go on with.

    Attributes:
        kept: those that serve now and go on.
        added: those that were started for it and serve nothing yet.
    """

    kept: Sequence[PlacedInstance]
    added: Sequence[PlacedInstance]


class InstanceSet:
    """The instances of one loaded version; owned by the loop.

    A change happens in two steps, so that those of several versions can happen together or not at all:
    `prepare` brings up what is missing beside what serves, and `switch` goes over to it.

    Args:
        start: starts one instance.
        is_parallel: instances are started at the same time, not one after the other.
        on_start: told what is started now, such as `instance 1 of 3`.
        release: waits until an instance that is left out will be given nothing more.
        on_end: told of each that has been closed.
    """

    def __init__(
        self,
        start: StartInstance,
        *,
        is_parallel: bool,
        on_start: Callable[[str], None],
        release: Callable[[Instance], Awaitable[None]] | None = None,
        on_end: Callable[[Instance], None] | None = None,
    ) -> None:
        self._start = start
        self._release = release
        self._on_end = on_end
        self._is_parallel = is_parallel
        self._on_start = on_start
        self._placed: list[PlacedInstance] = []
        self._leaving: dict[Instance, asyncio.Task[None]] = {}
        self._held: set[Instance] = set()  # of those, the ones that sequences hold

    @property
    def instances(self) -> list[Instance]:
        """Those that take batches."""
        return [placed.instance for placed in self._placed]

    @property
    def slots(self) -> list[Slot]:
        """The slots of the instances."""
        return [placed.slot for placed in self._placed]

    async def prepare(self, slots: Sequence[Slot]) -> InstanceChange:
        """Start the instances missing for `slots`; one that serves is kept for any slot like its own.

        Names do not count: an instance of a renamed group goes on under the old name, as in Triton.

        Raises:
            TritonError: one could not be started; the others are closed again, and nothing has changed.
        """
        kept, missing = self._match(slots)
        added: list[PlacedInstance] = []
        try:
            await self._start_all(missing, added)
        except BaseException as error:
            await self._close_all(added, error)
            raise
        return InstanceChange(kept, added)

    async def discard(self, change: InstanceChange) -> None:
        """Close what was started for a change that does not come about."""
        await self._close_all(change.added, None)

    def switch(self, change: InstanceChange) -> None:
        """Go on with these; one that is left out finishes what it has been given, then it is closed."""
        goes_on = {placed.instance for placed in change.kept}
        for placed in self._placed:
            if placed.instance not in goes_on:
                self._leave(placed.instance)
        self._placed = sorted([*change.kept, *change.added], key=lambda placed: placed.slot.index)

    async def wait_for_left_out(self) -> None:
        """Wait until those that were left out are finalised; not for sequences to end, and with a limit."""
        await asyncio.sleep(0)  # each has begun, and is held by sequences or not
        tasks = [task for instance, task in self._leaving.items() if instance not in self._held]
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE_S)

    async def close(self, error: TritonError | None = None) -> None:
        """Close them all. With `error`, what runs now is answered with it instead of being waited for."""
        placed, self._placed = self._placed, []
        leaving = dict(self._leaving)
        await asyncio.gather(*(self._close(each.instance, error) for each in placed))
        if error is not None:
            for task in leaving.values():
                task.cancel()
            await asyncio.gather(*(self._close(instance, error) for instance in leaving))
        if leaving:
            await asyncio.wait(leaving.values())

    def _match(self, slots: Sequence[Slot]) -> tuple[list[PlacedInstance], list[Slot]]:
        """Match instances with slots: those kept, each in its slot, and the slots that need a new one."""
        free = list(self._placed)
        kept: list[PlacedInstance] = []
        missing: list[Slot] = []
        for is_name_equal in (True, False):  # first come those that have the name, too
            missing = []
            for slot in slots:
                found = next((each for each in free if _is_like(each.slot, slot, is_name_equal)), None)
                if found is None:
                    missing.append(slot)
                else:
                    free.remove(found)
                    kept.append(PlacedInstance(replace(slot, name=found.slot.name), found.instance))
            slots = missing
        names = {(placed.slot.name, placed.slot.device_id) for placed in kept}
        return kept, [_renamed(slot, names) for slot in missing]

    async def _start_all(self, slots: Sequence[Slot], added: list[PlacedInstance]) -> None:
        if not self._is_parallel or len(slots) == 1:
            for number, slot in enumerate(slots, 1):
                self._on_start(f"instance {number} of {len(slots)}")
                added.append(PlacedInstance(slot, await self._start(slot)))
            return
        self._on_start(f"{len(slots)} instances at once")
        tasks = [asyncio.ensure_future(self._start(slot)) for slot in slots]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        finally:
            for slot, task in zip(slots, tasks, strict=True):
                if task.done() and not task.cancelled() and task.exception() is None:
                    added.append(PlacedInstance(slot, task.result()))
        for task in tasks:
            task.result()

    async def _close_all(self, placed: Sequence[PlacedInstance], error: BaseException | None) -> None:
        """Close what serves nothing; one that is stopped in the middle of a warmup is not waited for."""
        reason = Unavailable("the load was given up") if isinstance(error, asyncio.CancelledError) else None
        await asyncio.gather(*(self._close(each.instance, reason) for each in placed))

    async def _close(self, instance: Instance, error: TritonError | None) -> None:
        try:
            await instance.close(error)
        finally:
            if self._on_end is not None:
                self._on_end(instance)

    def _leave(self, instance: Instance) -> None:
        async def leave() -> None:
            if self._release is not None:
                self._held.add(instance)
                try:
                    await self._release(instance)
                finally:
                    self._held.discard(instance)
            await instance.drain()
            await self._close(instance, None)

        task = asyncio.get_running_loop().create_task(leave())
        self._leaving[instance] = task
        task.add_done_callback(lambda _: self._left(instance, task))

    def _left(self, instance: Instance, task: asyncio.Task[None]) -> None:
        del self._leaving[instance]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("closing instance '%s' failed", instance.name, exc_info=error)


def _is_like(placed: Slot, wanted: Slot, is_name_equal: bool) -> bool:
    if is_name_equal and placed.name != wanted.name:
        return False
    return replace(placed, name="", index=0) == replace(wanted, name="", index=0)


def _renamed(slot: Slot, taken: set[tuple[str, int]]) -> Slot:
    """The slot under a name that no kept instance has."""
    group, _, index = slot.name.rpartition("_")
    name, number = slot.name, int(index)
    while (name, slot.device_id) in taken:
        number += 1
        name = f"{group}_{number}"
    taken.add((name, slot.device_id))
    return replace(slot, name=name)
