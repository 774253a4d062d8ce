"""One server behind the router: where it is, what it has, and how busy it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tritonpy_router.ejection import Ejection
from tritonpy_router.model_facts import ModelFacts


class Place(NamedTuple):
    """The addresses of a server.

    Attributes:
        name: of the replica, in logs, metrics and for sequences; the same for all routers.
        host: a name or an address.
        http_port: of HTTP.
        grpc_port: of gRPC.
    """

    name: str
    host: str
    http_port: int
    grpc_port: int


_NOTHING: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class Replica:
    """A server, as this router sees it; on the loop only.

    Attributes:
        place: where it is.
        is_ready: it says so itself.
        is_member: the membership names it; one that left is kept while it has calls or sequences.
        models: versions that are ready, by name; a version is a decimal number.
        facts: of models, by name, as far as they were asked for.
        unready: the reason why it is not ready, in words.
        inflight: requests that this router has under way there.
        ejection: its failures.
        request_count: requests that this router has sent there.
    """

    place: Place
    is_ready: bool = False
    is_member: bool = True
    models: dict[str, frozenset[str]] = field(default_factory=dict)
    facts: dict[str, ModelFacts] = field(default_factory=dict)
    unready: str = "it has not been asked yet"
    inflight: int = 0
    ejection: Ejection = field(default_factory=Ejection)
    request_count: int = 0

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
        return self.is_ready and self.is_member and not self.ejection.is_ejected(now_s)
