"""What is lost when servers, routers and networks fail: numbered requests through `corectl route`.

Three servers, the third in a network of its own where that is permitted, are asked at a fixed rate over HTTP
and gRPC in turns, whatever became of the requests before. A model notes each number before it answers. Each
row is one fault; it fails if a request is neither answered nor told an error, if one is executed twice, or if
the row's own gate is not kept.

    python benchmarks/kill_matrix.py                            # all rows, writes the page and the results
    python benchmarks/kill_matrix.py --rows sigterm,sigkill --no-page --name ''
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_processes import Island, NotPermitted, Process, wait_until
from machine_facts import machine_facts
from numbered_traffic import (
    ANSWERED,
    CONFIG,
    MEMBER_VARIABLE,
    MODEL,
    NUMBERS_VARIABLE,
    Client,
    Outcome,
    open_loop,
    read_executions,
)
from tritonpy_sdk.repository import ModelRepository

PAGE = Path(__file__).parents[1] / "docs/reference/what-is-lost.md"
RESULTS = Path(__file__).with_name("results")
RETRIABLE = {**CONFIG, "parameters": {"retry_on_replica_loss": {"string_value": "true"}}}
LATE = """
import time


class TritonPythonModel:
    def initialize(self, args):
        time.sleep(1.0)

    def execute(self, requests):
        raise NotImplementedError
"""
LEAD_S = 1.5
"""Traffic before the fault."""
HUNG_S = 3 * (2.0 + 0.25) + 1.5
"""How long what a hung server has may stay unanswered: three questions of 2 s, and pauses between them."""


class Fleet:
    """Three servers and a router, and what rows do to them.

    Args:
        folder: for logs, models and numbers.
        rate_per_s: of requests.
    """

    def __init__(self, folder: Path, rate_per_s: float) -> None:
        self.folder = folder
        self.rate_per_s = rate_per_s
        self.numbers = folder / "numbers"
        self.numbers.mkdir()
        models = ModelRepository(folder / "models")
        for name, config, code in (
            ("numbered", CONFIG, MODEL),
            ("again", RETRIABLE, MODEL),
            ("late", CONFIG, LATE),
        ):
            models.model(name, config)
            (models.path / name / "1").mkdir(parents=True, exist_ok=True)
            (models.path / name / "1/model.py").write_text(code)
        self.models = models.path
        self.servers_file = folder / "servers"
        self.island: Island | None = None
        self.not_permitted = ""
        try:
            self.island = Island()
        except NotPermitted as error:
            self.not_permitted = str(error)
        self.members = [self.member(name) for name in "ab"]
        self.members.append(self.member("c", self.island))
        self.router = self.make_router("router")
        self._next_number = 1

    def member(self, name: str, island: Island | None = None, drain_delay_s: float = 1.0) -> Process:
        """A server that is not started yet."""
        flags = [
            f"--model-repository={self.models}",
            "--model-control-mode=explicit",
            "--load-model=numbered",
            "--load-model=again",
            f"--drain-delay-secs={drain_delay_s:g}",
        ]
        return Process(
            name,
            ["serve", *flags],
            self.folder / f"{name}.log",
            host="127.0.0.1" if island is None else island.host,
            prefix=() if island is None else island.prefix,
            environment={MEMBER_VARIABLE: name, NUMBERS_VARIABLE: str(self.numbers)},
        )

    def make_router(self, name: str, beside: Process | None = None) -> Process:
        """A router that is not started yet; it may share the ports of one that runs."""
        command = ["route", f"--servers-file={self.servers_file}", "--reuse-http-port=true"]
        router = Process(name, [*command, "--reuse-grpc-port=true"], self.folder / f"{name}.log")
        if beside is not None:
            router.ports |= {service: beside.ports[service] for service in ("http", "grpc")}
        return router

    def start(self) -> None:
        """Start all, and wait until the router has all."""
        for member in self.members:
            member.start()
        self.write_servers(self.members)
        for member in self.members:
            member.wait_ready("again")
        self.router.start()
        self.wait_until_up(self.members)

    def write_servers(self, members: Sequence[Process]) -> None:
        """Tell the router which servers there are."""
        new = self.servers_file.with_suffix(".new")
        new.write_text("".join(f"{member.place}\n" for member in members))
        new.replace(self.servers_file)

    def wait_until_up(self, members: Sequence[Process], router: Process | None = None) -> None:
        """Return when the router gives requests to exactly these."""
        expected = {member.name for member in members}
        asked = router or self.router
        wait_until(
            lambda: up_replicas(asked) == expected,
            lambda: (
                f"{asked.name} does not give requests to {sorted(expected)}:\n{asked.log.read_text()[-2000:]}"
            ),
        )

    def restart(self, index: int, drain_delay_s: float = 1.0) -> None:
        """Start a member anew, in the place of one that has ended, and wait until the router has it."""
        old = self.members[index]
        old.end()
        new = self.member(old.name, self.island if index == 2 else None, drain_delay_s)
        new.ports = old.ports
        new.start()
        new.wait_ready("again")
        self.members[index] = new
        self.wait_until_up(self.members)

    async def traffic(
        self,
        fault: Callable[[], Awaitable[None]],
        duration_s: float,
        model: str = "numbered",
    ) -> Outcome:
        """Ask at the fixed rate, and have something happen meanwhile."""
        first = self._next_number
        self._next_number += int(self.rate_per_s * duration_s) + 1

        async def happen() -> None:
            await asyncio.sleep(LEAD_S)
            await fault()

        addresses = (f"{self.router.host}:{self.router.ports[service]}" for service in ("http", "grpc"))
        async with Client(*addresses, model) as client:
            happening = asyncio.create_task(happen())
            sent = await open_loop(client, first, self.rate_per_s, duration_s)
            await happening
        return Outcome(sent, read_executions(self.numbers, model, [each.number for each in sent]))

    def end(self) -> None:
        """Kill all."""
        for process in (*self.members, self.router):
            process.end()
        if self.island is not None:
            self.island.remove()


@dataclass
class Row:
    """One row of the table.

    Attributes:
        name: of the fault, in words.
        outcome: of the traffic; None if it could not be tried.
        gates: what has to hold, and whether it did.
        in_flight: requests that were under way when it happened, and that no other member has answered.
        note: what else was seen, or why it was not tried.
    """

    name: str
    outcome: Outcome | None
    gates: dict[str, bool]
    in_flight: int | None = None
    note: str = ""

    @property
    def all_gates(self) -> dict[str, bool]:
        """Those of all rows, too."""
        if self.outcome is None:
            return {}
        outcome = self.outcome
        once = sum(each.outcome == ANSWERED and not each.is_other for each in outcome.sent)
        named = sum(bool(each.outcome) for each in outcome.failed)
        unexecuted = [
            each
            for each in outcome.sent
            if each.outcome == ANSWERED and not outcome.executions.get(each.number)
        ]
        return {
            "sent = answered + errors with a name": len(outcome.sent) == once + named and not unexecuted,
            **self.gates,
        }

    def as_json(self) -> dict[str, Any]:
        """For the file of results."""
        if self.outcome is None:
            return {"row": self.name, "not_tried": self.note}
        outcome = self.outcome
        return {
            "row": self.name,
            "sent": len(outcome.sent),
            "answered": len(outcome.sent) - len(outcome.failed),
            "executed_twice": len(outcome.twice),
            "errors": outcome.errors,
            "in_flight": self.in_flight,
            "longest_gap_s": round(outcome.longest_gap_s, 3),
            "longest_request_s": round(outcome.longest_s, 3),
            "answered_by": outcome.members,
            "gates": self.all_gates,
            "note": self.note,
        }


Fault = Callable[[Fleet], Awaitable[Row]]
NOTHING_TWICE = "nothing executed twice"


def _in_flight(outcome: Outcome, member: str, begin_s: float, end_s: float) -> int:
    """Requests under way at a member that died between two times: open then, and not answered by another."""
    return sum(
        each.sent_s <= end_s
        and each.ended_s >= begin_s
        and (each.outcome != ANSWERED or each.member == member)
        for each in outcome.sent
    )


async def nothing(fleet: Fleet) -> Row:
    """For comparison: nothing happens."""

    async def fault() -> None:
        pass

    outcome = await fleet.traffic(fault, LEAD_S + 1.5)
    return Row("nothing happens", outcome, {"0 errors": not outcome.failed, NOTHING_TWICE: not outcome.twice})


async def sigterm(fleet: Fleet) -> Row:
    """A server with a drain delay is told to stop."""

    async def fault() -> None:
        fleet.members[0].signal(signal.SIGTERM)

    outcome = await fleet.traffic(fault, LEAD_S + 3.5)
    status = await asyncio.to_thread(fleet.members[0].wait)
    fleet.restart(0)
    gates = {"0 errors": not outcome.failed, NOTHING_TWICE: not outcome.twice, "it exits with 0": status == 0}
    return Row("SIGTERM of one of three", outcome, gates)


async def sigterm_at_once(fleet: Fleet) -> Row:
    """A server without a drain delay is told to stop."""
    old = fleet.members[0]
    old.signal(signal.SIGTERM)
    old.wait()
    fleet.restart(0, drain_delay_s=0.0)

    async def fault() -> None:
        fleet.members[0].signal(signal.SIGTERM)

    outcome = await fleet.traffic(fault, LEAD_S + 2.5)
    fleet.members[0].wait()
    fleet.restart(0)
    few = len(outcome.failed) <= fleet.rate_per_s * 0.25
    gates = {"errors only of what met a closing connection": few, NOTHING_TWICE: not outcome.twice}
    return Row("SIGTERM, without a drain delay", outcome, gates)


async def _kill(fleet: Fleet, model: str) -> tuple[Outcome, int, int]:
    """SIGKILL of the first member; what came of it, requests lost with it, and errors of later ones."""
    times: list[float] = []

    async def fault() -> None:
        times.append(time.monotonic())
        fleet.members[0].signal(signal.SIGKILL, everything=True)
        await asyncio.to_thread(fleet.members[0].wait)
        times.append(time.monotonic())

    outcome = await fleet.traffic(fault, LEAD_S + 2.5, model)
    fleet.restart(0)
    later = [each for each in outcome.failed if each.sent_s > times[1]]
    return outcome, _in_flight(outcome, fleet.members[0].name, times[0], times[1]), len(later)


async def sigkill(fleet: Fleet) -> Row:
    """A server dies."""
    outcome, in_flight, later = await _kill(fleet, "numbered")
    gates = {
        "errors ≤ in flight on it": len(outcome.failed) <= in_flight,
        "0 errors of requests sent later": not later,
        NOTHING_TWICE: not outcome.twice,
    }
    return Row("SIGKILL of one of three", outcome, gates, in_flight)


async def sigkill_retriable(fleet: Fleet) -> Row:
    """A server dies, and the model says that its requests may be executed again."""
    outcome, _, _ = await _kill(fleet, "again")
    again = len(outcome.twice)
    note = f"{again} executed again, as the model lets"
    return Row(
        "SIGKILL, the model lets requests be repeated", outcome, {"0 errors": not outcome.failed}, None, note
    )


async def sigstop(fleet: Fleet) -> Row:
    """A server hangs, and goes on later."""

    async def fault() -> None:
        fleet.members[0].signal(signal.SIGSTOP, everything=True)

    outcome = await fleet.traffic(fault, LEAD_S + HUNG_S)
    await asyncio.to_thread(fleet.members[0].signal, signal.SIGCONT, True)
    fleet.wait_until_up(fleet.members)
    return Row("SIGSTOP of one of three, SIGCONT later", outcome, _bounded(outcome))


async def cable(fleet: Fleet) -> Row:
    """The network of a server is cut, and mended later."""
    island = fleet.island
    name = "network of one of three cut (veth), mended later"
    if island is None:
        return Row(name, None, {}, note=f"not permitted on this machine: {fleet.not_permitted}")

    async def fault() -> None:
        await asyncio.to_thread(island.cut)

    outcome = await fleet.traffic(fault, LEAD_S + HUNG_S)
    island.mend()
    fleet.wait_until_up(fleet.members)
    return Row(name, outcome, _bounded(outcome))


def _bounded(outcome: Outcome) -> dict[str, bool]:
    return {
        f"no request longer than {HUNG_S:g} s": outcome.longest_s <= HUNG_S,
        "others are answered meanwhile": outcome.longest_gap_s < 1.0,
        NOTHING_TWICE: not outcome.twice,
    }


async def leave(fleet: Fleet) -> Row:
    """A server leaves the list, and ends when nothing is under way there."""

    async def fault() -> None:
        fleet.write_servers(fleet.members[1:])
        await asyncio.to_thread(fleet.wait_until_up, fleet.members[1:])
        await asyncio.sleep(0.5)
        fleet.members[0].signal(signal.SIGKILL, everything=True)

    outcome = await fleet.traffic(fault, LEAD_S + 3.5)
    fleet.write_servers(fleet.members)
    fleet.restart(0)
    gates = {"0 errors": not outcome.failed, NOTHING_TWICE: not outcome.twice}
    return Row("drain: out of the list, then killed", outcome, gates)


async def router_restart(fleet: Fleet) -> Row:
    """A router is replaced by another one on the same ports."""

    async def fault() -> None:
        new = fleet.make_router("router-2", beside=fleet.router)
        new.start()
        await asyncio.to_thread(fleet.wait_until_up, fleet.members, new)
        old, fleet.router = fleet.router, new
        old.signal(signal.SIGTERM)
        await asyncio.to_thread(old.wait)

    outcome = await fleet.traffic(fault, LEAD_S + 5)
    # Those that met a connection in the moment in which the old router closed it.
    few = len(outcome.failed) <= fleet.rate_per_s * 0.25
    gates = {"errors only of connections that close": few, NOTHING_TWICE: not outcome.twice}
    return Row("router restarted beside itself", outcome, gates)


async def router_killed(fleet: Fleet) -> Row:
    """The only router dies, and another one is started."""
    times: list[float] = []

    async def fault() -> None:
        fleet.router.signal(signal.SIGKILL)
        await asyncio.to_thread(fleet.router.wait)
        new = fleet.make_router("router-3", beside=fleet.router)
        times.append(time.monotonic())
        new.start()
        await asyncio.to_thread(fleet.wait_until_up, fleet.members, new)
        times.append(time.monotonic())
        fleet.router = new

    outcome = await fleet.traffic(fault, LEAD_S + 5)
    later = [
        each for each in outcome.failed if each.sent_s > times[1] + 2.0
    ]  # clients pause between connections
    gates = {"0 errors once the new one is up": not later, NOTHING_TWICE: not outcome.twice}
    note = f"another one was up after {times[1] - times[0]:.1f} s"
    return Row("SIGKILL of the only router, and a new one", outcome, gates, None, note)


async def joiner(fleet: Fleet) -> Row:
    """A server joins, after a model was loaded through the router."""
    new = fleet.member("d")
    new.start()
    new.wait_ready("again")
    status, body = fleet.router.get("/v2/repository/models/late/load", b"")
    assert status == 200, body

    async def fault() -> None:
        fleet.write_servers([*fleet.members, new])
        await asyncio.to_thread(fleet.wait_until_up, [*fleet.members, new])

    outcome = await fleet.traffic(fault, LEAD_S + 3.5)
    has_late = new.get("/v2/models/late/ready")[0] == 200
    gates = {
        "0 errors": not outcome.failed,
        "it answers a share": outcome.members.get("d", 0) > 0,
        "it has the model that was loaded before": has_late,
        NOTHING_TWICE: not outcome.twice,
    }
    fleet.write_servers(fleet.members)
    fleet.wait_until_up(fleet.members)
    new.end()
    fleet.router.get("/v2/repository/models/late/unload", b"")
    return Row("a fourth joins", outcome, gates)


async def fan_out(fleet: Fleet) -> Row:
    """A model is loaded on all while one of them dies; the one that replaces it gets the model, too."""
    alive = fleet.members[1:]
    told: list[bytes] = []
    took: list[float] = []

    async def load() -> None:
        begun_s = time.monotonic()
        answer = asyncio.to_thread(fleet.router.get, "/v2/repository/models/late/load", b"")
        loading = asyncio.create_task(answer)
        if not took:
            await asyncio.sleep(0.3)
            fleet.members[0].signal(signal.SIGKILL, everything=True)
        status, body = await loading
        told.append(body if status != 200 else b"")
        await asyncio.to_thread(
            wait_until,
            lambda: all(member.get("/v2/models/late/ready")[0] == 200 for member in alive),
            lambda: "the model is not everywhere",
        )
        took.append(time.monotonic() - begun_s)

    outcome = await fleet.traffic(load, LEAD_S + 3.0)
    fleet.restart(0)
    has_late = fleet.members[0].get("/v2/models/late/ready")[0] == 200
    fleet.router.get("/v2/repository/models/late/unload", b"")
    await load()  # how long it takes when nobody dies
    fleet.router.get("/v2/repository/models/late/unload", b"")
    gates = {
        "all others have the model 2 s after the time of a load": took[0] <= took[1] + 2.0,
        "the client is told who has failed": b"'a'" in told[0],
        "its successor has the model": has_late,
        NOTHING_TWICE: not outcome.twice,
    }
    note = f"the others had the model after {took[0]:.1f} s, and after {took[1]:.1f} s where nobody dies"
    return Row("a load for all while one of three dies", outcome, gates, None, note)


ROWS: dict[str, Fault] = {
    "nothing": nothing,
    "sigterm": sigterm,
    "sigterm-at-once": sigterm_at_once,
    "sigkill": sigkill,
    "sigkill-retriable": sigkill_retriable,
    "sigstop": sigstop,
    "cable": cable,
    "leave": leave,
    "joiner": joiner,
    "fan-out": fan_out,
    "router-restart": router_restart,
    "router-killed": router_killed,
}


def up_replicas(router: Process) -> set[str]:
    """The names of the replicas that a router gives requests to."""
    prefix = "tritonpy_router_replica_up{"
    try:
        page = router.metrics()
    except OSError:
        return set()
    lines = [line for line in page.splitlines() if line.startswith(prefix) and float(line.split()[-1]) == 1]
    return {line.split('"')[1] for line in lines}


def table(rows: Sequence[Row]) -> str:
    """The rows for the page."""
    lines = [
        "| what happens | sent | answered | executed twice | errors | longest gap | longest request |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in rows:
        outcome = row.outcome
        if outcome is None:
            lines.append(f"| {row.name} | {row.note} | | | | | |")
            continue
        errors = "; ".join(f"{count} × {_short(text)}" for text, count in outcome.errors.items()) or "0"
        if row.in_flight is not None:
            errors += f" ({row.in_flight} were in flight on it)"
        if row.note:
            errors += f" ({row.note})"
        answered = len(outcome.sent) - len(outcome.failed)
        gap, longest = f"{outcome.longest_gap_s:.2f} s", f"{outcome.longest_s:.2f} s"
        cells = (row.name, len(outcome.sent), answered, len(outcome.twice), errors, gap, longest)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _short(text: str) -> str:
    """The beginning of an error."""
    return re.split(r" \(…\)|; last error| ADDRESS| \(", text)[0]


def write_page(part: str, text: str, page: Path = PAGE) -> None:
    """Put a table where the page wants it, between two comments."""
    begin, end = (f"<!-- {part}: {word} -->" for word in ("begin", "end"))
    before, rest = page.read_text().split(begin)
    _, after = rest.split(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


async def run(names: Sequence[str], rate_per_s: float) -> list[Row]:
    """Try faults, one after the other, on one fleet."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder), rate_per_s)
        try:
            fleet.start()
            for name in names:
                row = await ROWS[name](fleet)
                rows.append(row)
                failed = [gate for gate, holds in row.all_gates.items() if not holds]
                print(
                    f"{'FAILED' if failed else 'ok    '} {json.dumps(row.as_json(), ensure_ascii=False)}",
                    flush=True,
                )
        finally:
            fleet.end()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="which, with commas between them")
    parser.add_argument(
        "--rate", type=float, default=80.0, help="requests in a second, both protocols together"
    )
    parser.add_argument("--name", default="kill-matrix", help="of the file of results; '' for none")
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    arguments = parser.parse_args()
    names = arguments.rows.split(",")
    unknown = set(names) - ROWS.keys()
    if unknown:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    facts = machine_facts()
    begun_s = time.monotonic()
    rows = asyncio.run(run(names, arguments.rate))
    if arguments.name:
        path = RESULTS / f"{datetime.date.today().isoformat()}-{arguments.name}.json"
        result = {
            "machine": facts,
            "load_average_at_end": os.getloadavg()[0],
            "settings": vars(arguments),
            "took_s": round(time.monotonic() - begun_s),
            "rows": [row.as_json() for row in rows],
        }
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        print(path)
    if not arguments.no_page:
        write_page("kill matrix", table(rows))
        print(PAGE)
    raise SystemExit(not all(all(row.all_gates.values()) for row in rows))


if __name__ == "__main__":
    main()
