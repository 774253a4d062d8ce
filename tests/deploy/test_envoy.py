"""Envoy with the configurations of `corectl cluster envoy`: what it takes, and what becomes of requests."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import trustme
from click.testing import CliRunner
from tritonclient.grpc import InferenceServerClient as Client
from tritonpy.server import Server
from tritonpy_router.cluster_cli import cluster
from tritonpy_router.envoy import EnvoyPlan, configuration
from tritonpy_router.replica import Place
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess, until

from .. import fetched
from ..servers import local_options
from .manifests import DEPLOY

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(600)]  # the first time it is fetched

TENSORS = {"data_type": "TYPE_FP32", "dims": [-1]}
SIDES = {"input": [{"name": "INPUT0", **TENSORS}], "output": [{"name": "OUTPUT0", **TENSORS}]}
INFER = "/v2/models/echo/infer"
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}).encode()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = ModelRepository(tmp_path_factory.mktemp("models"))
    found.model("echo", {"backend": "identity", **SIDES})
    return found.path


@pytest.fixture
def serve(repository: Path) -> Iterator[Callable[..., Server]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Server(local_options(repository, **options)))


def place(name: str, server: Server) -> Place:
    return Place(name, "127.0.0.1", server.http_port, server.grpc_port)


class Envoy:
    """One that runs.

    Attributes:
        address: of its first listener.
    """

    def __init__(self, admin: str) -> None:
        self._admin = admin
        listeners = until(lambda: self._asked("listeners?format=json")["listener_statuses"])
        port = listeners[0]["local_address"]["socket_address"]["port_value"]
        self.address = f"127.0.0.1:{port}"

    def counts(self, name: str) -> dict[str, int]:
        """The values of a counter or gauge of clusters, by the clusters that have it."""
        found = self._asked(f"stats?format=json&filter=^cluster\\..*\\.{name}$")["stats"]
        return {each["name"].split(".")[1]: each["value"] for each in found}

    def wait_for(self, healthy: int) -> None:
        """Until that many servers take requests, over both protocols, of sequences and others."""
        until(lambda: list(self.counts("membership_healthy").values()) == [healthy] * 4)

    def _asked(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self._admin}/{path}", timeout=DEADLINE_S) as answer:
            return json.load(answer)


@contextmanager
def running(plan: EnvoyPlan, folder: Path) -> Iterator[Envoy]:
    """An Envoy on a port that the system chooses, for both protocols."""
    plan = replace(plan, address="127.0.0.1", http_port=0, grpc_port=0, admin_port=0, probe_interval_s=0.05)
    with started(configuration(plan), folder) as envoy:
        yield envoy


@contextmanager
def started(configured: dict[str, Any], folder: Path) -> Iterator[Envoy]:
    """An Envoy of a configuration, with one thread."""
    file, admin = folder / "envoy.json", folder / "admin"
    file.write_text(json.dumps(configured))
    command = [fetched.envoy(), "-c", file, "--admin-address-path", admin]
    command += ["--disable-hot-restart", "--concurrency", "1", "--log-path", folder / "log"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield Envoy(until(lambda: admin.exists() and admin.read_text()))
        finally:
            process.kill()


def over_http(address: str, headers: dict[str, str] | None = None) -> int:
    """The status of one inference."""
    request = urllib.request.Request(f"http://{address}{INFER}", BODY, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            assert json.load(answer)["outputs"][0]["data"] == [1, 2]
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        return exc.code


def check_grpc(client: Client, headers: dict[str, str] | None = None) -> None:
    value = np.array([1, 2], np.float32)
    given = tritonclient.grpc.InferInput("INPUT0", [2], "FP32")
    given.set_data_from_numpy(value)
    result = client.infer("echo", [given], headers=headers, client_timeout=DEADLINE_S)
    assert (result.as_numpy("OUTPUT0") == value).all()


def requests_of(server: Server) -> int:
    url = f"http://127.0.0.1:{server.http_port}/v2/models/echo/stats"
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return int(json.load(answer)["model_stats"][0]["inference_stats"]["success"]["count"])


TLS = "--replica-tls --replica-ca={0}/ca.pem"


@pytest.mark.parametrize(
    "arguments",
    [
        "--server=10.0.0.1 --server=[::1]:9000:9001 --probe-interval-secs=1000000",
        "--server=gpu1 --server=gpu2:9000:9001 --grpc-port=8000 --admin-port=9901",
        "--servers-name=models-headless.inference --sequence-header= --replica-header=key:sec%ret",
        "--server=gpu1 --tls-cert={0}/own.pem --tls-key={0}/own.pem --tls-client-ca={0}/ca.pem",
        f"--server=gpu1 {TLS} --replica-cert={{0}}/own.pem --replica-key={{0}}/own.pem",
        f"--server=10.0.0.1 --server=gpu1 {TLS}",
    ],
)
def test_envoy_takes_what_the_command_writes(arguments: str, tmp_path: Path) -> None:
    certificates(tmp_path)
    result = CliRunner().invoke(cluster, ["envoy", *arguments.format(tmp_path).split()])
    assert result.exit_code == 0, result.output
    (tmp_path / "envoy.yaml").write_text(result.stdout)

    check(tmp_path / "envoy.yaml")


def test_envoy_takes_the_file_in_deploy() -> None:
    check(DEPLOY / "envoy/envoy.yaml")


def check(file: Path) -> None:
    command = [fetched.envoy(), "--mode", "validate", "-c", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def certificates(folder: Path) -> None:
    """`ca.pem`, and `own.pem` that it has signed for this machine and for clients."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    own = authority.issue_cert("127.0.0.1", "localhost")
    own.private_key_and_cert_chain_pem.write_to_path(str(folder / "own.pem"))


def test_both_protocols_pass_on_one_port(serve: Callable[..., Server], tmp_path: Path) -> None:
    with running(EnvoyPlan(places=[place("a", serve())]), tmp_path) as envoy:
        envoy.wait_for(1)
        with Client(envoy.address) as client:
            for headers in ({}, {"x-sequence-id": "7"}):
                assert over_http(envoy.address, headers) == 200
                check_grpc(client, headers)
        counts = envoy.counts("upstream_rq_200")

    assert counts == dict.fromkeys(("servers_http", "sequences_http", "servers_grpc", "sequences_grpc"), 1)


def test_requests_with_one_value_of_the_header_go_to_one_server(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    servers = [serve(), serve()]
    places = [place("a", servers[0]), place("b", servers[1])]
    shares = set()
    with running(EnvoyPlan(places=places), tmp_path) as envoy:
        envoy.wait_for(2)
        with Client(envoy.address) as client:
            for number in range(20):
                before = [requests_of(server) for server in servers]
                for _ in range(3):
                    check_grpc(client, {"x-sequence-id": str(number)})
                now = [requests_of(server) for server in servers]
                shares.add(tuple(b - a for a, b in zip(before, now, strict=True)))

    assert shares == {(3, 0), (0, 3)}


def test_both_sides_are_encrypted(serve: Callable[..., Server], tmp_path: Path) -> None:
    certificates(tmp_path)
    own, authority = str(tmp_path / "own.pem"), str(tmp_path / "ca.pem")
    https = {"https_certificate": own, "https_key": own}
    grpcs = {"grpc_use_ssl": True, "grpc_server_cert": own, "grpc_server_key": own}
    server = serve(**https, **grpcs)
    plan = EnvoyPlan(
        places=[place("a", server)], certificate=own, key=own, client_ca=authority, replica_ca=authority
    )
    with running(plan, tmp_path) as envoy:
        envoy.wait_for(1)
        port = envoy.address.rpartition(":")[2]
        files = {"root_certificates": authority, "private_key": own, "certificate_chain": own}
        with Client(f"localhost:{port}", ssl=True, **files) as client:
            check_grpc(client)
        options = {"ca_certs": authority, "keyfile": own, "certfile": own}
        with tritonclient.http.InferenceServerClient(
            f"localhost:{port}", ssl=True, ssl_options=options
        ) as over_https:
            assert over_https.is_model_ready("echo")
        with pytest.raises(OSError):  # without TLS
            urllib.request.urlopen(f"http://{envoy.address}{INFER}", timeout=DEADLINE_S)


def test_servers_whose_certificate_is_for_another_host_get_no_request(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    other = authority.issue_cert("example.org").private_key_and_cert_chain_pem
    other.write_to_path(str(tmp_path / "other.pem"))
    file = str(tmp_path / "other.pem")
    server = serve(https_certificate=file, https_key=file)
    plan = EnvoyPlan(places=[place("a", server)], replica_ca=str(tmp_path / "ca.pem"))

    with running(plan, tmp_path) as envoy:
        until(lambda: envoy.counts(r"ssl\.fail_verify_san")["servers_http"])
        assert over_http(envoy.address) == 503


def test_a_server_that_stops_with_a_drain_delay_loses_no_request(repository: Path, tmp_path: Path) -> None:
    flags = (f"--model-repository={repository}", "--drain-delay-secs=3")
    with ExitStack() as stack:
        servers = [ServerProcess(*flags) for _ in range(2)]
        for server in servers:
            stack.callback(server.close)
        places = [
            Place(name, "127.0.0.1", each.http_port, each.grpc_port)
            for name, each in zip("ab", servers, strict=True)
        ]
        envoy = stack.enter_context(running(EnvoyPlan(places=places), tmp_path))
        envoy.wait_for(2)
        client = stack.enter_context(Client(envoy.address))
        ended = threading.Thread(target=servers[0].stop)
        ended.start()
        while ended.is_alive():
            assert over_http(envoy.address) == 200
            check_grpc(client)
        envoy.wait_for(1)
        assert over_http(envoy.address) == 200


class Losing(http.server.BaseHTTPRequestHandler):
    """A server that is healthy, and closes the connection once it has read a request."""

    protocol_version = "HTTP/1.1"
    seen: list[str]

    def do_GET(self) -> None:
        self.seen += self.headers.get_all("key", [])
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append(self.path)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Tell nobody."""


@pytest.fixture
def losing() -> Iterator[Callable[[list[str]], int]]:
    """Starts such servers; their ports."""
    with ExitStack() as stack:

        def start(seen: list[str]) -> int:
            handler = type("Handler", (Losing,), {"seen": seen})
            server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server.server_port

        yield start


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-envoy-retry-on": "reset,5xx", "x-envoy-max-retries": "5"},
        {"X-Envoy-Retry-On": "reset", "x-envoy-upstream-rq-timeout-ms": "1", "x-envoy-internal": "true"},
    ],
)
def test_a_request_that_a_server_has_seen_is_not_sent_again(
    losing: Callable[[list[str]], int], tmp_path: Path, headers: dict[str, str]
) -> None:
    """Neither where its client asks for it, and is one that Envoy obeys."""
    seen: list[str] = []
    places = [Place(name, "127.0.0.1", losing(seen), 9) for name in ("a", "b")]
    plan = EnvoyPlan(places=places, address="127.0.0.1", http_port=0, grpc_port=0, admin_port=0)
    configured = configuration(plan)
    [listener] = configured["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    # Older ones take all private addresses for internal, unless they are told which.
    manager["internal_address_config"] = {"cidr_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]}
    with started(configured, tmp_path) as envoy:
        until(lambda: envoy.counts("membership_healthy")["servers_http"] == 2)
        status = over_http(envoy.address, {**headers, "x-forwarded-for": "10.0.0.1"})

    assert (status, seen) == (503, [INFER])


def test_questions_have_the_key_as_it_was_given(losing: Callable[[list[str]], int], tmp_path: Path) -> None:
    seen: list[str] = []
    places = [Place("a", "127.0.0.1", losing(seen), 9)]
    with running(EnvoyPlan(places=places, replica_headers={"key": "sec%ret%"}), tmp_path) as envoy:
        until(lambda: envoy.counts("membership_healthy")["servers_http"] == 1)

    assert set(seen) == {"sec%ret%"}


def test_requests_go_elsewhere_where_no_connection_can_be_made(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    """Also before anybody has found out that the server is gone, which is asked once in an hour."""
    server = serve()
    with ExitStack() as stack:
        handler = type("Handler", (Losing,), {"seen": []})
        gone = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        thread = threading.Thread(target=gone.serve_forever)
        thread.start()
        plan = EnvoyPlan(places=[place("a", server), Place("b", "127.0.0.1", gone.server_port, 9)])
        configured = configuration(replace(plan, address="127.0.0.1", http_port=0, grpc_port=0, admin_port=0))
        for each in configured["static_resources"]["clusters"]:
            each["health_checks"][0]["no_traffic_interval"] = each["health_checks"][0]["interval"] = "3600s"
        envoy = stack.enter_context(started(configured, tmp_path))
        until(lambda: envoy.counts("membership_healthy")["servers_http"] == 2)
        gone.shutdown()
        thread.join()
        gone.server_close()
        statuses = {over_http(envoy.address) for _ in range(20)}
        retries = envoy.counts("upstream_rq_retry")["servers_http"]

    assert statuses == {200}
    assert retries > 0
