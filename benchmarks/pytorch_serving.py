"""What serving PyTorch models costs over the network: speed, neighbours, memory, and who waits meanwhile.

    python benchmarks/pytorch_serving.py
    python benchmarks/pytorch_serving.py --part liveness --rounds 9

Parts: `conv`, a convolutional model in full batches beside the bare loop of the same module; `calls`, what a
call of a tiny network takes by kind of model; `together`, two models at the same time beside each alone;
`instances`, memory of each further instance; `loads`, memory while a model is loaded and unloaded many times;
`liveness`, the longest wait of `/v2/health/live` during a call of half a second, beside that of a process
which only sleeps. Everything has one thread of PyTorch. Rounds of what is compared are interleaved, and the
median is told. Needs `torch`, and a C++ compiler for AOTInductor packages.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import numpy as np
import torch
from bench_servers import OURS_COMMAND, RunningServer, start
from machine_facts import machine_facts
from process_tree import cpu_time_us, memory
from pytorch_models import KINDS, SHAPES, Files, files_of, module_of, write_model
from served_share import Batches, compare
from tritonpy.cli.malloc import keep_freed_memory
from tritonpy_sdk import ModelRepository

RESULTS = Path(__file__).with_name("results")
CALL_S = 0.5  # of the slow model
POLL_S = 0.001
# A process that sleeps and looks how long that took: what it waits longer is the machine's doing.
CONTROL = """
import sys, time
last = time.perf_counter()
print(last, flush=True)
while True:
    time.sleep(0.001)
    now = time.perf_counter()
    if now - last > 0.002:
        print(last, now - last, flush=True)
    last = now
"""


class Client:
    """One connection that asks one model with one batch again and again."""

    def __init__(self, server: RunningServer, model: str, name: str, kind: str, rows: int) -> None:
        self._connection = http.client.HTTPConnection(server.url("http"), timeout=120)
        batch = np.random.default_rng(0).random((rows, *SHAPES[name]), np.float32) * 0.01
        tensor = {
            "name": "INPUT__0" if kind == "compiled" else "x",
            "datatype": "FP32",
            "shape": list(batch.shape),
            "parameters": {"binary_data_size": batch.nbytes},
        }
        header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        self._path = f"/v2/models/{model}/infer"
        self._body = header + batch.tobytes()
        self._headers = {"Inference-Header-Content-Length": str(len(header))}

    def ask(self) -> None:
        """One request; anything but an answer with tensors ends the benchmark."""
        self._connection.request("POST", self._path, self._body, self._headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise SystemExit(f"{self._path}: {response.status} {answer[:500]!r}")


@contextmanager
def serving(models: dict[str, tuple[str, str, Files]], **config: object) -> Iterator[RunningServer]:
    """A server with these models, ready; by name in the repository: the model, its kind and its files."""
    with tempfile.TemporaryDirectory() as folder:
        repository = ModelRepository(Path(folder, "models"))
        for title, (name, kind, files) in models.items():
            write_model(repository, title, name, kind, files, **config)
        server = start(
            "ours", OURS_COMMAND, Path(folder, "models"), Path(folder, "log"), "--exit-on-error=true"
        )
        try:
            yield server
        finally:
            server.stop()


def rate_of(clients: list[Client], seconds: float) -> float:
    """Requests per second of clients that ask at the same time."""
    counts = [0] * len(clients)
    until = time.perf_counter() + seconds

    def work(index: int) -> None:
        while time.perf_counter() < until:
            clients[index].ask()
            counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(clients))]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def bare_rate(call: Callable[[], object], seconds: float) -> float:
    """Calls per second in a loop."""
    call()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        call()
        count += 1
    return count / (time.perf_counter() - begin)


def kinds_that_compile(names: list[str], times: int = 1) -> dict[tuple[str, str], Files]:
    """The files of models of every kind; packages are left out where no compiler is installed."""
    made: dict[tuple[str, str], Files] = {}
    for name in names:
        for kind in KINDS:
            try:
                made[name, kind] = files_of(name, kind, times)
            except Exception as exc:  # of the compiler, of whatever kind
                print(f"{name}: no {kind}: {str(exc).splitlines()[0]}", file=sys.stderr)
    return made


def measure_conv(rounds: int, seconds: float) -> dict[str, object]:
    """Images per second of a bare loop, behind sockets, and through the server, in batches of 16.

    See `served_share`. Then single images, of which the server makes the batches. The loop tells glibc's
    allocator what `corectl serve` tells it; without that it takes thousands of page faults a batch, and half
    as long again.
    """
    keep_freed_memory()
    rows = 16
    module = module_of("conv")
    loops = {
        "script": torch.jit.trace(module, torch.zeros(2, *SHAPES["conv"])),
        "export": torch.export.export(
            module, (torch.zeros(2, *SHAPES["conv"]),), dynamic_shapes=({0: torch.export.Dim("batch")},)
        ).module(),
    }
    batch = np.random.default_rng(0).random((rows, *SHAPES["conv"]), np.float32)
    models = {f"conv_{kind}": ("conv", kind, files_of("conv", kind)) for kind in loops}
    one = [{"kind": "KIND_CPU", "count": 1}]
    found: dict[str, object] = {}
    with serving(models, dynamic_batching={}, instance_group=one) as server:
        for kind, loop in loops.items():

            def call(array: np.ndarray, loop: Callable[[torch.Tensor], object] = loop) -> None:
                with torch.inference_mode():  # a matter of each thread
                    loop(torch.from_numpy(array))

            batches = Batches(f"conv_{kind}", "x", batch)
            result = compare(call, server, batches, rounds * 3, seconds / 3)
            single = [Client(server, f"conv_{kind}", "conv", kind, 1) for _ in range(3 * rows)]
            table: list[dict[str, float]] = []
            for _ in range(rounds):
                begin = time.thread_time()
                row = {"bare": rows * bare_rate(lambda call=call: call(batch), seconds)}
                row["bare CPU µs"] = 1e6 * (time.thread_time() - begin) / (row["bare"] * seconds)
                spent_us = cpu_time_us(server.root_pid)
                row["single images"] = rate_of(single, seconds)
                spent_us = cpu_time_us(server.root_pid) - spent_us
                row["single images CPU µs"] = spent_us / (row["single images"] * seconds)
                table.append(row)
            sizes = server.ask(f"/v2/models/conv_{kind}/stats")["model_stats"][0]["batch_stats"]
            found[kind] = {
                "full_batches": result,
                "images_per_s": medians(table),
                "share_single": ratio(table, "single images", "bare"),
                "cpu_share_single": ratio(table, "bare CPU µs", "single images CPU µs"),
                "batches": {
                    int(entry["batch_size"]): int(entry["compute_infer"]["count"]) for entry in sizes
                },
            }
    return found


def measure_calls(rounds: int, seconds: float) -> dict[str, object]:
    """Microseconds of a request of one row by kind of model, with one client."""
    made = kinds_that_compile(["dense"])
    with serving({f"dense_{kind}": (name, kind, files) for (name, kind), files in made.items()}) as server:
        clients = {kind: Client(server, f"dense_{kind}", "dense", kind, 1) for _, kind in made}
        table = [
            {kind: 1e6 / rate_of([client], seconds) for kind, client in clients.items()}
            for _ in range(rounds)
        ]
    return {"us_per_request": medians(table)}


def measure_together(rounds: int, seconds: float) -> dict[str, object]:
    """Rates of two models asked at the same time, beside each alone: one core each, on a machine with two."""
    names = {"script": "conv_script", "export": "conv_export"}
    models = {title: ("conv", kind, files_of("conv", kind)) for kind, title in names.items()}
    with serving(models) as server:
        pairs = {
            kind: [Client(server, title, "conv", kind, 4) for _ in range(2)] for kind, title in names.items()
        }
        table = []
        for _ in range(rounds):
            row = {f"{kind} alone": rate_of(clients, seconds) for kind, clients in pairs.items()}
            rates: dict[str, float] = {}

            def side(kind: str, rates: dict[str, float] = rates) -> None:
                rates[f"{kind} beside"] = rate_of(pairs[kind], seconds)

            threads = [threading.Thread(target=side, args=(kind,)) for kind in pairs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            table.append(row | rates)
    return {
        "requests_per_s": medians(table),
        "share": {kind: ratio(table, f"{kind} beside", f"{kind} alone") for kind in names},
    }


def measure_instances(rounds: int, seconds: float) -> dict[str, object]:
    """MiB of the server's processes with 1, 2 and 4 instances of a model of 64 MiB, by kind."""
    made = kinds_that_compile(["heavy"])
    found: dict[str, object] = {}
    for (name, kind), files in made.items():
        sizes = {}
        for count in (1, 2, 4):
            group = [{"kind": "KIND_CPU", "count": count}]
            with serving({"heavy": (name, kind, files)}, instance_group=group) as server:
                clients = [Client(server, "heavy", name, kind, 1) for _ in range(count)]
                rate_of(clients, 1.0)
                held = memory(server.root_pid)
                sizes[count] = held.pss_mib or held.rss_mib
        found[kind] = {"mib": sizes, "per_further_instance": round((sizes[4] - sizes[1]) / 3, 1)}
    return found


def measure_loads(rounds: int, seconds: float) -> dict[str, object]:
    """MiB of the server while a model is loaded, asked and unloaded, and KB that each round leaves."""
    made = kinds_that_compile(["dense"])
    found: dict[str, object] = {}
    for (name, kind), files in made.items():
        with tempfile.TemporaryDirectory() as folder:
            write_model(ModelRepository(Path(folder, "models")), "net", name, kind, files)
            server = start(
                "ours",
                OURS_COMMAND,
                Path(folder, "models"),
                Path(folder, "log"),
                "--model-control-mode=explicit",
            )
            marks = []
            try:
                for _ in range(40 if kind == "source" else 250):  # a process each: seconds
                    server.ask("/v2/repository/models/net/load", {})
                    Client(server, "net", name, kind, 1).ask()
                    server.ask("/v2/repository/models/net/unload", {})
                    while server.ask("/v2/repository/index", {"ready": True}):
                        time.sleep(0.002)
                    marks.append(memory(server.root_pid).rss_mib)
            finally:
                server.stop()
        tail = marks[len(marks) // 5 :]
        slope = float(np.polyfit(range(len(tail)), tail, 1)[0]) * 1024
        shown = [marks[index] for index in range(0, len(marks), len(marks) // 5)]
        found[kind] = {"rounds": len(marks), "mib": [*shown, marks[-1]], "kb_per_round": round(slope, 1)}
    return found


def measure_liveness(rounds: int, seconds: float) -> dict[str, object]:
    """Milliseconds that `/v2/health/live` waits at most in a call of half a second, and a sleep meanwhile."""
    x = torch.full((1, *SHAPES["slow"]), 0.01)
    torch.set_num_threads(1)
    with torch.inference_mode():
        once = 1 / bare_rate(lambda: (x @ x).tanh(), 1.0)
    made = kinds_that_compile(["slow"], times=max(1, round(CALL_S / once)))
    found: dict[str, object] = {}
    models = {f"slow_{kind}": (name, kind, files) for (name, kind), files in made.items()}
    with serving(models, max_batch_size=1) as server:
        clients = {kind: Client(server, f"slow_{kind}", "slow", kind, 1) for _, kind in made}
        for client in clients.values():
            client.ask()
            client.ask()  # the second call of a TorchScript model is the slowest
        table: dict[str, list[dict[str, float]]] = {kind: [] for kind in clients}
        for _ in range(rounds):
            for kind, client in clients.items():
                table[kind].append(_longest_wait(server, client))
    for kind, waits in table.items():
        found[kind] = {
            "call_ms": round(statistics.median(wait["call_ms"] for wait in waits)),
            "longest_wait_ms": [wait["live_ms"] for wait in waits],
            "longest_sleep_ms": [wait["control_ms"] for wait in waits],
        }
    return found


def _longest_wait(server: RunningServer, client: Client) -> dict[str, float]:
    control = subprocess.Popen([sys.executable, "-c", CONTROL], stdout=subprocess.PIPE, text=True)
    assert control.stdout is not None
    control.stdout.readline()
    asked: list[float] = []

    def ask() -> None:
        asked.append(time.perf_counter())
        client.ask()
        asked.append(time.perf_counter())

    asking = threading.Thread(target=ask)
    connection = http.client.HTTPConnection(server.url("http"))
    waits = []
    asking.start()
    while asking.is_alive():
        begin = time.perf_counter()
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        waits.append((begin, time.perf_counter() - begin))
        time.sleep(POLL_S)
    connection.close()
    control.terminate()
    slept = [tuple(map(float, line.split())) for line in control.stdout.read().splitlines()]
    control.wait()
    begin, end = asked
    return {
        "call_ms": 1e3 * (end - begin),
        "live_ms": round(1e3 * max(wait for at, wait in waits if begin < at < end), 1),
        "control_ms": round(1e3 * max((wait for at, wait in slept if begin < at < end), default=0.002), 1),
    }


def medians(table: list[dict[str, float]]) -> dict[str, float]:
    """The median of each column."""
    return {key: round(statistics.median(row[key] for row in table), 1) for key in table[0]}


def ratio(table: list[dict[str, float]], key: str, base: str) -> float:
    """The median of the ratios of two columns."""
    return round(statistics.median(row[key] / row[base] for row in table), 3)


PARTS: dict[str, Callable[[int, float], dict[str, object]]] = {
    "conv": measure_conv,
    "calls": measure_calls,
    "together": measure_together,
    "instances": measure_instances,
    "loads": measure_loads,
    "liveness": measure_liveness,
}


def main() -> None:
    """Measure the parts that are asked for, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement of a rate")
    parser.add_argument("--output", type=Path, default=RESULTS / f"{date.today()}-pytorch-serving.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, object] = {"machine": machine_facts(), "torch": torch.__version__}
    for part in options.part or PARTS:
        result[part] = PARTS[part](options.rounds, options.seconds)
        print(json.dumps({part: result[part]}, indent=1), flush=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
