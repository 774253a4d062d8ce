"""SIGTERM while requests are under way: nothing that was accepted is lost."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from tritonpy.protos import HealthCheckResponse
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import http_of

CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "parameters": {"execute_delay_ms": {"string_value": "20"}},
}
MODELS = ("thread", "process")
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}).encode()


def send_until_refused(port: int, outcomes: list[str], model: str) -> None:
    """Ask a model again and again on one connection; note how each request ended."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        while outcomes[-1:] in ([], ["200"]):
            outcomes.append(outcome_of_one(connection, model))


def outcome_of_one(connection: http.client.HTTPConnection, model: str) -> str:
    """Ask once: the status, "200 and closed", "refused", or how the answer was lost."""
    try:
        connection.request("POST", f"/v2/models/{model}/infer", BODY)
    except OSError:
        return "refused"  # the connection was closed before the request could be sent
    try:
        response = connection.getresponse()
        response.read()
    except http.client.RemoteDisconnected:
        # Closed between two requests, as keep-alive allows: the server never had this one.
        return "refused"
    except OSError as error:
        return f"lost: {error!r}"
    return f"{response.status}{' and closed' * response.will_close}"


def lay_out(repository: Path, **parameters: str) -> None:
    """Lay out `MODELS`, which run where they are called after."""
    for isolation in MODELS:
        given = {**parameters, "TRITONPY_ISOLATION": isolation}
        config = {**CONFIG, "parameters": {key: {"string_value": value} for key, value in given.items()}}
        ModelRepository(repository).model(isolation, config)


def ask_from_threads(port: int, count: int) -> tuple[list[list[str]], list[threading.Thread]]:
    """Start `count` threads for each of `MODELS` that ask until they are refused; their notes, and they."""
    outcomes: list[list[str]] = [[] for _ in range(count * len(MODELS))]
    threads = [
        threading.Thread(target=send_until_refused, args=(port, ends, MODELS[index % len(MODELS)]))
        for index, ends in enumerate(outcomes)
    ]
    for thread in threads:
        thread.start()
    return outcomes, threads


def test_a_terminated_server_answers_what_it_accepted_and_leaves_no_process(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    lay_out(tmp_path, execute_delay_ms="20")
    server = corectl(f"--model-repository={tmp_path}")
    children = psutil.Process(server.process.pid).children(recursive=True)
    outcomes, threads = ask_from_threads(server.ports["HTTPService"], 4)
    until(lambda: min(map(len, outcomes)) >= 3)

    status = server.stop(signal.SIGTERM)

    for thread in threads:
        thread.join()
    flat = [outcome for ends in outcomes for outcome in ends]
    assert status == 0, server.log
    assert set(flat) <= {"200", "200 and closed", "refused"}, flat
    assert flat.count("200") >= 16
    assert children
    psutil.wait_procs(children, timeout=20)
    assert not [child for child in children if child.is_running()]


def test_a_request_that_has_arrived_unread_when_the_server_stops_is_answered(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path).model("echo", CONFIG)
    server = serve(tmp_path)
    used, idle = (http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30) for _ in range(2))
    for connection in (used, idle):
        connection.request("POST", "/v2/models/echo/infer", BODY)
        assert connection.getresponse().read()

    async def stop_over_a_request() -> None:
        used.request("POST", "/v2/models/echo/infer", BODY)  # the loop is here, and so does not read it
        await http_of(server).stop_accepting()

    asyncio.run_coroutine_threadsafe(stop_over_a_request(), server.loop).result(20)
    response = used.getresponse()

    assert (response.status, response.will_close) == (200, True)
    assert response.read()
    assert idle.sock.recv(1) == b""
    for connection in (used, idle):
        connection.close()


def test_a_request_whose_connection_was_not_accepted_when_the_server_stops_is_answered(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path).model("echo", CONFIG)
    server = serve(tmp_path)
    early, late = (http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30) for _ in range(2))

    async def stop_over_connections() -> None:
        early.request("POST", "/v2/models/echo/infer", BODY)  # the loop is here, and so accepts nothing
        late.connect()
        await http_of(server).stop_accepting()

    asyncio.run_coroutine_threadsafe(stop_over_connections(), server.loop).result(20)
    response = early.getresponse()

    assert (response.status, bool(response.read())) == (200, True)
    for connection in (early, late):  # what sends nothing is closed, not reset
        assert connection.sock is None or connection.sock.recv(1) == b""
        connection.close()


def test_a_request_that_comes_too_late_finds_the_end_of_its_connection(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    """Not a reset: that would leave its client in doubt whether it was executed."""
    ModelRepository(tmp_path).model("echo", CONFIG)
    server = serve(tmp_path)
    with closing(http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)) as connection:
        connection.request("POST", "/v2/models/echo/infer", BODY)
        assert connection.getresponse().read()

        async def ask_a_server_that_stops() -> None:
            await http_of(server).stop_accepting()
            connection.request("POST", "/v2/models/echo/infer", BODY)  # the loop has closed nothing yet

        asyncio.run_coroutine_threadsafe(ask_a_server_that_stops(), server.loop).result(20)

        with pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()


def test_what_is_not_done_when_the_exit_timeout_expires_is_answered_unavailable(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    lay_out(tmp_path, execute_delay_ms="40000")
    server = corectl(f"--model-repository={tmp_path}", "--exit-timeout-secs=1")
    outcomes, threads = ask_from_threads(server.ports["HTTPService"], 4)

    def waiting() -> list[str]:
        connection = http.client.HTTPConnection("127.0.0.1", server.ports["Metrics Service"], timeout=30)
        with closing(connection):
            connection.request("GET", "/metrics")
            page = connection.getresponse().read().decode()
        return re.findall(r'nv_inference_pending_request_count{model="(\w+)",version="1"} 3', page)

    # Of four, three wait behind the one that runs.
    until(lambda: set(waiting()) == set(MODELS), lambda: f"they wait for {waiting()}")

    status = server.stop(signal.SIGTERM)  # waits half a minute at most, and the models take longer

    for thread in threads:
        thread.join()
    assert status == 0, server.log
    assert [ends[0][:3] for ends in outcomes] == ["503"] * len(outcomes), outcomes


def asked(port: int, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of one request on a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        return response.status, response.read()


def test_a_server_that_was_told_to_stop_accepts_requests_for_the_drain_delay_while_it_is_not_ready(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path).model("echo", CONFIG)
    server = corectl(
        f"--model-repository={tmp_path}",
        "--drain-delay-secs=600",
        "--model-control-mode=explicit",
        "--load-model=*",
    )
    port = server.ports["HTTPService"]
    assert asked(port, "/v2/health/ready")[0] == 200

    server.process.send_signal(signal.SIGTERM)

    until(lambda: asked(port, "/v2/health/ready")[0] == 400)
    assert asked(port, "/v2/models/echo/infer", BODY)[0] == 200
    assert asked(port, "/v2/health/live")[0] == 200
    status, refusal = asked(port, "/v2/repository/models/echo/load", b"{}")
    assert (status, refusal) == (503, b'{"error":"Server not ready"}')
    with grpc.insecure_channel(f"127.0.0.1:{server.ports['GRPCInferenceService']}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert (
            HealthCheckResponse.FromString(check(b"", timeout=30)).status == HealthCheckResponse.NOT_SERVING
        )
    server.process.kill()


def test_behind_the_drain_delay_a_server_stops_as_without_one(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path).model("echo", CONFIG)
    server = corectl(f"--model-repository={tmp_path}", "--drain-delay-secs=0.1")

    assert server.stop(signal.SIGTERM) == 0, server.log
    delayed, drained = (
        server.log.index(text) for text in ("requests are accepted for 0.1 s more", "Waiting for in-flight")
    )
    assert delayed < drained


def test_an_idle_server_stops_at_once(corectl: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("echo", CONFIG)
    server = corectl(f"--model-repository={tmp_path}")

    assert server.stop(signal.SIGINT) == 0, server.log
    assert "Server stopped" in server.log


def test_a_model_that_cannot_be_loaded_ends_the_start_with_status_1_and_says_why(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path).model("echo", {**CONFIG, "backend": "nosuch"})
    server = corectl(f"--model-repository={tmp_path}", awaited=0)

    assert server.wait() == 1
    assert "no installed plugin of kind 'backends' is called 'nosuch'" in server.log
    assert "creating server: Internal - failed to load all models: 'echo' version 1: " in server.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_process_group_still_drains(
    corectl: Callable[..., Any], tmp_path: Path, number: int
) -> None:
    """Ctrl-C in a terminal and `timeout` reach the workers too; they leave the decision to the server."""
    parameters = {
        "execute_delay_ms": {"string_value": "500"},
        "TRITONPY_ISOLATION": {"string_value": "process"},
    }
    ModelRepository(tmp_path).model("echo", {**CONFIG, "parameters": parameters})
    server = corectl(f"--model-repository={tmp_path}", own_group=True)
    connection = http.client.HTTPConnection("127.0.0.1", server.ports["HTTPService"], timeout=30)
    connection.request("POST", "/v2/models/echo/infer", BODY)
    ready = http.client.HTTPConnection("127.0.0.1", server.ports["HTTPService"], timeout=30)
    ready.request("GET", "/v2/health/ready")  # answered after the inference request has been read
    assert ready.getresponse().read() == b""
    ready.close()

    os.killpg(server.process.pid, number)

    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.status == 200
    assert server.wait() == 0, server.log


def test_the_start_table_says_why_a_model_was_refused(corectl: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("refused", {**CONFIG, "max_batch_size": -1})
    server = corectl(f"--model-repository={tmp_path}", "--exit-on-error=false")

    assert server.stop(signal.SIGTERM) == 0, server.log
    assert "Server stopped" in server.log
    table = [line for line in server.log.splitlines() if line.startswith("| refused")]
    assert len(table) == 1, server.log
    assert "'max_batch_size' must be non-negative value for refused" in table[0]
