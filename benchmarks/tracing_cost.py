"""What tracing costs: processor time of the server for one small HTTP request, with several trace settings.

    python benchmarks/tracing_cost.py [--rounds N] [--requests N] [--out FILE]

One server for each setting, all with the built-in backend `identity`, asked in turns over one connection. The
processor time is that of the whole server, the thread that writes traces included, so that a busy machine
matters little; the table has the median over the rounds, and its ratio to no tracing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine_facts import machine_facts

CONFIG = """backend: "identity"
input [{ name: "INPUT0", data_type: TYPE_FP32, dims: [ 16 ] }]
output [{ name: "OUTPUT0", data_type: TYPE_FP32, dims: [ 16 ] }]
"""
SETTINGS = {
    "off": [],
    "rate 1000": ["level=TIMESTAMPS", "rate=1000"],
    "rate 1": ["level=TIMESTAMPS", "rate=1"],
    "rate 1, tensors": ["level=TIMESTAMPS", "level=TENSORS", "rate=1"],
}
TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")


class Server:
    """A server with one trace setting, and a connection to it."""

    def __init__(self, words: list[str], folder: Path, name: str) -> None:
        corectl = Path(sys.executable).with_name("corectl")
        command = [
            corectl,
            "serve",
            f"--model-repository={folder}",
            "--allow-grpc=false",
            "--allow-metrics=false",
        ]
        command += ["--http-port=0", "--http-address=127.0.0.1"]
        command += [f"--trace-config={word}" for word in words]
        if words:
            command.append(f"--trace-config=triton,file={folder.parent / name}.json")
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if match := re.search(r"Started HTTPService at .*:(\d+)", line):
                self.socket = socket.create_connection(("127.0.0.1", int(match[1])))
                return
        raise SystemExit(f"the server '{name}' did not start")

    def ask(self, count: int, request: bytes) -> None:
        """Send so many requests, one after the other."""
        for _ in range(count):
            self.socket.sendall(request)
            answer = self.socket.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]

    def cpu_us(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_US

    def stop(self) -> None:
        """End it."""
        self.socket.close()
        self.process.terminate()
        self.process.communicate(timeout=30)


def request() -> bytes:
    """An inference of 16 numbers, in binary."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [16], "parameters": {"binary_data_size": 64}}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    head = (
        f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {len(header)}\r\n"
        f"Content-Length: {len(header) + 64}\r\n\r\n"
    )
    return head.encode() + header + bytes(64)


def main() -> int:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=3000, help="per setting and round")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    asked = request()
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        (repository / "m" / "1").mkdir(parents=True)
        (repository / "m" / "config.pbtxt").write_text(CONFIG)
        servers = {
            name: Server(words, repository, f"traces{number}")
            for number, (name, words) in enumerate(SETTINGS.items())
        }
        used: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(options.rounds + 1):  # the first one warms up
            for name, server in servers.items():
                before = server.cpu_us()
                server.ask(options.requests, asked)
                time.sleep(0.2)  # what waits to be written is written
                if number:
                    used[name].append((server.cpu_us() - before) / options.requests)
        for server in servers.values():
            server.stop()
    medians = {name: statistics.median(values) for name, values in used.items()}
    results = {
        "machine": machine_facts(),
        "rounds": options.rounds,
        "requests": options.requests,
        "cpu_us_per_request": {name: round(value, 1) for name, value in medians.items()},
        "ratio_to_off": {name: round(value / medians["off"], 3) for name, value in medians.items()},
        "of_each_round": {name: [round(value, 1) for value in values] for name, values in used.items()},
    }
    text = json.dumps(results, indent=2) + "\n"
    print(text, end="")
    if options.out is not None:
        options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
