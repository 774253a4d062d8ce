"""What Python models print, count and leave open, seen from outside: the log, `/metrics`, the answers."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

CONFIG: dict[str, Any] = {
    "backend": "python",
    "input": [{"name": "CODE", "data_type": "TYPE_STRING", "dims": [1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}],
}
OBEDIENT = """
import ctypes, os, subprocess, sys, time
import numpy as np
import triton_python_backend_utils as pb_utils

KEPT = []

class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily("done_total", "Things done", pb_utils.MetricFamily.COUNTER)
        times = pb_utils.MetricFamily("seconds", "Times", pb_utils.MetricFamily.HISTOGRAM)
        self.families = [family, times]
        self.done = family.Metric(labels={"model": args["model_name"]})
        self.seconds = times.Metric(labels={"by": args["model_instance_name"]}, buckets=[0.1, 1])

    def execute(self, requests):
        self.done.increment(len(requests))
        self.seconds.observe(0.5)
        for request in requests:
            [code] = pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy()
            names = {**globals(), "request": request}
            exec(code.decode(), names)
        if KEPT and KEPT[-1] == "no answer":
            return None
        out = pb_utils.Tensor("OUT", np.array([str(names.get("out", "")).encode()], object))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


class Running:
    """A `corectl serve` with obedient models."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.http = f"http://127.0.0.1:{server.ports['HTTPService']}"

    def run(self, code: str, *, request_id: str = "", model: str = "obedient", timeout_s: float = 20) -> str:
        """Have a model run code; returns `out`, or raises `AssertionError` with the error's text."""
        tensor = {"name": "CODE", "datatype": "BYTES", "shape": [1], "data": [code]}
        body = json.dumps({"id": request_id, "inputs": [tensor]}).encode()
        try:
            with urlopen(Request(f"{self.http}/v2/models/{model}/infer", body), timeout=timeout_s) as answer:
                return json.load(answer)["outputs"][0]["data"][0]  # type: ignore[no-any-return]
        except HTTPError as exc:
            with exc:
                raise AssertionError(json.load(exc)["error"]) from None

    def post(self, path: str) -> None:
        with urlopen(Request(self.http + path, b"{}"), timeout=20) as answer:
            assert answer.status == 200

    def samples(self, family: str) -> dict[tuple[str, ...], float]:
        """Values by the values of the labels, `le` last, and the suffix of the name."""
        url = f"http://127.0.0.1:{self.server.ports['Metrics Service']}/metrics"
        with urlopen(url, timeout=20) as answer:
            text = answer.read().decode()
        return {
            (
                *(value for name, value in sorted(sample.labels.items(), key=lambda item: item[0] == "le")),
                sample.name.removeprefix(family),
            ): sample.value
            for metric in text_string_to_metric_families(text)
            for sample in metric.samples
            if sample.name.startswith(family)
        }

    def wait_for(self, condition: Callable[[], object]) -> None:
        until(condition, lambda: self.server.log)

    def wait_for_line(self, pattern: str) -> None:
        self.wait_for(lambda: re.search(pattern, self.server.log))


Start = Callable[..., Running]


@pytest.fixture
def start(served: Callable[..., Any], tmp_path: Path) -> Start:
    def start(*options: str, **models: dict[str, Any]) -> Running:
        repository = ModelRepository(tmp_path / "models")
        for name, changes in (models or {"obedient": {}}).items():
            repository.model(name, {**CONFIG, **changes}, files={"model.py": OBEDIENT})
        return Running(served("--model-repository", str(tmp_path / "models"), *options))

    return start


def test_instances_and_models_count_into_one_family(start: Start) -> None:
    two = {"instance_group": [{"kind": "KIND_CPU", "count": 2}]}
    running = start(obedient=two, other={})

    for _ in range(3):
        running.run("")
    running.run("", model="other")

    assert running.samples("done_total") == {("obedient", ""): 3, ("other", ""): 1}
    seconds = running.samples("seconds")
    assert {key[0] for key in seconds} == {"obedient_0_0", "obedient_0_1", "other_0"}
    assert sum(value for key, value in seconds.items() if key[-1] == "_count") == 4
    assert seconds["other_0", "0.1", "_bucket"] == 0
    assert seconds["other_0", "1", "_bucket"] == seconds["other_0", "+Inf", "_bucket"] == 1
    assert seconds["other_0", "_count"] == 1


def test_metrics_go_with_the_model_and_stay_over_a_reload(start: Start, tmp_path: Path) -> None:
    running = start("--model-control-mode=explicit", "--load-model=*", obedient={}, other={})
    running.run("")
    running.run("", model="other")

    running.post("/v2/repository/models/other/unload")
    running.wait_for(lambda: running.samples("done_total") == {("obedient", ""): 1})
    model = next((tmp_path / "models/obedient").rglob("model.py"))
    model.write_text(OBEDIENT + "\n# another one\n")
    running.post("/v2/repository/models/obedient/load")
    running.run("")

    assert running.samples("done_total") == {("obedient", ""): 2}


def test_a_worker_that_is_started_again_counts_from_zero(start: Start) -> None:
    running = start(obedient={}, other={})
    for _ in range(3):
        running.run("")
        running.run("", model="other")

    with pytest.raises(AssertionError, match="killed by signal 9"):
        running.run("os.kill(os.getpid(), 9)")
    running.run("")

    assert running.samples("done_total") == {("obedient", ""): 1, ("other", ""): 3}
    assert running.samples("tritonpy_worker_restarts_total") == {("obedient", "1", ""): 1}


def test_the_memory_of_each_worker_is_shown(start: Start) -> None:
    running = start(obedient={"instance_group": [{"kind": "KIND_CPU", "count": 2}]})

    before = running.samples("tritonpy_worker_memory_bytes")
    assert set(before) == {(f"obedient_0_{index}", "obedient", "1", "") for index in (0, 1)}
    running.run("KEPT.append(bytearray(os.urandom(1000)) * 100_000)")

    grown = sum(running.samples("tritonpy_worker_memory_bytes").values()) - sum(before.values())
    assert 80e6 < grown < 200e6


def test_prints_carry_model_instance_process_and_request(start: Start) -> None:
    running = start()

    pid = running.run(
        "print('out'); print('err', file=sys.stderr); os.system('echo child >&2'); "
        "ctypes.CDLL(None).puts(b'native'); out = os.getpid()",
        request_id="r-1",
    )

    context = "model=obedient version=1 instance=obedient_0"
    running.wait_for_line(rf'I\d{{4}} \S+ {pid} stdout:0\] "out" {context} request_id=r-1\n')
    running.wait_for_line(rf'W\d{{4}} \S+ {pid} stderr:0\] "err" {context} request_id=r-1\n')
    running.wait_for_line(rf'W\d{{4}} \S+ {pid} stderr:0\] "child" {context}\n')
    running.wait_for_line(rf'I\d{{4}} \S+ {pid} stdout:0\] "native" {context}\n')


def test_a_crash_is_explained_before_it_is_stated(start: Start) -> None:
    running = start()

    with pytest.raises(AssertionError, match="SIGSEGV"):
        running.run("print('last words'); ctypes.string_at(0)")

    running.wait_for_line("is not healthy. It was killed by signal 11")
    log = running.server.log
    places = [
        log.index(text)
        for text in (
            '"last words"',
            '"Fatal Python error: Segmentation fault"',
            "in execute",
            "is not healthy",
        )
    ]
    assert places == sorted(places)


def test_a_child_that_holds_the_pipes_does_not_hide_the_end_of_the_worker(start: Start) -> None:
    running = start()
    child = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)']); "

    with pytest.raises(AssertionError, match="exited with code 7"):
        running.run(f"{child} print('child', child.pid); os.write(1, b'left over'); os._exit(7)")

    assert running.run("out = 'back'") == "back"
    running.wait_for_line('"left over"')
    pid = running.server.wait_for_log(r'"child (\d+)"')[1]
    os.kill(int(pid), signal.SIGKILL)


def test_a_request_that_is_kept_is_reported_once(start: Start) -> None:
    running = start(
        "--backend-config=python,unanswered-warning-seconds=0.3",
        "--exit-timeout-secs=0",  # what is kept would be waited for
    )

    kept = "KEPT.extend([request.get_response_sender(), 'no answer'])"
    tensor = {"name": "CODE", "datatype": "BYTES", "shape": [1], "data": [kept]}
    with closing(http.client.HTTPConnection("127.0.0.1", running.server.ports["HTTPService"])) as client:
        client.request("POST", "/v2/models/obedient/infer", json.dumps({"id": "r-7", "inputs": [tensor]}))
        running.wait_for_line(
            r'W.* "model \'obedient\' has not answered a request finally \d+ s after its execute returned: .*'
            r"unanswered-warning-seconds=<seconds> .*request_id=r-7\n"
        )
        client.sock.settimeout(1)  # three times as long
        with pytest.raises(TimeoutError):
            client.sock.recv(1)
    assert running.samples("tritonpy_unanswered_requests_total") == {("obedient", "1", ""): 1}
    assert running.server.log.count("has not answered a request") == 1


def test_exceptions_are_in_the_log_with_their_traceback(start: Start) -> None:
    running = start()

    with pytest.raises(AssertionError) as failed:
        running.run("raise ValueError('no')", request_id="r-3")

    assert "Traceback" not in str(failed.value)
    running.wait_for_line(
        r'E\d{4} \S+ \d+ model\.py:0\] "Failed to process the request\(s\) for model \'obedient_0\', '
        r'message: ValueError: no" model=obedient version=1 instance=obedient_0 request_id=r-3\n'
        r"  Traceback \(most recent call last\):\n"
    )


def test_clients_see_the_traceback_when_they_may(start: Start) -> None:
    running = start("--backend-config=python,traceback-to-client=true")

    with pytest.raises(AssertionError, match=r"Traceback \(most recent call last\):\n(.*\n)+ValueError: no"):
        running.run("raise ValueError('no')")


def test_the_time_that_a_model_takes_to_start_can_be_limited(
    tmp_path: Path, served: Callable[..., Any]
) -> None:
    repository = ModelRepository(tmp_path / "slow")
    slow = OBEDIENT.replace(
        "def initialize(self, args):", "def initialize(self, args):\n        time.sleep(1000)"
    )
    repository.model("slow", {**CONFIG}, files={"model.py": slow})
    # The time would also limit the step that completes the configuration, which reads the model's file.
    options = ("--exit-on-error=false", "--disable-auto-complete-config")
    options += ("--model-repository", str(tmp_path / "slow"))

    limited = served(*options, "--backend-config=python,initialize-timeout-seconds=0.2")

    assert (
        "model 'slow': initializing instance 'slow_0' took longer than 0.2 seconds, the limit that "
        "--backend-config=python,initialize-timeout-seconds sets" in limited.log
    )


@pytest.mark.stress
def test_a_hundred_megabytes_of_prints_cost_nobody_else_and_no_memory(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("obedient", "other"):
        ModelRepository(tmp_path).model(name, CONFIG, files={"model.py": OBEDIENT})
    running = Running(corectl("--model-repository", tmp_path))
    statm = Path(f"/proc/{running.server.process.pid}/statm")

    def resident_bytes() -> int:
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_bytes()
    flood = threading.Thread(
        target=running.run, args=("for _ in range(100_000): print('x' * 1000)",), kwargs={"timeout_s": 200}
    )
    began = time.monotonic()
    flood.start()
    waits, peak = [], before
    while flood.is_alive():
        asked = time.monotonic()
        running.run("", model="other")
        waits.append(time.monotonic() - asked)
        peak = max(peak, resident_bytes())
        time.sleep(0.01)
    flood.join()
    flood_s = time.monotonic() - began

    running.wait_for(lambda: running.server.log.count('"' + "x" * 1000 + '"') == 100_000)
    assert "were dropped" not in running.server.log
    assert peak - before < 100e6
    assert sorted(waits)[len(waits) // 2] < flood_s / 4  # whatever the machine has to do beside it
