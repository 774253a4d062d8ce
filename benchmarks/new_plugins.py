"""How soon a new plugin answers: the commands that `corectl new` prints, one right after the other.

The environment is new and has tritonpy, tritonpy-sdk and tritonpy-backend-python; to make it does not
count. pip builds in isolation, as by default, so it asks the package index for hatchling. Only the ports
are others.

    python benchmarks/new_plugins.py --output benchmarks/results/new-plugins.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import venv
from pathlib import Path

from bench_servers import free_port
from machine_facts import machine_facts

ROOT = Path(__file__).resolve().parents[1]
INSTALLED = ("core", "sdk", "plugins/backends/python")
DEADLINE_S = 120


class Stranger:
    """Somebody with an environment of their own, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        scripts = folder / "venv/bin"
        venv.create(folder / "venv", with_pip=True)
        self._variables = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
        self.type("pip install --quiet " + " ".join(str(ROOT / path) for path in INSTALLED))

    def type(self, command: str, deadline_s: float = DEADLINE_S) -> str:
        """What a command prints; one that fails ends the program."""
        done = subprocess.run(
            command,
            shell=True,
            cwd=self._folder,
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def measure(self, kind: str, name: str) -> dict[str, float]:
        """The seconds of each command, from `corectl new` to the answer, and their sum."""
        began = time.monotonic()
        told = self.type(f"corectl new {kind} {name}")
        ends = [time.monotonic()]
        steps = [line.strip() for line in told.partition("Next:\n")[2].splitlines()]
        [serving] = [index for index, step in enumerate(steps) if step.startswith("corectl serve")]
        for step in steps[:serving]:
            self.type(step)
            ends.append(time.monotonic())
        port, free = free_port(), [free_port(), free_port()]
        ports = f"--http-port {port} --grpc-port {free[0]} --metrics-port {free[1]}"
        server = subprocess.Popen(
            f"exec {steps[serving]} {ports}",
            shell=True,
            cwd=self._folder,
            env=self._variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            answer = ""
            while '"outputs"' not in answer:
                if server.poll() is not None or time.monotonic() - began > DEADLINE_S:
                    raise SystemExit(f"{kind}: no answer, exit status {server.poll()}")
                command = steps[-1].replace("localhost:8000", f"localhost:{port}")
                answer = self.type(f"{command} || true")
            ends.append(time.monotonic())
        finally:
            server.terminate()
            server.wait(DEADLINE_S)
        seconds = [round(end - begin, 3) for begin, end in zip([began, *ends], ends, strict=False)]
        names = [
            "corectl new",
            *(re.sub(r"[./-].*", "", step).strip() for step in steps[:serving]),
            "to an answer",
        ]
        return {**dict(zip(names, seconds, strict=True)), "sum": round(ends[-1] - began, 3)}


def main() -> None:
    """Measure in turns, print medians, write the file."""
    parser = argparse.ArgumentParser(description="How soon a new plugin answers.")
    parser.add_argument("--kinds", nargs="+", default=["backend", "model"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    machine = machine_facts()
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in options.kinds}
    with tempfile.TemporaryDirectory(prefix="new-plugins-") as folder:
        stranger = Stranger(Path(folder))
        for number in range(options.rounds):
            for kind in options.kinds:
                rounds[kind].append(stranger.measure(kind, f"{kind}-{number}"))
    summary = {
        kind: {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        for kind, rows in rounds.items()
    }
    for kind, row in summary.items():
        print(f"{kind:8}", "   ".join(f"{name} {seconds:.2f} s" for name, seconds in row.items()))
    if options.output:
        result = {"machine": machine, "summary": summary, "rounds": rounds}
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
