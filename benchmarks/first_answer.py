"""How soon a program that binds a function answers, and what it holds then: commands in turns.

The time runs from the start of the interpreter, so that imports count, to the first right answer over HTTP;
so does the processor time of the whole process tree, whose memory is taken after ten more answers.
By PyTriton and by ours, the same program; PyTriton has an environment of its own, and needs the shared
library of Python, where the system does not find that by itself:

    python -m venv /path/to/venv && /path/to/venv/bin/pip install nvidia-pytriton==0.7.0
    python -c "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"  # is /path/to/lib
    python benchmarks/first_answer.py --rounds 7 --output benchmarks/results/first-answer.json \
        'pytriton=env LD_LIBRARY_PATH=/path/to/lib /path/to/venv/bin/python
            benchmarks/bound_functions.py {http} {grpc}' \
        'ours={python} -m tritonpy_sdk.pytriton benchmarks/bound_functions.py {http} {grpc}'
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import Any

import process_tree
from bench_servers import free_port
from machine_facts import machine_facts

DEADLINE_S = 120
ASKED = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 3.0]}]}


def answered(port: int, model: str) -> bool:
    """Whether the model answers, and rightly."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/v2/models/{model}/infer", json.dumps(ASKED).encode(), timeout=30
        ) as response:
            found = json.load(response)["outputs"][0]["data"]
    except OSError:  # not listening yet, or the model is not there yet
        return False
    assert found == [1.0, 2.0, 3.0], found
    return True


def measure(command: str, model: str) -> dict[str, Any]:
    """Start the program, ask it until it answers, and end it."""
    ports = {"http": free_port(), "grpc": free_port()}
    words = [word.format(python=sys.executable, **ports) for word in shlex.split(command)]
    began = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not answered(ports["http"], model):
            if process.poll() is not None or time.monotonic() - began > DEADLINE_S:
                raise SystemExit(f"{command}: no answer, exit status {process.poll()}")
            time.sleep(0.01)
        first_answer_s = time.monotonic() - began
        cpu_s = process_tree.cpu_time_us(process.pid) / 1e6
        assert all(answered(ports["http"], model) for _ in range(10))
        memory = process_tree.memory(process.pid)
        began = time.monotonic()
        process.terminate()
        process.wait(DEADLINE_S)
    finally:
        process.kill()
    return {
        "first_answer_s": round(first_answer_s, 3),
        "cpu_s": round(cpu_s, 3),
        "stop_s": round(time.monotonic() - began, 3),
        **asdict(memory),
    }


def main() -> None:
    """Measure in turns, print medians, write the file."""
    parser = argparse.ArgumentParser(description="How soon programs that bind a function answer.")
    parser.add_argument("commands", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--model", default="identity_py_batched")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    commands = dict(text.split("=", 1) for text in options.commands)
    machine = machine_facts()
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            rounds[name].append(measure(command, options.model))
    summary = {
        name: {field: statistics.median(row[field] for row in rows) for field in rows[0]}
        for name, rows in rounds.items()
    }
    for name, row in summary.items():
        print(
            f"{name:10} first answer {row['first_answer_s']:6.2f} s   after {row['cpu_s']:5.2f} s of CPU"
            f"   end {row['stop_s']:5.2f} s"
            f"   {row['processes']:.0f} processes with {row['pss_mib']:,.0f} MiB"
        )
    if options.output:
        result = {"machine": machine, "summary": summary, "rounds": rounds}
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
