"""Durations of the phases of traced requests, from trace files of this server or a real Triton."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tritonpy.errors import InvalidArg

PHASES = ("receive", "overhead", "queue", "input", "infer", "output", "send")
"""The parts of a request's time, in the order in which they come; overhead is what no other part is."""

_ORIGINS = {"HTTP_RECV_START": "HTTP", "GRPC_WAITREAD_START": "gRPC"}


@dataclass(slots=True)
class TracedRequest:
    """One request of a trace file.

    Attributes:
        id, parent_id: its number, and that of the request it was made for, 0 for none.
        model_name, model_version, request_id: as the file says.
        stamps: activities with their times in nanoseconds, by time; those without a time left out.
    """

    id: int
    parent_id: int = 0
    model_name: str = "?"
    model_version: int = -1
    request_id: str = ""
    stamps: list[tuple[str, int]] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """Origin: `HTTP`, `gRPC`, or `model` for a request that a model or an ensemble has made."""
        for name, _ in self.stamps:
            if name in _ORIGINS:
                return _ORIGINS[name]
        return "model"

    @property
    def total_ns(self) -> int:
        """From its first activity to its last; over gRPC from when it was there.

        A real Triton begins to wait for a request long before a client thinks of it.
        """
        stamps = [stamp for stamp in self.stamps if stamp[0] != "GRPC_WAITREAD_START"]
        return stamps[-1][1] - stamps[0][1] if stamps else 0

    def phases_ns(self) -> dict[str, int]:
        """Duration of each of `PHASES`; together they are `total_ns`."""
        spans = {
            "receive": self._between("HTTP_RECV_START", "HTTP_RECV_END"),
            "queue": self._between("QUEUE_START", "COMPUTE_START"),
            "input": self._between("COMPUTE_START", "COMPUTE_INPUT_END"),
            "infer": self._between("COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"),
            "output": self._between("COMPUTE_OUTPUT_START", "COMPUTE_END"),
            "send": self._between("HTTP_SEND_START", "HTTP_SEND_END")
            + self._between("GRPC_SEND_START", "GRPC_SEND_END"),
        }
        # Responses of a stream leave while the model computes the next ones: those parts lie side by side.
        spans["overhead"] = max(0, self.total_ns - sum(spans.values()))
        return {phase: spans[phase] for phase in PHASES}

    def _between(self, start: str, end: str) -> int:
        """The time from each `start` to the `end` that follows it, added up."""
        total, since = 0, 0
        for name, ns in self.stamps:
            if name == start:
                since = ns
            elif name == end and since:
                total, since = total + ns - since, 0
        return total

    def steps(self) -> list[tuple[str, int]]:
        """Each activity with the nanoseconds since the one before."""
        return [(name, ns - before) for (_, before), (name, ns) in pairwise([*self.stamps[:1], *self.stamps])]


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """Requests of one kind to one model version.

    Attributes:
        model_name, model_version, origin: which.
        total_ns: of each request, sorted.
        phases_ns: the mean of each phase.
    """

    model_name: str
    model_version: int
    origin: str
    total_ns: Sequence[int]
    phases_ns: Mapping[str, float]

    @property
    def count(self) -> int:
        """Number of requests."""
        return len(self.total_ns)

    @property
    def mean_ns(self) -> float:
        """The mean of the total."""
        return sum(self.total_ns) / len(self.total_ns)

    def percentile_ns(self, percent: int) -> int:
        """The total that this percentage of the requests does not exceed."""
        return self.total_ns[max(0, -(-len(self.total_ns) * percent // 100) - 1)]


def read_trace(text: str | bytes, name: str) -> list[TracedRequest]:
    """The requests of a trace file, in the order of their numbers.

    Args:
        text: the file.
        name: what messages call it.

    Raises:
        InvalidArg: it is no trace file.
    """
    try:
        document = json.loads(text)
    except ValueError as exc:
        raise InvalidArg(
            f"'{name}' is no JSON ({exc}); a real Triton writes none when a string tensor has quotes in it, "
            f"and no end while it runs"
        ) from None
    if not isinstance(document, list):
        raise InvalidArg(f"'{name}' is no trace file: expected an array, got {type(document).__name__}")
    requests: dict[int, TracedRequest] = {}
    for entry in document:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), int):
            raise InvalidArg(
                f"'{name}' is no trace file: expected objects with an 'id', got {str(entry)[:80]}"
            )
        _note(requests.setdefault(entry["id"], TracedRequest(entry["id"])), entry)
    for request in requests.values():
        request.stamps.sort(key=lambda stamp: stamp[1])
    return [requests[id] for id in sorted(requests)]


def _note(request: TracedRequest, entry: dict[str, Any]) -> None:  # Any: JSON
    if "model_name" in entry:
        request.model_name = str(entry["model_name"])
        request.model_version = int(entry.get("model_version", -1))
        request.request_id = str(entry.get("request_id", ""))
        request.parent_id = int(entry.get("parent_id", 0))
    for stamp in entry.get("timestamps", ()):
        if stamp["ns"]:  # a real Triton writes 0 for when events of a stream left
            request.stamps.append((str(stamp["name"]), int(stamp["ns"])))


def summarize(requests: Iterable[TracedRequest]) -> list[ModelSummary]:
    """One row for each model version and way in, by name."""
    groups: dict[tuple[str, int, str], list[TracedRequest]] = {}
    for request in requests:
        if request.stamps:
            key = request.model_name, request.model_version, request.origin
            groups.setdefault(key, []).append(request)
    rows = []
    for (name, version, origin), members in sorted(groups.items()):
        phases = [member.phases_ns() for member in members]
        means = {phase: sum(one[phase] for one in phases) / len(phases) for phase in PHASES}
        totals = sorted(member.total_ns for member in members)
        rows.append(ModelSummary(name, version, origin, totals, means))
    return rows
