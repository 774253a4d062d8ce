"""Measure several loads on several servers in turns: what disturbs the machine then disturbs all of them."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Protocol, TypeVar

import report
from bench_servers import RunningServer
from load_generator import LoadFailed


class AnyLoad(Protocol):
    """A dataclass that says what is asked of a server."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def title(self) -> str:
        """How tables call it."""


LoadKind = TypeVar("LoadKind", bound=AnyLoad)
Rows = list[dict[str, dict[str, Any]]]  # Any: measurements become JSON; one row for each round, by server
Measure = Callable[[RunningServer, LoadKind, RunningServer | None], Any]  # Any: a dataclass of measurements


def interleaved(
    servers: Mapping[str, RunningServer], loads: Sequence[LoadKind], rounds: int, measure: Measure[LoadKind]
) -> dict[LoadKind, Rows]:
    """Measure every load on every server in each round, and the servers right after each other.

    A measurement that fails is a result too, so that the others still run.

    Args:
        servers: those that run, by name.
        loads: what is asked of each.
        rounds: how often.
        measure: measures one load on one server; the third argument is one that is idle meanwhile.
    """
    found: dict[LoadKind, Rows] = {load: [] for load in loads}
    for number in range(rounds):
        for load in loads:
            order = list(servers.values())
            if number % 2:
                order.reverse()  # no server always follows the same one
            row = {}
            for server in order:
                idle = next((other for other in order if other is not server), None)
                try:
                    row[server.name] = asdict(measure(server, load, idle))
                except LoadFailed as error:
                    row[server.name] = {"failed": str(error)}
            found[load].append(row)
        print(f"round {number + 1} of {rounds} done", file=sys.stderr)
    return found


def report_cases(
    found: Mapping[LoadKind, Rows], fields: Sequence[str] = report.FIELDS
) -> list[dict[str, Any]]:
    """Print the table, and what went wrong; return the cases for the file."""
    cases = []
    for load, rows in found.items():
        summary = report.case_summary(rows, fields)
        print("\n".join(report.case_lines(load.title, summary, fields)))
        cases.append({"load": asdict(load), "summary": summary, "rounds": rows})
    for load, rows in found.items():
        for name, measured in (item for row in rows for item in row.items()):
            if "failed" in measured:
                print(f"FAILED {name} {load.title}: {measured['failed']}")
    measured_rows = [measured for rows in found.values() for row in rows for measured in row.values()]
    idle = [
        measured["idle_server_cpu_percent"]
        for measured in measured_rows
        if measured.get("idle_server_cpu_percent") is not None
    ]
    if idle:
        print(f"\nThe idle server used {statistics.median(idle):.1f} % of a core, at most {max(idle)} %.")
    return cases
