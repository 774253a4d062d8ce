"""Start, ask and stop the two servers that are compared.

Both are ordinary processes on this machine, started on ports the kernel picked, each with its log in a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import process_tree

LAUNCHER = Path(__file__).with_name("real_triton.py")
PORTS = "--http-port {http} --grpc-port {grpc} --metrics-port {metrics}"
TRITON_COMMAND = f"{{python}} {LAUNCHER} serve --model-repository {{repository}} {PORTS} --"
OURS_COMMAND = f"{{corectl}} serve --model-repository {{repository}} {PORTS} --allow-client-shm=true"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
PR_SET_PDEATHSIG = 1


class NotStarted(Exception):
    """The server ended or stayed silent before it was ready; the text ends with its last log line."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """One server that answers: where it listens, and the process at the top of its tree."""

    name: str
    process: subprocess.Popen[bytes]
    root_pid: int
    ports: dict[str, int] = field(repr=False)
    ready_s: float

    def url(self, protocol: str) -> str:
        """Return host and port as perf_analyzer wants them."""
        return f"127.0.0.1:{self.ports[protocol]}"

    def ask(self, path: str, body: object | None = None, timeout_s: float = 60.0) -> Any:  # JSON of any shape
        """GET `path`, or POST `body` as JSON, and return the decoded answer (None when it is empty)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.url('http')}{path}", data=data)
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def wait_for(self, model_name: str) -> None:
        """Return once a model is ready; servers whose models are bound later are ready before them.

        Raises:
            NotStarted: it was not within a minute.
        """
        end = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < end:
            try:
                self.ask(f"/v2/models/{model_name}/ready")
            except urllib.error.HTTPError:
                time.sleep(0.1)
            else:
                return
        raise NotStarted(f"{self.name}: model '{model_name}' was not ready")

    def infer_binary(self, model_name: str, input_name: str, shape: list[int], values: bytes) -> bytes:
        """Send one FP32 tensor in binary and return the whole answer, whose output is binary too."""
        size = {"binary_data_size": len(values)}
        tensor = {"name": input_name, "datatype": "FP32", "shape": shape, "parameters": size}
        header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        request = urllib.request.Request(
            f"http://{self.url('http')}/v2/models/{model_name}/infer",
            data=header + values,
            headers={"Inference-Header-Content-Length": str(len(header))},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            body: bytes = answer.read()
        return body

    def success_count(self, model_name: str) -> int:
        """Return how many requests of the model this server says it has answered."""
        stats = self.ask(f"/v2/models/{model_name}/stats")["model_stats"][0]
        return int(stats["inference_stats"]["success"]["count"])

    def stop(self) -> None:
        """Ask the server to end and wait for it; kill its processes, by id, if it does not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                print(
                    f"{self.name} did not stop within {STOP_TIMEOUT_S:g} s of SIGTERM; killed",
                    file=sys.stderr,
                )
                for pid in process_tree.tree_pids(self.process.pid):
                    _kill(pid)
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def start(name: str, template: str, repository: Path, log: Path, *extra: str) -> RunningServer:
    """Start a server on a model repository and wait until it is ready.

    Args:
        name: how the results call it, "triton" or "ours".
        template: the command; {python}, {corectl}, {repository}, {http}, {grpc} and {metrics} are filled in.
        repository: the model repository.
        log: the file its output goes to; an older log there is kept and added to.
        extra: options added at the end of the command.

    Raises:
        NotStarted: it is not there, ended, or was not ready within a minute.
    """
    ports = {kind: free_port() for kind in ("http", "grpc", "metrics")}
    corectl = Path(sys.executable).with_name("corectl")
    words = [
        word.format(python=sys.executable, corectl=corectl, repository=repository, **ports)
        for word in shlex.split(template)
    ]
    libc = ctypes.CDLL(None)
    started = time.monotonic()
    with log.open("ab") as log_file:
        try:
            process = subprocess.Popen(
                [*words, *extra],
                stdout=subprocess.PIPE if str(LAUNCHER) in words else log_file,
                stderr=log_file,
                start_new_session=True,  # Ctrl-C reaches us alone; we then stop the servers in order
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        except OSError as error:
            raise NotStarted(f"{words[0]}: {error.strerror}") from error
    ready_s = _wait_until_ready(name, process, ports["http"], started, log)
    root_pid = process.pid
    if process.stdout is not None:  # the launcher tells the server's own process and its own clock
        report = json.loads(process.stdout.readline())
        root_pid, ready_s = report["pid"], report["ready_s"]
    return RunningServer(name, process, root_pid, ports, ready_s)


def free_port() -> int:
    """Return a port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(
    name: str, process: subprocess.Popen[bytes], port: int, started: float, log: Path
) -> float:
    """Poll the readiness endpoint every 10 ms and return the seconds it took to answer 200."""
    last = "no answer"
    try:
        while time.monotonic() - started < READY_TIMEOUT_S:
            if process.poll() is not None:
                last = f"ended with exit code {process.returncode}"
                break
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5):
                    return round(time.monotonic() - started, 3)
            except urllib.error.HTTPError as error:
                last = f"last answer {error.code}"
            except OSError:
                pass  # not listening yet
            time.sleep(0.01)
    except BaseException:
        _kill(process.pid)
        raise
    process.terminate()
    process.wait()
    lines = log.read_text(errors="replace").strip().splitlines() or ["(empty log)"]
    raise NotStarted(f"{name} was not ready: {last}; its log ends: {lines[-1].strip()}")


def _kill(pid: int) -> None:
    """Kill one process that may have gone meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
