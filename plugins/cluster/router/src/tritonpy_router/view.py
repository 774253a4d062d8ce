"""The replicas, what each has, and which one gets a request; no sockets, and no clock of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from random import Random

from tritonpy.errors import InvalidArg, NotFound, TritonError, Unavailable

from tritonpy_router.affinity import Pins, highest
from tritonpy_router.model_facts import ModelFacts
from tritonpy_router.picking import Policy, two_choices
from tritonpy_router.replica import Place, Replica
from tritonpy_router.scan import Asked

_log = logging.getLogger("tritonpy.router")

_NO_FACTS = ModelFacts()


class View:
    """All replicas; on the loop only.

    Args:
        now_s: the clock.
        policy: chooses among equals.
        chance: for the policy.

    Attributes:
        replicas: by name, those that left too, while something of theirs is under way.
        pins: the sequences that run.
        lost_sequences: sequences whose replica went away, which are told so once.
        is_stopping: the router is about to go away, and is not ready though requests are taken.
    """

    MOST_LOST = 65_536

    def __init__(
        self, now_s: Callable[[], float], policy: Policy = two_choices, chance: Random | None = None
    ) -> None:
        self.now_s = now_s
        self.replicas: dict[str, Replica] = {}
        self.pins = Pins()
        self.lost_sequences: dict[tuple[str, int | str], str] = {}
        self.is_stopping = False
        self._policy = policy
        self._chance = chance or Random()

    def __iter__(self) -> Iterator[Replica]:
        return iter(self.replicas.values())

    # Membership.

    def set_members(self, places: Iterable[Place]) -> tuple[list[Replica], list[Replica]]:
        """Take a list of servers; returns those that are new, and those that are no members any more."""
        wanted = {place.name: place for place in places}
        left = []
        for name, replica in list(self.replicas.items()):
            replica.is_member = wanted.get(name) == replica.place  # also one that was leaving, and comes back
            if not replica.is_member and (name in wanted or not self.pins.open_on(name, self.now_s())):
                left.append(self._forget(name))
        joined = [Replica(place) for name, place in wanted.items() if name not in self.replicas]
        self.replicas.update((replica.name, replica) for replica in joined)
        return joined, left

    def sweep(self) -> list[Replica]:
        """Forget sequences that have ended by themselves, and then replicas that left; returns those."""
        now_s = self.now_s()
        self.pins.sweep(now_s)
        left = [replica for replica in self.replicas.values() if not replica.is_member]
        return [self._forget(each.name) for each in left if not self.pins.open_on(each.name, now_s)]

    def _forget(self, name: str) -> Replica:
        self._lose_sequences(name)
        return self.replicas.pop(name)

    def failed(self, replica: Replica) -> None:
        """A connection of a replica could not be made, or was lost."""
        if replica.ejection.failed(self.now_s()):
            seconds = replica.ejection.until_s - self.now_s()
            _log.warning(
                "replica '%s' gets no requests for %.0f s: its connections fail", replica.name, seconds
            )

    def gone(self, replica: Replica, reason: str) -> None:
        """A replica does not answer any more: its sequences are lost, for their states are in its memory."""
        replica.is_ready = False
        replica.unready = reason
        replica.have({}, {})
        if self.replicas.get(replica.name) is replica:  # else another one has its name now
            self._lose_sequences(replica.name)

    def _lose_sequences(self, name: str) -> None:
        for key in self.pins.lose(name):
            if len(self.lost_sequences) < self.MOST_LOST:
                self.lost_sequences[key] = name

    # Choices.

    def facts(self, model: str) -> ModelFacts:
        """What is known of a model's configuration."""
        for replica in self.replicas.values():
            found = replica.facts.get(model)
            if found is not None:
                return found
        return _NO_FACTS

    def pick(self, asked: Asked, without: Collection[Replica] = ()) -> Replica:
        """The replica for a request.

        Args:
            asked: what the request says.
            without: replicas that have been tried.

        Raises:
            TritonError: no replica may have it; the text says why.
        """
        if asked.sequence and (facts := self.facts(asked.model)).is_sequence:
            return self._pick_for_sequence(asked, facts, without)
        able = self._able(asked.model, asked.version, without)
        return able[0] if len(able) == 1 else self._policy(able, self._chance, asked.model)

    def is_pinned(self, asked: Asked) -> bool:
        """Whether a request belongs to a sequence, and so to one replica alone."""
        return bool(asked.sequence) and self.facts(asked.model).is_sequence

    def any_ready(self, without: Collection[Replica] = ()) -> Replica:
        """A replica for a question that each can answer.

        Args:
            without: replicas that have been tried.

        Raises:
            Unavailable: none is ready.
        """
        now_s = self.now_s()
        able = [each for each in self.replicas.values() if each.takes(now_s) and each not in without]
        if not able:
            raise Unavailable(self.why_not_ready() or "the replicas that are ready cannot be reached")
        return self._policy(_trusted(able, now_s), self._chance, "")

    def is_model_ready(self, model: str, version: str = "") -> bool:
        """Whether a replica takes requests for a model."""
        now_s = self.now_s()
        return any(each.has(model, version) and each.takes(now_s) for each in self.replicas.values())

    def why_not_ready(self) -> str:
        """The reason why there is no replica that takes requests; "" if there is one."""
        if self.is_stopping:
            return "the router is stopping"
        now_s = self.now_s()
        if any(replica.takes(now_s) for replica in self.replicas.values()):
            return ""
        if not self.replicas:
            return "the router knows no replica"
        return "no replica is ready: " + self._reasons(self.replicas.values())

    def _able(self, model: str, version: str, without: Collection[Replica]) -> list[Replica]:
        now_s = self.now_s()
        able = [
            replica
            for replica in self.replicas.values()
            if replica.has(model, version) and replica.takes(now_s) and replica not in without
        ]
        if not able:
            raise self._nobody(model, version, without)
        return _trusted(able, now_s)

    def _pick_for_sequence(self, asked: Asked, facts: ModelFacts, without: Collection[Replica]) -> Replica:
        key, now_s = (asked.model, asked.sequence), self.now_s()
        name = None if asked.is_start else self.pins.find(key, now_s)
        if name is not None:
            replica = self.replicas.get(name)
            if replica is None or replica in without:  # one that is stopping still takes its sequences
                self.pins.end(key)
                raise _lost(asked, name)
        elif not asked.is_start and (was := self.lost_sequences.pop(key, None)) is not None:
            raise _lost(asked, was)
        else:
            self.lost_sequences.pop(key, None)
            able = self._able(asked.model, asked.version, without)
            chosen = highest(key, [replica.name for replica in able])
            assert chosen is not None  # there is at least one
            replica = self.replicas[chosen]
        # Also with its last request, which may have to wait, or to be sent anew; idle pins are forgotten.
        self.pins.pin(key, replica.name, now_s + facts.idle_s)
        return replica

    def _nobody(self, model: str, version: str, without: Collection[Replica]) -> TritonError:
        if why := self.why_not_ready():
            return Unavailable(why)
        if version and not version.isdecimal():
            return InvalidArg(f"failed to get model version from specified version string '{version}'")
        having = [replica for replica in self.replicas.values() if replica.has(model, version)]
        if having:
            tried = f"; tried: {', '.join(sorted(replica.name for replica in without))}" if without else ""
            return Unavailable(
                f"no replica that has model '{model}' takes requests: {self._reasons(having)}{tried}"
            )
        if version and any(replica.has(model, "") for replica in self.replicas.values()):
            return NotFound(f"Request for unknown model: '{model}' version {version} is not found")
        return NotFound(f"Request for unknown model: '{model}' is not found")

    def _reasons(self, replicas: Iterable[Replica]) -> str:
        now_s = self.now_s()
        return "; ".join(
            f"'{replica.name}' "
            + (replica.unready if not replica.is_ready else self._why_ready_takes_none(replica, now_s))
            for replica in replicas
        )

    def _why_ready_takes_none(self, replica: Replica, now_s: float) -> str:
        if replica.is_draining:
            return "is about to stop"
        if replica.ejection.is_ejected(now_s):
            return "gets none for a while: its connections fail"
        return "was tried"


def _trusted(able: list[Replica], now_s: float) -> list[Replica]:
    """Those that are not silent; all of them, where all are: then it may be this router that was busy."""
    return [replica for replica in able if not replica.is_suspect(now_s)] or able


def _lost(asked: Asked, replica: str) -> Unavailable:
    return Unavailable(
        f"sequence {asked.sequence} of model '{asked.model}' was on replica '{replica}', which is gone, and "
        f"its state with it: start it anew"
    )
