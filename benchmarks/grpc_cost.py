"""What a gRPC call costs the server, by transport: microseconds of its CPU, of all its threads.

    python benchmarks/grpc_cost.py [--rounds N] [--out FILE]

Two servers, one on each transport, serve the built-in identity backend. A client in another process has so
many calls in flight; the transports are interleaved, and printed is the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import grpc.aio
from machine_facts import machine_facts
from process_tree import cpu_time_us
from tritonclient.grpc import service_pb2

TRANSPORTS = ("native", "grpcio")
LOADS = ((64, 1, 3000), (64, 8, 6000), (64, 32, 8000), (1 << 20, 1, 300), (1 << 20, 4, 300))
"""Bytes of the tensor, calls in flight, calls."""
CALL = "/inference.GRPCInferenceService/ModelInfer"
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
CONFIG = """backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
"""


class Server:
    """A server of one transport, and its port."""

    def __init__(self, transport: str, repository: Path) -> None:
        words = f"corectl serve --model-repository {repository} --http-port 0 --metrics-port 0 --grpc-port 0"
        words += f" --grpc-transport {transport}"
        command = [str(Path(sys.executable).parent / "corectl"), *words.split()[1:]]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.port = 0
        for line in self.process.stderr or ():
            if found := re.search(r"Started GRPCInferenceService at .*:(\d+)", line):
                self.port = int(found[1])
                break
        subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(30)


def request(byte_size: int) -> bytes:
    """A serialized request with one tensor."""
    message = service_pb2.ModelInferRequest(model_name="identity")
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[byte_size // 4])
    message.raw_input_contents.append(bytes(byte_size))
    return message.SerializeToString()


async def ask(port: int, body: bytes, in_flight: int, count: int) -> float:
    """Make `count` calls; returns how long they took in seconds."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED) as channel:
        call = channel.unary_unary(CALL)
        await call(body, wait_for_ready=True)

        async def worker() -> None:
            for _ in range(count // in_flight):
                await call(body)

        began = time.perf_counter()
        await asyncio.gather(*[worker() for _ in range(in_flight)])
        return time.perf_counter() - began


def main() -> int:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "models", "identity")
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(CONFIG)
        servers = {transport: Server(transport, model.parent) for transport in TRANSPORTS}
        try:
            for byte_size, in_flight, count in LOADS:
                body = request(byte_size)
                found: dict[str, list[tuple[float, float]]] = {transport: [] for transport in TRANSPORTS}
                for _ in range(given.rounds):
                    for transport, server in servers.items():
                        before = cpu_time_us(server.process.pid)
                        took_s = asyncio.run(ask(server.port, body, in_flight, count))
                        cpu_us = (cpu_time_us(server.process.pid) - before) / count
                        found[transport].append((cpu_us, count / took_s))
                row = {"bytes": byte_size, "in_flight": in_flight}
                for transport, rounds in found.items():
                    cpu, rate = (statistics.median(column) for column in zip(*rounds, strict=True))
                    row[transport] = {"cpu_us_per_call": round(cpu, 1), "calls_per_s": round(rate)}
                    print(f"{byte_size:>8} B  c={in_flight:<3} {transport:<7} {cpu:8.1f} us {rate:8.0f} /s")
                results.append(row)
        finally:
            for server in servers.values():
                server.stop()
    if given.out is not None:
        given.out.write_text(json.dumps({"machine": machine_facts(), "results": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
