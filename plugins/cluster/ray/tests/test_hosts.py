"""Servers and routers as children: started, watched, started again, and ended with whoever started them."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import trustme
from tritonpy_ray import keeper
from tritonpy_ray.child import Child, Program, router_ports, server_ports, told_last
from tritonpy_ray.looks import Load
from tritonpy_ray.pages import load_of, replicas_of
from tritonpy_ray.replica_host import ReplicaHost
from tritonpy_ray.router_host import RouterHost
from tritonpy_router.engines import FleetPlan, FleetTls
from tritonpy_router.secrets import new_token
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
        ("I1124 1 x.py:1] \"Started frontend 'replica' at 10.0.0.1:8126\"", {"replica": 8126}),
        ("I1124 1 x.py:1] \"Started frontend 'other' at 10.0.0.1:8126\"", {}),
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


def page_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        text: bytes = answer.read()
        return text.decode()


def infer(port: int, tls: ssl.SSLContext | None = None) -> int:
    body = json.dumps({"inputs": [TENSOR]}).encode()
    place = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
    request = urllib.request.Request(f"{place}/v2/models/echo/infer", body)
    with urllib.request.urlopen(request, timeout=DEADLINE_S, context=tls) as answer:
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


def spoken_in_the_clear(port: int) -> bool:
    """Whether a port answers a client that encrypts nothing."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client:
        try:
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
            return client.recv(64)[:1] not in (b"", b"\x15")  # the alert of TLS
        except OSError:
            return False


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Certificates of servers, of routers towards these, and of routers towards clients."""
    found = {}
    for name, host in (("server", "fleet.example"), ("router", "router"), ("front", "localhost")):
        authority = trustme.CA()
        issued = authority.issue_cert(host)
        for part, pem in (
            ("ca", authority.cert_pem),
            ("cert", issued.cert_chain_pems[0]),
            ("key", issued.private_key_pem),
        ):
            found[f"{name}_{part}"] = str(tmp_path / f"{name}.{part}")
            pem.write_to_path(found[f"{name}_{part}"])
    return found


@pytest.mark.timeout(180)
def test_routers_know_servers_by_certificates_and_a_token_and_take_the_place_of_another(
    plan: FleetPlan, files: dict[str, str], hosts: list[Any]
) -> None:
    front = (
        *(
            f"--https-certificate={files['front_cert']}",
            f"--https-key={files['front_key']}",
            "--grpc-use-ssl=true",
        ),
        *(f"--grpc-server-cert={files['front_cert']}", f"--grpc-server-key={files['front_key']}"),
    )
    tls = FleetTls(
        server_certificate=files["server_cert"],
        server_key=files["server_key"],
        server_client_ca=files["router_ca"],
        replica_ca=files["server_ca"],
        replica_name="fleet.example",
        replica_certificate=files["router_cert"],
        replica_key=files["router_key"],
    )
    plan = replace(
        plan,
        server_flags=(*plan.server_flags, "--model-control-mode=explicit"),
        router_flags=(*(plan.router_flags or ()), *front, "--exit-timeout-secs=20"),
        exit_timeout_s=20,
        tls=tls,
        replica_token=new_token(),
    )
    told = Told()
    replica = ReplicaHost("server-1", "127.0.0.1", plan, os.environ)
    hosts.append(replica)
    old = RouterHost("router-1", "127.0.0.1", plan, os.environ, told, again_s=0.05)
    hosts.append(old)
    until(lambda: replica.look(False).state == "up" and old.look(False).state == "up")
    ports, router = replica.look(False).ports, old.look(False)
    told.tell([f"server-1=127.0.0.1:{ports['http']}:{ports['grpc']}:{ports['replica']}"])
    metrics = f"http://127.0.0.1:{router.ports['metrics']}/metrics"
    tells = 'tritonpy_router_replica_queue_seconds{replica="server-1"}'
    until(lambda: tells in page_of(metrics))
    url = f"localhost:{router.ports['grpc']}"
    with tritonclient.grpc.InferenceServerClient(
        url, ssl=True, root_certificates=files["front_ca"]
    ) as client:
        client.load_model("echo")  # which the router has the server do by the service that asks for the token
        tensor = tritonclient.grpc.InferInput("INPUT0", [2], "FP32")
        tensor.set_data_from_numpy(np.ones(2, np.float32))
        answer = client.infer("echo", [tensor]).as_numpy("OUTPUT0")

    trust = ssl.create_default_context(cafile=files["front_ca"])
    statuses: list[object] = [infer(router.ports["http"], trust)]
    assert (statuses, answer.tolist()) == ([200], [1, 1])
    assert [spoken_in_the_clear(ports[service]) for service in ("http", "grpc", "replica")] == [False] * 3
    secrets = [
        text
        for look in (replica.look(False), router)
        for process in (psutil.Process(look.pid), *psutil.Process(look.pid).parents()[:1])
        for text in (*process.cmdline(), *process.environ().values())
    ]
    assert not [text for text in secrets if plan.replica_token in text]

    new = RouterHost("router-2", "127.0.0.1", plan, os.environ, told, router.ports, again_s=0.05)
    hosts.append(new)
    is_over = threading.Event()

    def keep_asking() -> None:
        while not is_over.is_set():
            try:
                statuses.append(infer(router.ports["http"], trust))
            except OSError as exc:
                statuses.append(exc)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    until(lambda: "server-1" in new.look(False).up)
    looks = old.look(False), new.look(False)
    old.stop()
    count = len(statuses)
    until(lambda: len(statuses) > count + 3)
    is_over.set()
    asking.join()

    assert looks[0].ports == looks[1].ports == router.ports
    assert looks[0].pid != looks[1].pid
    if sys.platform == "linux":
        assert looks[1].shares_ports
        assert set(statuses) == {200}


@pytest.mark.skipif(sys.platform != "linux", reason="ports are not shared elsewhere")
def test_a_router_does_not_share_the_ports_of_strangers(plan: FleetPlan, hosts: list[Any]) -> None:
    told = Told()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = (*(plan.router_flags or ()), f"--grpc-port={port}")
        router = RouterHost("router-1", "127.0.0.1", replace(plan, router_flags=flags), os.environ, told)
        hosts.append(router)
        until(lambda: router.look(False).failure)
        failure = router.look(False).failure
    until(lambda: router.look(False).state == "up")

    assert failure == f"it cannot be started: Socket '127.0.0.1:{port}' already in use"
    assert router.look(False).ports["grpc"] == port


@pytest.mark.parametrize(
    ("flags", "is_shared"),
    [
        ((), sys.platform == "linux"),
        (("--reuse-http-port=false",), False),
        (("--reuse-metrics-port", "false"), False),
        (("--grpc-address=unix:/tmp/x",), False),
        (("--https-certificate=/nosuch", "--https-key=/nosuch"), False),
    ],
)
def test_a_router_says_whether_another_one_can_have_its_ports(
    plan: FleetPlan,
    hosts: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    is_shared: bool,
) -> None:
    monkeypatch.setattr(Child, "start", lambda _: None)
    router = RouterHost("router-1", "127.0.0.1", replace(plan, router_flags=flags), os.environ, Told())
    hosts.append(router)

    assert router.look(False).shares_ports is is_shared
