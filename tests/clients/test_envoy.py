"""Envoy between clients and servers, over gRPC: it is strict about frames, and routes around what stops."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess, until

from .. import fetched
from .conftest import ClientServer
from .models import write_models

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(600)]  # the first time it is fetched

CLIENTS = 4


def bootstrap(ports: tuple[int, ...]) -> dict[str, Any]:
    """A configuration of Envoy: one listener, in front of all servers in turn."""

    def socket(port: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    def extension(path: str, **more: Any) -> dict[str, Any]:
        return {"@type": f"type.googleapis.com/envoy.extensions.{path}", **more}

    router = {
        "name": "envoy.filters.http.router",
        "typed_config": extension("filters.http.router.v3.Router"),
    }
    # A call that a server does not take is sent to another one.
    retry = {
        "retry_on": "connect-failure,refused-stream,unavailable",
        "num_retries": 3,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": extension("retry.host.previous_hosts.v3.PreviousHostsPredicate"),
            }
        ],
        "host_selection_retry_max_attempts": 3,
    }
    route = {
        "match": {"prefix": "/"},
        "route": {"cluster": "servers", "timeout": "0s", "retry_policy": retry},
    }
    connections = extension(
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="grpc",
        codec_type="HTTP2",
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        http_filters=[router],
    )
    speaks_http2 = extension(
        "upstreams.http.v3.HttpProtocolOptions",
        explicit_http_config={"http2_protocol_options": {}},
    )
    chain = {
        "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": connections}]
    }
    endpoints = [{"endpoint": {"address": socket(port)}} for port in ports]
    health = {
        "timeout": "1s",
        "interval": "0.2s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "grpc_health_check": {},
    }
    cluster = {
        "name": "servers",
        "type": "STATIC",
        "health_checks": [health],
        "circuit_breakers": {"thresholds": [{"max_retries": 100}]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": speaks_http2
        },
        "load_assignment": {"cluster_name": "servers", "endpoints": [{"lb_endpoints": endpoints}]},
    }
    return {
        "admin": {"address": socket(0)},
        "static_resources": {
            "listeners": [{"name": "grpc", "address": socket(0), "filter_chains": [chain]}],
            "clusters": [cluster],
        },
    }


class Envoy:
    """A running Envoy.

    Attributes:
        address: where it takes calls.
    """

    def __init__(self, folder: Path, ports: tuple[int, ...]) -> None:
        config, admin, self._log = folder / "envoy.json", folder / "admin", folder / "envoy.log"
        config.write_text(json.dumps(bootstrap(ports)))
        command = [str(fetched.envoy()), "-c", str(config), "--admin-address-path", str(admin)]
        command += ["--disable-hot-restart", "--concurrency", "1", "--log-path", str(self._log)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._admin = until(lambda: admin.exists() and admin.read_text(), lambda: self._log.read_text())
        listeners = until(lambda: self._ask("listeners?format=json")["listener_statuses"])
        self.address = f"127.0.0.1:{listeners[0]['local_address']['socket_address']['port_value']}"
        until(lambda: self._healthy() == len(ports))

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self._admin}/{path}", timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def _healthy(self) -> int:
        stats = self._ask("stats?format=json&filter=cluster.servers.membership_healthy")["stats"]
        return int(stats[0]["value"])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start_envoy(tmp_path: Path) -> Iterator[Callable[..., Envoy]]:
    with ExitStack() as stack:

        def start(*ports: int) -> Envoy:
            envoy = Envoy(tmp_path, ports)
            stack.callback(envoy.close)
            return envoy

        yield start


@pytest.fixture
def proxied(start_envoy: Callable[..., Envoy], server: ClientServer) -> Iterator[Any]:
    """A client of the server behind Envoy."""
    envoy = start_envoy(int(server.grpc.rpartition(":")[2]))
    with tritonclient.grpc.InferenceServerClient(envoy.address) as client:
        yield client


def tensor(name: str, array: np.ndarray) -> Any:
    made = tritonclient.grpc.InferInput(
        name, list(array.shape), tritonclient.utils.np_to_triton_dtype(array.dtype)
    )
    made.set_data_from_numpy(array)
    return made


@pytest.mark.parametrize("size", [3, 700_000])
def test_tensors_pass_whole(proxied: Any, size: int) -> None:
    numbers = np.arange(size, dtype=np.float32).reshape(1, -1)

    for compression in (None, "gzip"):
        answer = proxied.infer(
            "echo",
            [tensor("NUMBERS_IN", numbers)],
            compression_algorithm=compression,
            client_timeout=DEADLINE_S,
        )
        assert np.array_equal(answer.as_numpy("NUMBERS_OUT"), numbers)


def test_failures_pass_with_status_and_text(proxied: Any) -> None:
    for model, code, text in (
        ("fäils", "NOT_FOUND", "Request for unknown model: 'fäils' is not found"),
        ("counts", "UNIMPLEMENTED", "ModelInfer RPC doesn't support models with decoupled"),
    ):
        with pytest.raises(InferenceServerException) as failed:
            proxied.infer(model, [tensor("COUNT", np.array([1], np.int32))], client_timeout=DEADLINE_S)

        assert failed.value.status() == f"StatusCode.{code}"
        assert failed.value.message().startswith(text)


def test_streams_pass_response_by_response_and_stop_with_their_client(
    proxied: Any, server: ClientServer
) -> None:
    outcomes: queue.Queue[tuple[Any, Any]] = queue.Queue()
    proxied.start_stream(lambda result, error: outcomes.put((result, error)))
    proxied.async_stream_infer("counts", [tensor("COUNT", np.array([3], np.int32))])
    numbers = [int(outcomes.get(timeout=DEADLINE_S)[0].as_numpy("NUMBER")[0]) for _ in range(3)]
    proxied.async_stream_infer("nope", [])
    _, error = outcomes.get(timeout=DEADLINE_S)
    proxied.async_stream_infer("counts", [tensor("COUNT", np.array([4013], np.int32))])
    outcomes.get(timeout=DEADLINE_S)
    proxied.stop_stream(cancel_requests=True)

    assert numbers == [0, 1, 2]
    assert error.message() == "Request for unknown model: 'nope' is not found"
    until(lambda: "stopped counting to 4013" in server.log)


def test_a_server_that_stops_behind_it_loses_no_call(
    start_envoy: Callable[..., Envoy], tmp_path: Path
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    write_models(folder)
    failures: list[InferenceServerException] = []
    counts = [0] * CLIENTS
    is_over = threading.Event()

    def ask(number: int, address: str) -> None:
        numbers = [tensor("INPUT0", np.full((1, 4), number, np.float32))]
        with tritonclient.grpc.InferenceServerClient(address) as client:
            while not is_over.is_set():
                try:
                    client.infer("scores", numbers, client_timeout=DEADLINE_S)
                    counts[number] += 1
                except InferenceServerException as failed:
                    failures.append(failed)

    def further(calls: int) -> Callable[[], bool]:
        wanted = [count + calls for count in counts]
        return lambda: all(count >= least for count, least in zip(counts, wanted, strict=True))

    with ExitStack() as stack:
        flags = [f"--model-repository={folder}", "--model-control-mode=explicit", "--load-model=scores"]
        flags.append("--grpc-transport=native")  # grpcio cancels some calls at its end
        first, second = (stack.enter_context(ServerProcess(*flags)) for _ in range(2))
        envoy = start_envoy(first.grpc_port, second.grpc_port)
        threads = [threading.Thread(target=ask, args=(each, envoy.address)) for each in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            until(further(50))
            first.process.send_signal(signal.SIGTERM)
            until(lambda: first.process.poll() is not None)
            until(further(50))
        finally:
            is_over.set()
            for thread in threads:
                thread.join()

    assert [(failed.status(), failed.message()) for failed in failures] == []
    assert first.process.returncode == 0
