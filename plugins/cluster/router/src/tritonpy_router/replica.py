"""One server behind the router: where it is, what it has, and how busy it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tritonpy_router.ejection import Ejection
from tritonpy_router.model_facts import ModelFacts
from tritonpy_router.model_load import ModelLoad


class Place(NamedTuple):
    """The addresses of a server.

    Attributes:
        name: of the replica, in logs, metrics and for sequences; the same for all routers.
        host: a name or an address.
        http_port: of HTTP.
        grpc_port: of gRPC.
        replica_port: of the service `Replica`; 0 where that is not known.
    """

    name: str
    host: str
    http_port: int
    grpc_port: int
    replica_port: int = 0


_NOTHING: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False, weakref_slot=True)
class Replica:
    """A server, as this router sees it; on the loop only.

    Attributes:
        place: where it is.
        is_ready: it says so itself.
        is_member: the membership names it; one that left is kept while it has calls or sequences.
        models: versions that are ready, by name; a version is a decimal number.
        facts: of models, by name, as far as they were asked for.
        loads: of models that this router has sent it requests for, by name.
        unready: the reason why it is not ready, in words.
        inflight: requests that this router has under way there.
        most_inflight: of these, at one time since it told of itself last.
        ejection: its failures.
        request_count: requests that this router has sent there.
        heard_s: when it told of itself last, on the clock of `now_s`; None where it does not.
        patience_s: how long it may be silent then, before it is suspect.
        is_draining: it has told that it is about to stop.
        server_id: that it told; another one after each of its starts.
        revision: the highest that it has told.
        others: requests under way there that are not of this router, when it told last.
        pending_count: requests that waited there for an execution then.
        queue_ms: what requests have waited for theirs lately.
    """

    place: Place
    is_ready: bool = False
    is_member: bool = True
    models: dict[str, frozenset[str]] = field(default_factory=dict)
    facts: dict[str, ModelFacts] = field(default_factory=dict)
    loads: dict[str, ModelLoad] = field(default_factory=dict)
    unready: str = "it has not been asked yet"
    inflight: int = 0
    most_inflight: int = 0
    ejection: Ejection = field(default_factory=Ejection)
    request_count: int = 0
    heard_s: float | None = None
    patience_s: float = 0.0
    is_draining: bool = False
    server_id: str = ""
    revision: int = 0
    others: int = 0
    pending_count: int = 0
    queue_ms: float = 0.0

    @property
    def name(self) -> str:
        """See `Place`."""
        return self.place.name

    def has(self, model: str, version: str) -> bool:
        """Whether it serves a model, or a version of it."""
        versions = self.models.get(model, _NOTHING)
        return version in versions if version else bool(versions)

    def takes(self, now_s: float) -> bool:
        """Whether new requests may go there."""
        return (
            self.is_ready and self.is_member and not self.is_draining and not self.ejection.is_ejected(now_s)
        )

    @property
    def load(self) -> int:
        """Requests under way there: this router's, and those of others as far as is known."""
        return self.inflight + self.others

    def have(self, models: dict[str, frozenset[str]], facts: dict[str, ModelFacts]) -> None:
        """Take the versions that it has ready now, and what is known of them."""
        self.models, self.facts = models, facts
        self.loads = {name: load for name, load in self.loads.items() if name in models}
        for name, load in self.loads.items():
            load.instance_count = self._instance_count(name)

    def load_of(self, model: str) -> ModelLoad:
        """What it does for a model."""
        found = self.loads.get(model)
        if found is None:
            found = self.loads[model] = ModelLoad(self._instance_count(model))
        return found

    def _instance_count(self, model: str) -> int:
        """Instances of a model, of an ensemble those of its scarcest step; 0 where that is not known."""
        facts = self.facts.get(model)
        if facts is None:
            return 0
        steps = [self.facts[step].instance_count for step in facts.steps if step in self.facts]
        return min(steps, default=facts.instance_count)

    def begin(self) -> None:
        """Note that this router sends it a request."""
        self.inflight += 1
        if self.inflight > self.most_inflight:
            self.most_inflight = self.inflight
        self.request_count += 1

    def is_suspect(self, now_s: float) -> bool:
        """Whether it is silent though it tells of itself: it gets no requests that others can have."""
        return self.heard_s is not None and now_s - self.heard_s > self.patience_s

    def heard(
        self,
        now_s: float,
        patience_s: float,
        *,
        inflight_count: int,
        pending_count: int,
        queue_ms: float,
        inflight_counts: Mapping[str, int],
        is_draining: bool,
    ) -> None:
        """Note what it tells of itself; `inflight_counts` are those of models."""
        self.heard_s, self.patience_s = now_s, patience_s
        # It counted a little ago, and may count requests of this router that have been answered since.
        self.others = max(0, inflight_count - self.most_inflight)
        self.most_inflight = self.inflight
        for name, load in self.loads.items():
            load.heard(inflight_counts.get(name, 0))
        self.pending_count, self.queue_ms = pending_count, queue_ms
        self.is_draining = is_draining

    def forget_report(self) -> None:
        """It tells nothing any more."""
        self.heard_s = None
        self.is_draining = False
        self.others = self.pending_count = 0
        self.queue_ms = 0.0
        for load in self.loads.values():
            load.others = 0
