"""Does somebody else's large JSON disturb a small model? p99 over HTTP, alone and while 50 MB bodies arrive.

perf_analyzer asks `identity_py` with 64 bytes in binary while another process sends bodies of 50 MB of JSON
back to back on one connection: to a model that answers with one number (`read`), and to `identity_py`, whose
answer is as large as the request (`read and write`). Both servers run the same Python models.

    python benchmarks/large_json.py --quick
    python benchmarks/large_json.py
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from bench_servers import OURS_COMMAND, TRITON_COMMAND, RunningServer, start
from load_generator import Load, LoadFailed, measure
from machine_facts import machine_facts

IDENTITY = Path(__file__).with_name("models") / "identity_py"
RESULTS = Path(__file__).with_name("results")
BODY_BYTE_SIZE = 50_000_000
LARGEST_CONFIG = """\
name: "largest_py"
backend: "python"
max_batch_size: 0
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
LARGEST_MODEL = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", request.inputs()[0].as_numpy().max().reshape(1))]
            )
            for request in requests
        ]
"""
CASES = {"read": "largest_py", "read and write": "identity_py"}


def main() -> int:
    """Measure both servers, print a table and write the file with the results."""
    parser = argparse.ArgumentParser(description="p99 of a small model while large JSON arrives")
    parser.add_argument("--quick", action="store_true", help="one round, short windows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window-ms", type=int, default=3000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--name", default="large-json")
    parser.add_argument("--triton-command", default=TRITON_COMMAND)
    parser.add_argument("--ours-command", default=OURS_COMMAND)
    parser.add_argument("--send", nargs=2, metavar=("PORT", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.send:
        send(int(options.send[0]), options.send[1])
        return 0
    if options.quick:
        options.rounds, options.window_ms, options.concurrency = 1, 1500, [1, 4]
    with tempfile.TemporaryDirectory() as scratch:
        result = compare(options, Path(scratch))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{date.today().isoformat()}-{options.name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwritten to {path}")
    return 0


def compare(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Measure both servers in turns."""
    repository = make_repository(scratch / "models")
    commands = {"triton": options.triton_command, "ours": options.ours_command}
    servers = {}
    facts = machine_facts()
    rows: list[dict[str, Any]] = []
    try:
        for name, command in commands.items():
            servers[name] = start(name, command, repository, scratch / f"{name}.log")
        for round_number in range(options.rounds):
            for concurrency in options.concurrency:
                for case in ("alone", *CASES):
                    for name, server in servers.items():
                        row = measure_case(server, case, concurrency, options.window_ms)
                        rows.append({"round": round_number, "server": name, **row})
                        print(_line(rows[-1]), flush=True)
    finally:
        for server in servers.values():
            server.stop()
    return {
        "what": "p99 of identity_py (64 B, binary, HTTP) alone and while JSON bodies of 50 MB arrive",
        "machine": facts,
        "settings": {"rounds": options.rounds, "window_ms": options.window_ms, "body_bytes": BODY_BYTE_SIZE},
        "medians": summary(rows),
        "rounds": rows,
    }


def measure_case(server: RunningServer, case: str, concurrency: int, window_ms: int) -> dict[str, Any]:
    """Measure the small model once, with or without large requests beside it."""
    load = Load("identity_py", "http", concurrency, input_name="INPUT0", shape="16", byte_size=64)
    row: dict[str, Any] = {"case": case, "concurrency": concurrency}
    sender = None
    if case in CASES:
        command = [sys.executable, __file__, "--send", str(server.ports["http"]), CASES[case]]
        sender = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert sender.stdout is not None
        sender.stdout.readline()  # the first large request has been answered
    try:
        row.update(asdict(measure(server, load, window_ms)))
    except LoadFailed as error:
        row["failed"] = str(error)
    if sender is not None:
        sent, _ = sender.communicate()
        row["large"] = json.loads(sent)
    return row


def send(port: int, model: str) -> None:
    """Send large requests until standard input ends; print how many were answered, and how long they took."""
    count = BODY_BYTE_SIZE // 10
    data = ",".join(f"0.{number % 9_000_000 + 1_000_000}" for number in range(count))
    tensor = f'{{"name":"INPUT0","datatype":"FP32","shape":[{count}],"data":[{data}]}}'
    body = f'{{"inputs":[{tensor}]}}'.encode()
    head = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    )
    took: list[float] = []
    ended = _watch_input()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while not ended():
            begun = time.monotonic()
            connection.sendall(head)
            connection.sendall(body)
            _read_answer(connection)
            took.append(round(time.monotonic() - begun, 3))
            if len(took) == 1:
                print(flush=True)
    print(json.dumps({"answered": len(took), "median_s": median(took), "slowest_s": max(took)}))


def _watch_input() -> Any:
    import select

    return lambda: bool(select.select([sys.stdin], [], [], 0)[0])


def _read_answer(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        assert piece, "the server closed the connection"
        received += piece
    head, _, rest = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), received[:500]
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    left = int(length.split(b":")[1]) - len(rest)
    buffer = bytearray(1 << 20)
    while left:
        left -= connection.recv_into(buffer, min(left, len(buffer)))


def make_repository(path: Path) -> Path:
    """Lay out both models."""
    shutil.copytree(IDENTITY, path / "identity_py")
    largest = path / "largest_py"
    (largest / "1").mkdir(parents=True)
    (largest / "config.pbtxt").write_text(LARGEST_CONFIG)
    (largest / "1" / "model.py").write_text(LARGEST_MODEL)
    return path


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over the rounds."""
    keys = dict.fromkeys((row["case"], row["concurrency"], row["server"]) for row in rows)
    found = []
    for case, concurrency, server in keys:
        mine = [
            row
            for row in rows
            if (row["case"], row["concurrency"], row["server"]) == (case, concurrency, server)
            and "failed" not in row
        ]
        if not mine:
            continue
        entry: dict[str, Any] = {"case": case, "concurrency": concurrency, "server": server}
        for field in ("p50_us", "p99_us", "infer_per_s"):
            entry[field] = median(row[field] for row in mine)
        if "large" in mine[0]:
            entry["large_s"] = median(row["large"]["median_s"] for row in mine)
        found.append(entry)
    return found


def _line(row: dict[str, Any]) -> str:
    what = f"{row['case']:<15} c={row['concurrency']} {row['server']:<7}"
    if "failed" in row:
        return f"{what} failed: {row['failed'].splitlines()[0]}"
    large = f"  large: {row['large']['median_s']:.2f} s each" if "large" in row else ""
    return f"{what} p50 {row['p50_us'] / 1000:6.2f} ms  p99 {row['p99_us'] / 1000:7.2f} ms{large}"


if __name__ == "__main__":
    raise SystemExit(main())
