"""What memory does a server keep after models were loaded and unloaded many times? By allocator.

An ONNX model of the size asked for is loaded, asked by several clients and unloaded, round by round, over
the API of a `corectl serve`; the resident memory of the server is read after each unload. Allocators other
than the system's must be installed, or lie in LD_LIBRARY_PATH.

    python benchmarks/load_memory.py
    python benchmarks/load_memory.py --rounds 50 --malloc tcmalloc --width 1024
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date
from pathlib import Path

import numpy as np
from machine_facts import machine_facts
from onnx import TensorProto, helper, numpy_helper
from tritonpy_sdk import ModelRepository

RESULTS = Path(__file__).with_name("results")
MALLOCS = ("system", "tcmalloc", "jemalloc")
CLIENTS = 8
SETTLE_S = 0.1  # the server tidies up behind the last answer
MIB = 1 << 20


def main() -> int:
    """Measure, print a table and write the file with the results."""
    parser = argparse.ArgumentParser(description="memory of a server after loads and unloads")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--malloc", action="append", choices=MALLOCS)
    parser.add_argument("--width", type=int, action="append", help="the model has WIDTH² weights of 4 bytes")
    parser.add_argument("--output", type=Path, default=RESULTS / f"{date.today()}-load-memory.json")
    arguments = parser.parse_args()
    cases = []
    print("MiB:      model   idle  after 1  after 10  after 50   last   most  KB a round from round 50")
    for width in arguments.width or (1024, 4096):
        for malloc in arguments.malloc or MALLOCS:
            case = measure(malloc, width, arguments.rounds)
            cases.append(case)
            after = case["resident_mib"]
            shown = [after[0], *(after[min(number, len(after)) - 1] for number in (10, 50)), after[-1]]
            print(
                f"{malloc:9} {width * width * 4 / MIB:5.0f} {case['idle_mib']:6.1f} {shown[0]:8.1f} "
                f"{shown[1]:9.1f} {shown[2]:9.1f} {shown[3]:6.1f} {case['peak_mib']:6.1f} "
                f"{case['slope_kb']:10.1f}",
                flush=True,
            )
    arguments.output.write_text(json.dumps({"machine": machine_facts(), "cases": cases}, indent=1) + "\n")
    return 0


def measure(malloc: str, width: int, rounds: int) -> dict[str, object]:
    """One server, one allocator."""
    with tempfile.TemporaryDirectory() as folder:
        ModelRepository(folder).onnx("net", matrix_model(width))
        server, port = start(folder, malloc)
        try:
            idle = resident(server.pid)
            sizes, peak = [], idle
            for _ in range(rounds):
                ask(port, "/v2/repository/models/net/load", b"{}")
                infer_at_once(port, width)
                peak = max(peak, resident(server.pid))
                ask(port, "/v2/repository/models/net/unload", b"{}")
                wait_until_unloaded(port)
                time.sleep(SETTLE_S)
                sizes.append(resident(server.pid))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)
    tail = sizes[50:] if len(sizes) > 60 else sizes
    slope = float(np.polyfit(range(len(tail)), tail, 1)[0])
    return {
        "malloc": malloc,
        "weights_mib": width * width * 4 / MIB,
        "idle_mib": round(idle / MIB, 1),
        "peak_mib": round(peak / MIB, 1),
        "slope_kb": round(slope / 1000, 1),
        "resident_mib": [round(size / MIB, 1) for size in sizes],
    }


def matrix_model(width: int) -> bytes:
    """A model that multiplies rows by a matrix."""
    weights = np.random.default_rng(0).random((width, width), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["X", "W"], ["Y"])],
        "matrix",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", width])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["N", width])],
        [numpy_helper.from_array(weights, "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def start(folder: str, malloc: str) -> tuple[subprocess.Popen[str], int]:
    """A server on free ports, and its HTTP port."""
    command = [str(Path(sys.executable).with_name("corectl")), "serve", "--model-control-mode=explicit"]
    command += ["--model-repository", folder]
    for service in ("http", "grpc", "metrics"):
        command += [f"--{service}-address=127.0.0.1", f"--{service}-port=0"]
    if malloc != "system":
        command.append(f"--malloc={malloc}")
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    port = 0
    log = ""
    for line in server.stderr:
        log += line
        if match := re.search(r"Started HTTPService at 127\.0\.0\.1:(\d+)", line):
            port = int(match[1])
        if "Started Metrics Service" in line:
            break
    assert port, f"the server did not start with {malloc}:\n{log}"
    threading.Thread(target=server.stderr.read, daemon=True).start()
    return server, port


def infer_at_once(port: int, width: int) -> None:
    """Several clients with batches of different sizes."""

    def infer(rows: int) -> None:
        data = np.ones((rows, width), np.float32).tobytes()
        tensor = {"name": "X", "datatype": "FP32", "shape": [rows, width]}
        tensor["parameters"] = {"binary_data_size": len(data)}
        header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        headers = {"Inference-Header-Content-Length": str(len(header))}
        ask(port, "/v2/models/net/infer", header + data, headers)

    threads = [threading.Thread(target=infer, args=(number % 4 + 1,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_until_unloaded(port: int) -> None:
    """Until the model has been finalised."""
    until = time.monotonic() + 30
    while any(
        entry.get("state") in ("READY", "UNLOADING", "LOADING")
        for entry in json.loads(ask(port, "/v2/repository/index", b"{}"))
    ):
        assert time.monotonic() < until
        time.sleep(0.005)


def ask(port: int, path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """Post, and return the body of an answer that must be good."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, body, headers or {})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status == 200, answer
    return answer


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
