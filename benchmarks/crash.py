"""What a dying model costs its neighbours, and how soon it is back.

Serves two Python models, keeps load on both, kills the worker of one with SIGKILL again and again, and
compares the other one's p99 with its p99 before. Every kill starts a new worker that imports, loads and
initialises its model, so this is also the answer to "what does loading a Python model cost the others".

    python benchmarks/crash.py [--kills 10] [--name NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench_servers import OURS_COMMAND, RunningServer, start
from machine_facts import machine_facts

RESULTS = Path(__file__).with_name("results")
WINDOW_S = 2.0
MODEL = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        pid = np.array([os.getpid()])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("PID", pid)]) for _ in requests]
"""
CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "PID" data_type: TYPE_INT64 dims: [ 1 ] } ]
"""
BODY = json.dumps({"inputs": [{"name": "IN", "datatype": "FP32", "shape": [16], "data": [1.0] * 16}]})


@dataclass(frozen=True, slots=True)
class Answer:
    sent_s: float
    took_s: float
    status: int
    body: bytes


class Client:
    """One keep-alive connection that asks one model again and again."""

    def __init__(self, port: int, model: str) -> None:
        self._port = port
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(BODY)}\r\n\r\n"
        self._request = (head + BODY).encode()
        self.answers: list[Answer] = []

    async def run(self, stop: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        while not stop.is_set():
            sent_s = time.perf_counter()
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            took_s = time.perf_counter() - sent_s
            self.answers.append(Answer(sent_s, took_s, int(head.split()[1]), body))
        writer.close()

    def p99_us(self, since_s: float) -> float:
        """p99 of what was sent since then."""
        taken = sorted(answer.took_s for answer in self.answers if answer.sent_s >= since_s)
        return taken[int(len(taken) * 0.99)] * 1e6


async def measure(server: RunningServer, kills: int) -> dict[str, Any]:
    """Load both models, kill the victim's worker `kills` times, and sum up."""
    stop = asyncio.Event()
    neighbour = Client(server.ports["http"], "neighbour")
    victims = [Client(server.ports["http"], "victim") for _ in range(2)]
    tasks = [asyncio.create_task(client.run(stop)) for client in (neighbour, *victims)]
    await asyncio.sleep(1)
    since_s = time.perf_counter()
    await asyncio.sleep(WINDOW_S * 2)
    baseline_us = neighbour.p99_us(since_s)
    ratios, back_s = [], []
    for _ in range(kills):
        good = [answer for answer in victims[0].answers if answer.status == 200]
        pid = json.loads(good[-1].body)["outputs"][0]["data"][0]
        killed_s = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(WINDOW_S)
        ratios.append(neighbour.p99_us(killed_s) / baseline_us)
        served = [a.sent_s + a.took_s for v in victims for a in v.answers if a.status == 200]
        back_s.append(min(at_s for at_s in served if at_s > killed_s + 0.02) - killed_s)
    stop.set()
    await asyncio.gather(*tasks)
    failed = [answer.body for victim in victims for answer in victim.answers if answer.status != 200]
    return {
        "neighbour_p99_us_before": round(baseline_us),
        "neighbour_p99_ratio_per_kill": [round(ratio, 2) for ratio in ratios],
        "neighbour_p99_ratio_median": round(statistics.median(ratios), 2),
        "neighbour_failures": sum(answer.status != 200 for answer in neighbour.answers),
        "victim_serves_again_s": [round(seconds, 3) for seconds in back_s],
        "victim_failed_requests": len(failed),
        "victim_failures_naming_the_signal": sum(b"SIGKILL" in body for body in failed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--name", default="crash")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        repository = Path(scratch) / "models"
        for model in ("victim", "neighbour"):
            (repository / model / "1").mkdir(parents=True)
            (repository / model / "1/model.py").write_text(MODEL)
            (repository / model / "config.pbtxt").write_text(CONFIG)
        server = start("ours", OURS_COMMAND, repository, Path(scratch) / "log")
        try:
            summary = asyncio.run(measure(server, options.kills))
        finally:
            server.stop()
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{options.name}.json"
    path.write_text(json.dumps({"machine": machine_facts(), **summary}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))
    print(f"written: {path}")


if __name__ == "__main__":
    main()
