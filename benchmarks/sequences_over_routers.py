"""Sequences through two routers while servers join, leave and die: is one request of them misrouted?

The model counts the requests of each sequence in its own memory and answers with the count and its server's
name. The client compares: the k-th request of a sequence must be answered with k, by the server that has
answered the first one. Only sequences of the server that is killed may be lost, and they have to be told so.

    python benchmarks/sequences_over_routers.py
    python benchmarks/sequences_over_routers.py --routes mixed
    python benchmarks/sequences_over_routers.py --sequences 60 --at-a-time 15 --pause-s 0.2 --name ''
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import numpy as np
from fleet_processes import Process, wait_until
from kill_matrix import up_replicas, write_page
from machine_facts import machine_facts
from numbered_traffic import MEMBER_VARIABLE, plain
from tritonclient.grpc import service_pb2
from tritonpy_sdk.repository import ModelRepository

RESULTS = Path(__file__).with_name("results")
MODEL = f"""
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.member = np.array([[os.environ["{MEMBER_VARIABLE}"]]], dtype=object)
        self.counts = {{}}

    def execute(self, requests):
        responses = []
        for request in requests:
            sequence, start = (
                int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().ravel()[0])
                for name in ("CORRID", "START")
            )
            self.counts[sequence] = 1 if start else self.counts.get(sequence, -1000) + 1
            count = np.array([[self.counts[sequence]]], dtype=np.int64)
            outputs = [pb_utils.Tensor("COUNT", count), pb_utils.Tensor("MEMBER", self.member)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""
CONFIG = {
    "backend": "python",
    "max_batch_size": 64,
    "sequence_batching": {
        "max_sequence_idle_microseconds": 60_000_000,
        "oldest": {"max_candidate_sequences": 1024},
        "control_input": [
            {
                "name": "START",
                "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}],
            },
            {
                "name": "CORRID",
                "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT64"}],
            },
        ],
    },
    "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [
        {"name": "COUNT", "data_type": "TYPE_INT64", "dims": [1]},
        {"name": "MEMBER", "data_type": "TYPE_STRING", "dims": [1]},
    ],
}
JOIN_AT, LEAVE_AT, KILL_AT, JOIN_AGAIN_AT = 0.15, 0.35, 0.6, 0.75
"""When servers join, leave and die, in parts of all requests."""


class Refused(Exception):
    """A request was not answered; the text is the client's error."""


@dataclass
class Found:
    """What became of the sequences.

    Attributes:
        complete: sequences of which each request was answered as it should be.
        misrouted: sequences with an answer of another server or another count, or an error that says
            that they have not begun; by what was seen.
        lost: sequences that were told that their server is gone, by the server of their first answer.
        texts: of errors, with their counts.
        requests: that were sent.
        by_member: sequences by the server of their first answer.
    """

    complete: int = 0
    misrouted: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    by_member: Counter[str] = field(default_factory=Counter)


class Router:
    """The connections of the client to one router."""

    def __init__(self, process: Process, session: aiohttp.ClientSession) -> None:
        self._url = f"http://{process.host}:{process.ports['http']}/v2/models/counter/infer"
        self._session = session
        self.channel = grpc.aio.insecure_channel(f"{process.host}:{process.ports['grpc']}")
        self._call = self.channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )

    async def http(self, sequence: int, is_start: bool, is_end: bool) -> tuple[int, str]:
        """Send one request of a sequence; count and server of the answer.

        Raises:
            Refused: it was not answered.
        """
        flags = {"sequence_id": sequence, "sequence_start": is_start, "sequence_end": is_end}
        tensor = {"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [0]}
        try:
            async with self._session.post(
                self._url, json={"parameters": flags, "inputs": [tensor]}
            ) as answer:
                document: Any = json.loads(await answer.read())  # Any: JSON
                if answer.status != 200:
                    raise Refused(f"{answer.status} {document.get('error')}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from None
        outputs = {each["name"]: each["data"][0] for each in document["outputs"]}
        return outputs["COUNT"], outputs["MEMBER"]

    async def grpc(self, sequence: int, is_start: bool, is_end: bool) -> tuple[int, str]:
        """Likewise, over gRPC."""
        request = service_pb2.ModelInferRequest(model_name="counter")
        request.parameters["sequence_id"].int64_param = sequence
        request.parameters["sequence_start"].bool_param = is_start
        request.parameters["sequence_end"].bool_param = is_end
        request.inputs.add(name="IN", datatype="INT32", shape=[1, 1])
        request.raw_input_contents.append(bytes(4))
        try:
            answer = await self._call(request, timeout=60.0)
        except grpc.aio.AioRpcError as error:
            raise Refused(f"{error.code().name}: {error.details()}") from None
        raw = dict(zip((each.name for each in answer.outputs), answer.raw_output_contents, strict=True))
        return int(np.frombuffer(raw["COUNT"], np.int64)[0]), raw["MEMBER"][4:].decode()


async def ask_one(
    sequence: int, length: int, pause_s: float, routers: Iterator[Router], found: Found
) -> None:
    """Send a sequence from its start to its end, with pauses, and note what became of it."""
    first = ""
    protocol = ("http", "grpc")[sequence % 2]
    for turn in range(1, length + 1):
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
        router = next(routers)
        found.requests += 1
        try:
            send = router.http if protocol == "http" else router.grpc
            count, member = await send(sequence, turn == 1, turn == length)
        except Refused as refused:
            text = plain(str(refused))
            found.texts[text] += 1
            if "START flag" in text:
                found.misrouted["it had not begun there"] += 1
            else:
                found.lost[first or "nobody yet"] += 1
            return
        if turn == 1:
            first = member
            found.by_member[member] += 1
        if (count, member) != (turn, first):
            found.misrouted["another count" if member == first else "another server"] += 1
            return
    found.complete += 1


class Fleet:
    """The servers and the two routers."""

    def __init__(self, folder: Path) -> None:
        models = ModelRepository(folder / "models")
        models.model("counter", CONFIG)
        (models.path / "counter/1").mkdir(parents=True, exist_ok=True)
        (models.path / "counter/1/model.py").write_text(MODEL)
        self._file = folder / "servers"
        self.members = {
            name: Process(
                name,
                ["serve", f"--model-repository={models.path}", "--drain-delay-secs=1"],
                folder / f"{name}.log",
                environment={MEMBER_VARIABLE: name},
            )
            for name in "abcde"
        }
        command = ["route", f"--servers-file={self._file}"]
        self.routers = [Process(name, command, folder / f"{name}.log") for name in ("router-1", "router-2")]

    def write(self, names: str) -> None:
        """Tell both routers which servers there are."""
        new = self._file.with_suffix(".new")
        new.write_text("".join(f"{self.members[name].place}\n" for name in names))
        new.replace(self._file)

    def start(self) -> None:
        """Start all; two servers are no members yet."""
        for process in (*self.members.values(), *self.routers):
            if process.name == "router-1":
                self.write("abc")
            process.start()
        for member in self.members.values():
            member.wait_ready("counter")
        for router in self.routers:
            wait_until(
                lambda router=router: up_replicas(router) == set("abc"), lambda: "routers have not all three"
            )

    def end(self) -> None:
        """Kill all."""
        for process in (*self.routers, *self.members.values()):
            process.end()

    async def change(self, found: Found, request_count: int) -> None:
        """Have servers join, leave and die as the traffic goes on."""
        for at, names, killed in (
            (JOIN_AT, "abcd", ""),
            (LEAVE_AT, "acd", ""),
            (KILL_AT, "acd", "c"),
            (JOIN_AGAIN_AT, "acde", ""),
        ):
            while found.requests < at * request_count:  # noqa: ASYNC110 - a count has no event
                await asyncio.sleep(0.02)
            self.write(names)
            if killed:
                self.members[killed].signal(signal.SIGKILL, everything=True)


async def run(fleet: Fleet, arguments: argparse.Namespace) -> Found:
    """Send all sequences, so many at a time."""
    sequences, length = arguments.sequences, arguments.length
    found = Found()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(60)
    ) as session:
        routers = [Router(process, session) for process in fleet.routers]
        numbers = iter(range(1, sequences + 1))

        async def client() -> None:
            for number in numbers:
                of_it = routers if arguments.routes == "mixed" else [routers[number // 2 % 2]]
                await ask_one(number, length, arguments.pause_s, itertools.cycle(of_it), found)

        changes = asyncio.create_task(fleet.change(found, sequences * length))
        await asyncio.gather(*(client() for _ in range(min(arguments.at_a_time, sequences))))
        changes.cancel()
        for router in routers:
            await router.channel.close()
    return found


def table(found: Found) -> str:
    """What was found, for the page."""
    shares = ", ".join(f"{count} on {name}" for name, count in sorted(found.by_member.items()))
    misrouted = "; ".join(f"{count}: {what}" for what, count in found.misrouted.items()) or "0"
    all_of_them = found.complete + found.misrouted.total() + found.lost.total()
    cells = (all_of_them, found.complete, misrouted, found.lost.total(), shares)
    return "\n".join(
        (
            "| sequences | complete | misrouted | lost with the one that was killed (c) | began |",
            "| ---: | ---: | ---: | ---: | --- |",
            f"| {' | '.join(map(str, cells))} |",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--at-a-time", type=int, default=100, help="sequences that run together")
    parser.add_argument("--pause-s", type=float, default=0.1, help="between two requests of one, on average")
    parser.add_argument(
        "--routes",
        choices=("own", "mixed"),
        default="own",
        help="a router for each sequence, or both in turns",
    )
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    parser.add_argument(
        "--name", default="sequences-over-routers", help="of the file of results; '' for none"
    )
    arguments = parser.parse_args()
    facts = machine_facts()
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder))
        try:
            fleet.start()
            begun_s = time.monotonic()
            found = asyncio.run(run(fleet, arguments))
            took_s = time.monotonic() - begun_s
        finally:
            fleet.end()
    dead = {"c", "nobody yet"}  # what was sent to it and not answered yet is of nobody
    gates = {
        "0 misrouted": not found.misrouted,
        "lost only with the one that died": found.lost.keys() <= dead,
        "all accounted for": found.complete + found.misrouted.total() + found.lost.total()
        == arguments.sequences,
        "the one that joined has some": bool(found.by_member["d"]),
    }
    result = {
        "machine": facts,
        "load_average_at_end": os.getloadavg()[0],
        "settings": vars(arguments),
        "took_s": round(took_s, 1),
        "complete": found.complete,
        "misrouted": dict(found.misrouted),
        "lost": dict(found.lost),
        "errors": dict(found.texts),
        "requests": found.requests,
        "sequences_by_server": dict(sorted(found.by_member.items())),
        "gates": gates,
    }
    print(
        json.dumps(
            {key: value for key, value in result.items() if key != "machine"}, indent=1, ensure_ascii=False
        )
    )
    if arguments.name:
        path = RESULTS / f"{datetime.date.today().isoformat()}-{arguments.name}.json"
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        print(path)
    if not arguments.no_page:
        write_page("sequences", table(found))
    raise SystemExit(not all(gates.values()))


if __name__ == "__main__":
    main()
