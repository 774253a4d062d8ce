"""Rate limiter: counted resources that executing instances share, and a line of those that wait for them.

An instance takes its resources when it begins an execution, all of them or none, and gives them back at its
end. The order is Triton's: an instance has a *level*, the number of its executions times its priority, and
the lowest level goes first. Triton's faults are not copied:

* A claim that waits reserves what it needs against those behind it. So one that needs much gets it in the
  end, and one that needs nothing of it, or for which enough is left, goes at once; in Triton all are held up.
* After an end all claims go that can, not only one.
* A level counts from where the competition is. A model that comes late, or was idle for a night, would
  otherwise shut the others out for as many executions as they are ahead.

Pure: no loop and no clock; owned by the loop, no lock.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tritonpy.errors import InvalidArg
from tritonpy.model.execution import Execution
from tritonpy.model.placement import Slot
from tritonpy.options import RateLimitMode
from tritonpy.request import InferRequest

_log = logging.getLogger("tritonpy.scheduler")

Resource = tuple[int | None, str]
"""The device that has it, None where all devices share one; and its name."""

_EXECUTIONS_BEFORE = 2  # Triton counts the initialization and the warmup of an instance


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """The count of a resource that the server's options set.

    Attributes:
        name: of the resource, in any case.
        count: how much.
        device: the device that has it; None for each of them.
    """

    name: str
    count: int
    device: int | None = None


def make_rate_limiter(
    mode: RateLimitMode,
    resources: Iterable[tuple[str, int, int | None]],
    call_soon: Callable[[Callable[[], None]], object],
) -> RateLimiter | None:
    """The rate limiter that a server's options ask for; None lets free instances execute at once."""
    if mode == "off":
        return None
    return RateLimiter([ResourceLimit(*limit) for limit in resources], call_soon)


class Claim:
    """The claim of one instance: its needs for an execution, and its place in the competition for them.

    Attributes:
        name: of the instance.
        needs: how much of each resource.
        priority: what an execution adds to its level; a high number is a low priority.
        level: executions × priority, from where the competition was.
        latest: which of all executions was its latest; 0 before its first one.
        on_turn: called when it waits and may go now.
        overtakes: what others have reserved is no obstacle; see `Contender.note_call`.
    """

    __slots__ = ("_limiter", "latest", "level", "name", "needs", "on_turn", "overtakes", "priority")

    def __init__(
        self,
        limiter: RateLimiter,
        name: str,
        needs: Mapping[Resource, int],
        priority: int,
        on_turn: Callable[[], None],
    ) -> None:
        self._limiter = limiter
        self.name = name
        self.needs = needs
        self.priority = priority
        self.level = _EXECUTIONS_BEFORE * priority
        self.latest = 0
        self.on_turn = on_turn
        self.overtakes = False

    @property
    def turn(self) -> tuple[int, int]:
        """Sort key of claims: the one with the smaller key goes first."""
        return self.level, self.latest

    def give_back(self) -> None:
        """An execution that took it is over."""
        self._limiter.give_back(self)


class WaitingCall:
    """A request that was made by models which hold resources while they wait for its answer.

    Attributes:
        options: the claims of the called model's instances; one of them executes it.
    """

    __slots__ = ("_request", "options")

    def __init__(self, request: InferRequest, options: Sequence[Claim]) -> None:
        self._request = request
        self.options = options

    @property
    def is_open(self) -> bool:
        """True while it is not answered."""
        return not self._request.ticket.answered

    @property
    def holders(self) -> Mapping[object, Claim]:
        """The resources that its callers hold, by their executions."""
        return {
            execution: execution.claim
            for execution in self._request.ticket.chain
            if isinstance(execution, Execution) and isinstance(execution.claim, Claim)
        }


class RateLimiter:
    """The resources of a server, and the line of those that wait for them.

    Args:
        limits: what there is, if it is not to be the most that one instance needs.
        call_soon: has the loop call a function in its next turn.
    """

    def __init__(
        self, limits: Sequence[ResourceLimit], call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._limits = tuple(limits)
        self._call_soon = call_soon
        self._claims: list[Claim] = []
        self._capacities: dict[Resource, int] = {}
        self._held: Counter[Resource] = Counter()
        self._levels: dict[Resource, int] = {}  # the highest at which a resource was taken
        self._line: dict[Claim, None] = {}
        self._calls: list[WaitingCall] = []
        self._execution_count = 0
        self._is_serving_due = False

    def join(self, slot: Slot, on_turn: Callable[[], None]) -> Claim:
        """Take in an instance that is about to be started.

        Args:
            slot: says what it needs.
            on_turn: called when it waits and may go now.

        Raises:
            InvalidArg: there will never be enough of a resource, or it is one of each device for some and
                shared by all for others; nothing has changed.
        """
        needs = {
            (None if need.is_global else slot.device_id, need.name): need.count for need in slot.resources
        }
        for resource, count in needs.items():
            self._check(slot, resource, count)
        claim = Claim(self, slot.name, needs, max(1, slot.priority), on_turn)
        self._claims.append(claim)
        self._measure()
        return claim

    def leave(self, claim: Claim) -> None:
        """Forget an instance; it executes nothing any more."""
        if claim in self._claims:
            self._claims.remove(claim)
            self._line.pop(claim, None)
            self._measure()

    def take(self, claim: Claim) -> bool:
        """Begin an execution if its resources are free and no claim before it has reserved them."""
        if not self._is_free(claim):
            return False
        self._line.pop(claim, None)
        self._execution_count += 1
        for resource, count in claim.needs.items():
            self._held[resource] += count
            self._levels[resource] = max(self._levels.get(resource, 0), claim.level)
        claim.level += claim.priority
        claim.latest = self._execution_count
        return True

    def give_back(self, claim: Claim) -> None:
        """End an execution."""
        for resource, count in claim.needs.items():
            self._held[resource] -= count
        if self._calls:
            self._calls = [call for call in self._calls if call.is_open]
        self._serve_soon()

    def wait(self, claim: Claim) -> None:
        """Put an instance into the line; it keeps its place if it waits already."""
        self._line.setdefault(claim)

    def forget(self, claim: Claim) -> None:
        """Take a claim out of the line: it has nothing to execute, and its reservations are free."""
        if claim in self._line:
            del self._line[claim]
            self._serve_soon()

    def floor(self, claim: Claim) -> int:
        """The level at which the competition for its resources is."""
        return max((self._levels.get(resource, 0) for resource in claim.needs), default=0)

    def note_call(self, call: WaitingCall) -> list[Claim]:
        """Take in a call, unless it would deadlock: with its callers, or with other calls.

        A holder of resources that waits for nothing gives them back in the end. Of the calls that wait, one
        that gets what it needs beside all callers is answered in the end, and its callers wait no more. If
        that continues until the new one is answered, all is well.

        Returns:
            the holders of what it would wait for; it is not taken in then.
        """
        waiting = [other for other in self._calls if other.is_open]
        self._calls = [*waiting, call]
        waiting.append(call)
        while call in waiting:
            kept: Counter[Resource] = Counter()
            holders = {execution: claim for other in waiting for execution, claim in other.holders.items()}
            for claim in holders.values():
                kept.update(claim.needs)
            answered = next((other for other in waiting if self._suffices(other.options, kept)), None)
            if answered is None:
                self._calls.remove(call)
                return list(dict.fromkeys(holders.values()))
            waiting.remove(answered)
        return []

    def _suffices(self, claims: Sequence[Claim], kept: Counter[Resource]) -> bool:
        """True if one of these claims can get its resources although `kept` is never given back."""
        return any(
            all(
                kept[resource] + count <= self._capacities[resource]
                for resource, count in claim.needs.items()
            )
            for claim in claims
        )

    def _is_free(self, claim: Claim) -> bool:
        reserved: Counter[Resource] = Counter()
        if self._line and not claim.overtakes:
            for other in self._in_line():
                if other is claim or other.turn > claim.turn:
                    break
                reserved.update(other.needs)
        return all(
            self._held[resource] + reserved[resource] + count <= self._capacities[resource]
            for resource, count in claim.needs.items()
        )

    def _in_line(self) -> list[Claim]:
        """Those that wait, in the order of their turns; of equals, in the order they came."""
        return sorted(self._line, key=lambda claim: claim.turn)

    def _serve_soon(self) -> None:
        if self._line and not self._is_serving_due:
            self._is_serving_due = True
            self._call_soon(self._serve_line)

    def _serve_line(self) -> None:
        self._is_serving_due = False
        for claim in self._in_line():
            if claim in self._line and self._is_free(claim):
                claim.on_turn()

    def _check(self, slot: Slot, resource: Resource, count: int) -> None:
        name = resource[1]
        if self._limits and (limit := self._limit(resource)) < count:
            raise InvalidArg(
                f'Resource count for "{name}" is limited to {limit} which will prevent scheduling of one or '
                f"more model instances, the minimum required count is {count} (instance '{slot.name}'; "
                f"--rate-limit-resource says how much there is)"
            )
        others = {other for claim in self._claims for other, called in claim.needs if called == name}
        others |= {None if need.is_global else slot.device_id for need in slot.resources if need.name == name}
        if {other is None for other in others} == {True, False}:
            raise InvalidArg(
                f'Resource "{name}" is present as both global and device-specific resource in the model '
                f"configuration. (instance '{slot.name}')"
            )

    def _limit(self, resource: Resource) -> int:
        device, name = resource
        return max(
            (
                limit.count
                for limit in self._limits
                if limit.name.casefold() == name.casefold()
                and (device is None or limit.device is None or limit.device == device)
            ),
            default=0,
        )

    def _measure(self) -> None:
        """Count the resources of the instances that there are."""
        most: dict[Resource, int] = {}
        for claim in self._claims:
            for resource, count in claim.needs.items():
                most[resource] = max(most.get(resource, 0), count)
        self._capacities = {r: self._limit(r) if self._limits else count for r, count in most.items()}
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s", _described(self._capacities))
        self._serve_soon()


def _described(capacities: Mapping[Resource, int]) -> str:
    """The counts of all resources, in the lines that Triton writes."""
    devices: dict[str, list[str]] = {}
    for (device, name), count in capacities.items():
        lines = devices.setdefault("GLOBAL" if device is None else str(device), [])
        lines.append(f"\t\tResource: {name}\t Count: {count}\n")
    shown = [f"\tDevice: {device}\n{''.join(lines)}" for device, lines in devices.items()]
    return "\nMax Resource Map===>\n" + "".join(shown)
