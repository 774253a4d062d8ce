"""Servers and routers as children: started, watched, started again, and ended with whoever started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tritonpy_ray import keeper
from tritonpy_ray.child import Child, Program, router_ports, server_ports, told_last
from tritonpy_ray.hosts import ReplicaHost, RouterHost, load_of, replicas_of
from tritonpy_ray.looks import Load
from tritonpy_router.engines import FleetPlan
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals end servers")

ECHO = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}
TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}


@pytest.mark.parametrize(
    ("line", "ports"),
    [
        ('I1124 1 x.py:1] "Started HTTPService at 10.0.0.1:8123"', {"http": 8123}),
        ('I1124 1 x.py:1] "Started GRPCInferenceService at [::1]:8124"', {"grpc": 8124}),
        ('{"message": "Started Metrics Service at 0.0.0.0:8125"}', {"metrics": 8125}),
        ("Started OtherService at 0.0.0.0:1", {}),
        ("Routing: HTTP on port 1, gRPC on port 2, metrics on port 3", {}),
        ("", {}),
    ],
)
def test_ports_of_servers_are_read_from_their_logs(line: str, ports: dict[str, int]) -> None:
    assert server_ports(line) == ports


def test_ports_of_routers_are_read_from_their_logs() -> None:
    line = 'I1124 program.py:9] "Routing: HTTP on port 1, gRPC on port 2, metrics on port 3"'

    assert router_ports(line) == {"http": 1, "grpc": 2, "metrics": 3}
    assert router_ports("Started HTTPService at 0.0.0.0:1") == {}


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (['I1 "begun"\n', 'E1124 s.py:1] "no model"\n', 'I1124 x "end"\n'], 'E1124 s.py:1] "no model"'),
        (["Usage: corectl\n", "\n", "Error: no such option\n"], "Error: no such option"),
        (['{"level": "INFO"}\n', '{"ts": 1, "level": "ERROR", "message": "m"}\n'],
         '{"ts": 1, "level": "ERROR", "message": "m"}'),
        (["a\n", "b\n"], "a\nb"),
        ([], "it wrote nothing"),
    ],
)  # fmt: skip
def test_what_a_program_said_last_is_its_last_error(lines: list[str], text: str) -> None:
    assert told_last(lines) == text


def test_the_load_of_a_server_is_on_its_page_of_metrics() -> None:
    page = """
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="m",version="1"} 3
nv_inference_request_success{model="m",version="2"} 4
nv_inference_request_success{model="n",version="1"} 1
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="m",version="1"} 500
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="m",version="1"} 2
nv_inference_pending_request_count{model="n",version="1"} 5
"""
    assert load_of(page) == Load({"m": 7, "n": 1}, {"m": 500}, 7)


def test_the_replicas_that_a_router_knows_are_on_its_page_of_metrics() -> None:
    page = """
# TYPE tritonpy_router_replica_up gauge
tritonpy_router_replica_up{replica="a"} 1.0
tritonpy_router_replica_up{replica="b"} 0.0
# TYPE tritonpy_router_inflight gauge
tritonpy_router_inflight{replica="c"} 1.0
"""
    assert replicas_of(page) == {"a": True, "b": False}


class Told:
    """Satisfies `hosts.Follow`: servers that a test names; the first question has no answer."""

    def __init__(self) -> None:
        self.lines: Sequence[str] = ()
        self.revision = 0
        self.asked = 0
        self._changed = threading.Condition()

    def tell(self, lines: Sequence[str]) -> None:
        with self._changed:
            self.lines = lines
            self.revision += 1
            self._changed.notify_all()

    def __call__(self, revision: int) -> tuple[int, Sequence[str]]:
        with self._changed:
            self.asked += 1
            if self.asked == 1:
                raise ConnectionError("no controller")
            self._changed.wait_for(lambda: self.revision != revision, 0.2)
            return self.revision, self.lines


@pytest.fixture
def plan(tmp_path: Path) -> FleetPlan:
    ModelRepository(tmp_path / "models").model("echo", ECHO)
    ports = tuple(f"--{service}-{what}" for service in ("http", "grpc", "metrics")
                  for what in ("port=0", "address=127.0.0.1"))  # fmt: skip
    return FleetPlan(
        server_flags=(f"--model-repository={tmp_path / 'models'}", "--exit-timeout-secs=0"),
        router_flags=(*ports, "--probe-interval-secs=0.05", "--exit-timeout-secs=0"),
        exit_timeout_s=1,
    )


@pytest.fixture
def hosts() -> Iterator[list[Any]]:
    """What is stopped at the end."""
    found: list[Any] = []
    yield found
    for host in found:
        host.stop()


def infer(port: int) -> int:
    body = json.dumps({"inputs": [TENSOR]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/models/echo/infer", body)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        status: int = answer.status
        return status


@pytest.mark.timeout(180)
def test_a_router_follows_its_servers_which_are_started_again_when_they_die(
    plan: FleetPlan, hosts: list[Any]
) -> None:
    told = Told()
    replica = ReplicaHost("server-1", "127.0.0.1", plan, os.environ)
    hosts.append(replica)
    router = RouterHost("router-1", "127.0.0.1", plan, os.environ, told, again_s=0.05)
    hosts.append(router)
    until(lambda: replica.look(True).load is not None and router.look(False).state == "up")
    first = replica.look(True)
    told.tell([f"server-1=127.0.0.1:{first.ports['http']}:{first.ports['grpc']}"])
    until(lambda: "server-1" in router.look(False).up)
    status = infer(router.look(False).ports["http"])
    load = until(lambda: (look := replica.look(True)).load and look.load.requests.get("echo") and look.load)

    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: replica.look(False).restart_count == 1 and replica.look(False).state == "up")
    second = replica.look(False)
    told.tell([])
    until(lambda: not router.look(False).known)
    replica.stop()

    assert status == 200
    assert load.requests == {"echo": 1}
    assert (second.failure, second.host) == ("", "127.0.0.1")
    assert second.pid != first.pid
    assert second.pid is None or not psutil.pid_exists(second.pid)
    assert replica.look(True).state == "down"


def test_a_server_that_cannot_start_says_why_and_is_tried_again(hosts: list[Any]) -> None:
    lines: list[str] = []
    child = Child("c", Program(["serve", "--nosuch"], server_ports, 0, os.environ), lines.append, 0.01)
    hosts.append(child)
    child.start()
    until(lambda: child.look("h").restart_count >= 2)
    look = child.look("h")
    child.stop()

    assert look.failure == "Error: unrecognized option '--nosuch'"
    assert any("--nosuch" in line for line in lines)


def test_what_cannot_be_started_at_all_is_tried_again(
    hosts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: (_ for _ in ()).throw(OSError("no memory")))
    child = Child("c", Program(["serve"], server_ports, 0, os.environ), lambda _: None, 0.01)
    hosts.append(child)
    child.start()

    until(lambda: child.look("h").restart_count >= 2)
    assert child.look("h").failure == "it cannot be started: no memory"


STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stderr.write("begun\\n")
sys.stderr.flush()
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_server_ends_with_its_actor_also_one_that_does_not_want_to(how: str, tmp_path: Path) -> None:
    actor = f"""
import subprocess, sys, time
keeper = [sys.executable, "-I", {str(keeper.__file__)!r}, "0.1", sys.executable, "-c", {STUBBORN!r}]
kept = subprocess.Popen(keeper, stdin=subprocess.PIPE, start_new_session=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", actor], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        pid = int(process.stdout.readline())
        begun = process.stderr.readline()
        getattr(process, how)()

    until(lambda: not psutil.pid_exists(pid))
    assert begun == b"begun\n"


def test_a_keeper_has_the_status_of_its_command() -> None:
    def status(code: str) -> int:
        command = [sys.executable, "-I", str(keeper.__file__), "1", sys.executable, "-c", code]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            return process.wait(DEADLINE_S)

    assert status("raise SystemExit(3)") == 3
