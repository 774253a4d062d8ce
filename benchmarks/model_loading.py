"""The case "somebody else's model loads": latency of the identity model, undisturbed and meanwhile.

A second Python model whose start costs about half a second of processor time is loaded and unloaded again and
again through the repository endpoints, while perf_analyzer asks the identity model one request at a time.
"""

from __future__ import annotations

import shutil
import threading
import urllib.error
from dataclasses import asdict
from pathlib import Path

from bench_servers import NotStarted, RunningServer, start
from load_generator import Load, LoadFailed, measure

IDENTITY = Path(__file__).with_name("models") / "identity_py"
EXPLICIT = ("--model-control-mode=explicit", "--load-model=identity_py")
LOAD = Load("identity_py", "http", concurrency=1, input_name="INPUT0", shape="16", byte_size=64)
SLOW_MODEL = """\
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        started = time.process_time()
        while time.process_time() - started < 0.5:
            sum(range(1000))

    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""


def measure_while_loading(
    name: str, template: str, scratch: Path, window_ms: int, rounds: int
) -> dict[str, object]:
    """Start a server of its own for this case and return its p99 without and with a model loading beside it.

    The answer holds `not_measured` and a reason where the server cannot load models on request.
    """
    repository = _repository(scratch / f"loading-{name}")
    try:
        server = start(name, template, repository, scratch / f"loading-{name}.log", *EXPLICIT)
    except NotStarted as error:
        return {"not_measured": f"no start with {EXPLICIT[0]}: {error}"}
    try:
        server.ask("/v2/repository/models/slow_start_py/load", {})
        server.ask("/v2/repository/models/slow_start_py/unload", {})
        alone, beside, failures, loads = [], [], [], 0
        for _ in range(rounds):
            try:
                alone.append(measure(server, LOAD, window_ms))
                with _Loader(server) as loader:
                    beside.append(measure(server, LOAD, window_ms))
            except LoadFailed as error:
                failures.append(str(error))  # one bad round leaves the others
                continue
            if loader.failure is not None:
                return {"not_measured": loader.failure}
            loads += loader.loads
        if not beside:
            return {"not_measured": f"every round failed, the last with: {failures[-1]}"}
    except urllib.error.HTTPError as error:
        return {"not_measured": f"{error.url}: {error.code} {error.read().decode(errors='replace')[:300]}"}
    except OSError as error:
        return {"not_measured": f"{type(error).__name__}: {error}"}
    finally:
        server.stop()
    return {
        "loads": loads,
        "alone": [asdict(measurement) for measurement in alone],
        "while_loading": [asdict(measurement) for measurement in beside],
        "failures": failures,
    }


class _Loader:
    """A thread that loads and unloads the slow model until the `with` block ends.

    `loads` and `failure` are the thread's until the block has ended, the reader's afterwards.
    """

    def __init__(self, server: RunningServer) -> None:
        self.loads = 0
        self.failure: str | None = None
        self._server = server
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Loader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                for action in ("load", "unload"):
                    self._server.ask(f"/v2/repository/models/slow_start_py/{action}", {})
            except OSError as error:  # HTTPError is one
                self.failure = f"load number {self.loads + 1} failed: {error}"
                return
            self.loads += 1


def _repository(folder: Path) -> Path:
    """Write a repository with the identity model and the one that is slow to start."""
    shutil.copytree(IDENTITY, folder / "identity_py")
    slow = folder / "slow_start_py"
    (slow / "1").mkdir(parents=True)
    (slow / "1" / "model.py").write_text(SLOW_MODEL)
    config = (IDENTITY / "config.pbtxt").read_text()
    (slow / "config.pbtxt").write_text(config.replace("identity_py", "slow_start_py"))
    return folder
