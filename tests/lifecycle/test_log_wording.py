"""Phrases that people look for in the log: of ours, and, in the parity run, of a real server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess, until

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
}
SLOW = """
import time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        pb_utils.Logger.log_info("begun")
        time.sleep(1.3)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())]
            )
            for request in requests
        ]
"""
BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("boom")
    def execute(self, requests):
        return []
"""
BODY = json.dumps({"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [1]}]}).encode()
HEAD = r"\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \S+:\d+\] "
STARTS = 3  # of a real server, which may crash by chance while it loads models


@dataclass
class Running:
    """A server of either kind.

    Attributes:
        process: of it.
        read: gives what it has written so far.
        is_real: it is a tritonserver.
        http: its port.
    """

    process: subprocess.Popen[bytes]
    read: Callable[[], str]
    is_real: bool
    http: int = 0

    def post(self, path: str, body: bytes = b"{}") -> int:
        url = f"http://127.0.0.1:{self.http}{path}"
        try:
            with urllib.request.urlopen(url, body, timeout=DEADLINE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until `pattern` is found in the log."""

        def find() -> re.Match[str] | None:
            has_ended = self.process.poll() is not None
            found = re.search(pattern, self.read())
            assert found or not has_ended, f"it has ended, and said no {pattern}\n{self.read()}"
            return found

        found = until(find, lambda: f"{pattern} is in the log:\n{self.read()}")
        assert found is not None
        return found

    def head(self, letter: str) -> str:
        """A pattern of how a line begins; the real server sometimes writes two lines into one."""
        return ("" if self.is_real else "(?m)^") + letter + HEAD

    def says(self, letter: str, text: str) -> None:
        self.wait_for(self.head(letter) + re.escape(f'"{text}'))


@contextmanager
def serving_ours(repository: Path, *flags: str) -> Iterator[Running]:
    with closing(ServerProcess(f"--model-repository={repository}", *flags)) as server:
        yield Running(server.process, lambda: server.log, False, server.http_port)


@contextmanager
def serving_real(log: Path, repository: Path, *flags: str) -> Iterator[Running]:
    """A real server whose ports answer.

    Args:
        log: where it writes.
        repository: of its models.
        flags: further ones.
    """
    program = [sys.executable, str(ROOT / "benchmarks/real_triton.py"), "serve"]
    command = [*program, f"--model-repository={repository}", "--", *flags]
    for starts_left in reversed(range(STARTS)):
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
        running = Running(process, partial(log.read_text, errors="replace"), True)
        try:
            wait_for_ports(running)
            yield running
            return
        except AssertionError:
            if running.http or process.poll() is None or not starts_left:
                raise
        finally:
            process.kill()
            process.wait()


def wait_for_ports(running: Running) -> None:
    started = running.head("I") + '"Started SERVICE at 127.0.0.1:([0-9]+)"'
    running.wait_for(started.replace("SERVICE", "GRPCInferenceService"))
    http = running.wait_for(started.replace("SERVICE", "HTTPService"))
    running.wait_for(started.replace("SERVICE", "Metrics Service"))
    running.http = int(http[1])


@pytest.fixture(params=["tritonpy", pytest.param("triton", marks=pytest.mark.parity)])
def running(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    models = ModelRepository(tmp_path)
    models.python("slow", SLOW, CONFIG)
    models.python("quick", SLOW, CONFIG)
    models.python("broken", BROKEN, CONFIG)
    setting = "--backend-config=python,shm-default-byte-size=4194304"
    flags = ("--model-control-mode=explicit", "--load-model=slow", setting)
    log = tmp_path_factory.mktemp("log") / "stderr"
    is_real = request.param == "triton"
    with serving_real(log, tmp_path, *flags) if is_real else serving_ours(tmp_path, *flags) as server:
        yield server


def test_phrases_of_loading_serving_and_stopping(running: Running) -> None:
    running.says("I", "loading: slow:1")
    running.says("I", "TRITONBACKEND_ModelInstanceInitialize: slow_0 (CPU device 0)")
    running.says("I", "successfully loaded 'slow'")
    running.wait_for(running.head("I") + r"\n\+-+\+-+\+-+\+\n\| Backend +\| Path +\| Config +\|\n")
    running.wait_for(
        r'(?m)^\| python +\| /\S*python\S* +\| {"cmdline":{.*"shm-default-byte-size":"4194304".*}} +\|$'
    )
    running.wait_for(running.head("I") + r"\n\+-+\+-+\+-+\+\n\| Model +\| Version \| Status ")
    running.wait_for(r"(?m)^\| slow +\| 1 +\| READY +\|$")
    running.wait_for(running.head("I") + r"\n\+-+\+-+\+\n\| Option +\| Value ")
    running.wait_for(r"(?m)^\| model_control_mode +\| MODE_EXPLICIT +\|$")
    running.wait_for(r"(?m)^\| startup_models_0 +\| slow +\|$")

    assert running.post("/v2/repository/models/quick/load") == 200
    running.says("I", "loading: quick:1")
    running.says("I", "successfully loaded 'quick'")
    assert running.post("/v2/repository/models/quick/unload") == 200
    running.says("I", "successfully unloaded 'quick' version 1")
    assert running.post("/v2/repository/models/broken/load") == 400
    running.says("E", "failed to load 'broken' version 1: Internal: ValueError: boom\\n")

    assert running.post("/v2/repository/models/absent/load") == 500
    running.says("E", "failed to poll model 'absent': ")

    client = threading.Thread(target=running.post, args=("/v2/models/slow/infer", BODY))
    client.start()
    running.says("I", "begun")
    running.process.terminate()  # the program that runs the real server hands it on
    assert running.process.wait(DEADLINE_S) == 0
    client.join()
    running.wait_for(r"Signal \(15\) received\.")
    running.says("I", "Waiting for in-flight requests to complete.")
    running.says("I", "Timeout 30: Found ")
    running.wait_for(r'"Timeout \d+: Found \d model versions that have in-flight inferences"')
    running.says("I", "All models are stopped, unloading models")
    running.wait_for(r'"Timeout \d+: Found 1 live models and 0 in-flight non-inference requests"')
    running.says("I", "successfully unloaded 'slow' version 1")
    running.wait_for(r'"Timeout \d+: Found 0 live models and 0 in-flight non-inference requests"')


def phrases(log: str) -> list[str]:
    """The messages of a log without what differs from run to run."""
    return re.findall(r'\] "(.*)"$', log, re.MULTILINE)


def test_a_stopping_server_counts_down_and_names_what_it_waits_for(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    held = SLOW.replace("time.sleep(1.3)", f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)")
    ModelRepository(tmp_path / "models").python("slow", f"import os\n{held}", CONFIG)
    server = corectl(f"--model-repository={tmp_path / 'models'}", "--exit-timeout-secs=50")
    url = f"http://127.0.0.1:{server.ports['HTTPService']}/v2/models/slow/infer"
    statuses: list[int] = []

    def ask() -> None:
        with urllib.request.urlopen(url, BODY, timeout=50) as answer:
            statuses.append(answer.status)

    def wait_for(text: str, count: int = 1) -> None:
        until(lambda: server.log.count(text) >= count, lambda: server.log)

    client = threading.Thread(target=ask)
    client.start()
    wait_for("begun")

    server.process.send_signal(signal.SIGTERM)
    wait_for("has 1 in-flight inferences", 2)
    gate.touch()
    assert server.wait() == 0
    client.join()

    said = phrases(server.log)
    said = [
        re.sub(r"^Timeout \d+:", "Timeout:", text) for text in said[said.index("Signal (15) received.") :]
    ]
    busy = "Timeout: Found 1 model versions that have in-flight inferences"
    which = "Model 'slow' (version 1) has 1 in-flight inferences"
    assert said[:4] == [
        "Signal (15) received.",
        "Waiting for in-flight requests to complete.",
        busy,
        which,
    ]
    assert said.count(busy) == said.count(which) >= 2
    # What takes longer than a second is told again.
    assert list(dict.fromkeys(text for text in said[4:] if text not in (busy, which))) == [
        "Timeout: Found 0 model versions that have in-flight inferences",
        "All models are stopped, unloading models",
        "Timeout: Found 1 live models and 0 in-flight non-inference requests",
        "successfully unloaded 'slow' version 1",
        "Timeout: Found 0 live models and 0 in-flight non-inference requests",
        "Server stopped",
    ]
    left = [int(seconds) for seconds in re.findall(r"Timeout (\d+):", server.log)]
    assert left[0] == 50
    assert left == sorted(left, reverse=True)
    assert left[-1] < 50
    assert statuses == [200]


def test_a_server_whose_models_cannot_all_be_loaded_says_so_and_ends(tmp_path: Path) -> None:
    ModelRepository(tmp_path).python("broken", BROKEN, CONFIG)
    command = [str(Path(sys.executable).with_name("corectl")), "serve", f"--model-repository={tmp_path}"]

    run = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]  # what people look at first
    assert (
        "\"error: creating server: Internal - failed to load all models: 'broken' version 1: Internal: "
        in last
    )
    assert "ValueError: boom" in last
    assert re.search(r"(?m)^\| broken +\| 1 +\| UNAVAILABLE: Internal: ValueError: boom", run.stderr)


@pytest.mark.parametrize(("flag", "service"), [("http", "HTTP"), ("grpc", "GRPC"), ("metrics", "Metrics")])
def test_a_port_that_is_taken_is_named_with_its_service(
    serve: Callable[..., Server], tmp_path: Path, flag: str, service: str
) -> None:
    first = serve(tmp_path)
    taken: int = getattr(first, f"{flag}_port")
    command = [str(Path(sys.executable).with_name("corectl")), "serve", f"--model-repository={tmp_path}"]
    for name in ("http", "grpc", "metrics"):
        command += [f"--{name}-address=127.0.0.1", f"--{name}-port={taken if name == flag else 0}"]

    run = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert run.returncode == 1
    text = f"failed to start {service} service: Unavailable - Socket '127.0.0.1:{taken}' already in use"
    assert text in run.stderr.splitlines()[-1]
    assert "loading: echo" not in run.stderr  # no model is loaded in vain
    assert "Traceback" not in run.stderr
