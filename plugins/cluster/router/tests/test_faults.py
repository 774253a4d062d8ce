"""Replicas that go, hang or refuse, clients that leave: each request is answered once, and none is sent twice
unless its model says so.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import trustme
from tritonclient.utils import InferenceServerException
from tritonpy.errors import TritonError
from tritonpy.server import Server
from tritonpy_router.dispatcher import QueueLimits
from tritonpy_router.membership import FileMembership
from tritonpy_router.probe import Prober
from tritonpy_router.replica import Place
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from .conftest import BODY, ECHO, RouterThread, asked, local_ports
from .replicas import fake

Make = Callable[..., Any]


def infer(address: str, model: str = "echo", timeout_s: float | None = None) -> str:
    """Ask over gRPC; "OK", or how the call ended."""
    with tritonclient.grpc.InferenceServerClient(address) as client:
        tensor = tritonclient.grpc.InferInput("INPUT0", [1, 2], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 2), np.float32))
        try:
            client.infer(model, [tensor], client_timeout=timeout_s)
        except InferenceServerException as exc:
            return str(exc)
        return "OK"


def inflight(router: RouterThread) -> int:
    return router.call(lambda: sum(each.inflight for each in router.router.view))


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def model_inflight(server: Server, name: str) -> int:
    async def count() -> int:
        return server.runtime.registry.find(name).inflight_count

    return asyncio.run_coroutine_threadsafe(count(), server.loop).result(DEADLINE_S)


def test_a_request_whose_replica_was_lost_is_answered_with_what_is_known(make_router: Make) -> None:
    with fake() as replica:
        router = make_router(places=[replica.place])

        status, headers, answer = asked(router.http, "/v2/models/echo/infer", BODY)

    assert (status, headers["Retry-After"], replica.asked) == (503, "1", 1)
    assert b"replica 'fake' was lost before it answered" in answer
    assert b"whether it has executed the request is not known" in answer
    assert inflight(router) == 0


def test_a_request_is_sent_again_where_its_model_says_that_it_may(
    make_router: Make, make_server: Make
) -> None:
    with fake({"retry_on_replica_loss": {"string_value": "true"}}) as replica:
        router = make_router(make_server("echo"), places=[replica.place], policy="round-robin")

        answers = [asked(router.http, "/v2/models/echo/infer", BODY)[0] for _ in range(4)]

    assert answers == [200] * 4
    assert replica.asked >= 1


def test_an_answer_that_ends_in_the_middle_ends_the_clients_connection_too(make_router: Make) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"
    begun = head + b"5\r\ndata:\r\n"
    with fake(before_head=begun) as replica:
        router = make_router(places=[replica.place])
        with socket.create_connection(("127.0.0.1", router.router.http_port), timeout=DEADLINE_S) as client:
            client.sendall(b"POST /v2/models/echo/generate_stream HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            received = b""
            while data := _received(client):
                received += data

    assert b"5\r\ndata:\r\n" in received
    assert not received.endswith(b"0\r\n\r\n")


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(65536)
    except ConnectionResetError:
        return b""


def test_an_answer_that_is_no_http_is_an_error(make_router: Make) -> None:
    with fake(before_head=b"no HTTP at all\r\n\r\n") as replica:
        router = make_router(places=[replica.place])

        status, _, answer = asked(router.http, "/v2/models/echo/infer", BODY)

    assert status == 503
    assert b"its answer cannot be read" in answer


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_when_a_server_stops_no_request_is_lost(make_router: Make, make_server: Make, protocol: str) -> None:
    servers = [make_server("echo", drain_delay_s=1), make_server("echo")]
    router = make_router(*servers)
    going = threading.Thread(target=servers[0].stop)

    def ask() -> str:
        if protocol == "grpc":
            return infer(router.grpc)
        status, _, answer = asked(router.http, "/v2/models/echo/infer", BODY)
        return "OK" if status == 200 else answer.decode()

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask) for _ in range(10)]
        going.start()
        answers += [pool.submit(ask) for _ in range(30)]
        ends = {answer.result() for answer in answers}
    going.join()

    assert ends == {"OK"}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_client_that_leaves_takes_its_request_with_it(
    make_router: Make, make_server: Make, protocol: str
) -> None:
    server = make_server("held")
    router = make_router(server)
    if protocol == "grpc":
        ends = infer(router.grpc, "held", timeout_s=0.5)
        assert "Deadline Exceeded" in ends
    else:
        with socket.create_connection(("127.0.0.1", router.router.http_port)) as client:
            client.sendall(
                b"POST /v2/models/held/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
            )
            until(lambda: model_inflight(server, "held") == 1)

    until(lambda: inflight(router) == 0)
    until(lambda: router.call(lambda: router.router._grpc.shared.admission.held) == 0)


def test_above_the_limit_requests_wait_and_are_refused_when_too_many_do(
    make_router: Make, make_server: Make
) -> None:
    server = make_server("held", "echo")
    router = make_router(server, limits=QueueLimits(1, 1, 60.0))
    waiting = []
    for count in (1, 2):
        client = socket.create_connection(("127.0.0.1", router.router.http_port))
        client.sendall(
            b"POST /v2/models/held/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
        )
        waiting.append(client)
        until(lambda count=count: inflight(router) + router.router._dispatcher.queued == count)

    status, headers, answer = asked(router.http, "/v2/models/held/infer", BODY)
    over_grpc = infer(router.grpc, "held")

    assert (status, headers["Retry-After"]) == (503, "1")
    assert b"see --max-replica-inflight and --max-queued" in answer
    assert "see --max-replica-inflight and --max-queued" in over_grpc
    for client in waiting:
        client.close()
    until(lambda: inflight(router) + router.router._dispatcher.queued == 0)


def test_a_replica_that_joins_is_brought_to_what_clients_have_wanted(
    make_router: Make, make_server: Make, tmp_path: Path
) -> None:
    one, other = make_server("echo"), make_server("echo", "slow")
    file = tmp_path / "servers"
    lines = [
        f"{name}=127.0.0.1:{each.http_port}:{each.grpc_port}\n"
        for name, each in zip("ab", (one, other), strict=True)
    ]
    file.write_text(lines[0])

    async def soon(_: float) -> None:
        await asyncio.sleep(0.02)

    router = make_router(membership=FileMembership(file, 1, print, soon), ready=1)
    config = json.dumps({"parameters": {"config": json.dumps({"backend": "identity", "max_batch_size": 5})}})
    asked(router.http, "/v2/repository/models/echo/load", config.encode())
    asked(router.http, "/v2/repository/models/slow/load", b"")
    asked(router.http, "/v2/repository/models/slow/unload", b"")

    file.write_text("".join(lines))
    router.wait_until_ready(2)

    address = f"127.0.0.1:{other.http_port}"
    assert json.loads(asked(address, "/v2/models/echo/config")[2])["max_batch_size"] == 5
    assert asked(address, "/v2/models/slow/ready")[0] == 400


def test_what_one_replica_refuses_is_told_with_its_name(
    make_router: Make, make_server: Make, tmp_path: Path
) -> None:
    one = make_server("echo")
    with Server(one.options.__class__((str(tmp_path),), **local_ports(model_control_mode="none"))) as other:
        router = make_router(one, other)

        status, _, answer = asked(router.http, "/v2/repository/models/seq/load", b"")

    assert status == 503
    assert answer.startswith(b'{"error":"1 of 2 replicas failed: replica \'b\': ')
    assert b"explicit model load / unload is not allowed" in answer


def test_a_router_that_stops_answers_what_it_has_accepted(make_router: Make, make_server: Make) -> None:
    server = make_server("brief")
    router = make_router(server, exit_timeout_s=DEADLINE_S)
    with ThreadPoolExecutor(3) as pool:
        over_http = pool.submit(asked, router.http, "/v2/models/brief/infer", BODY)
        over_grpc = pool.submit(infer, router.grpc, "brief")
        until(lambda: inflight(router) == 2)

        stopping = pool.submit(router.stop)
        until(lambda: is_refused(router.router.http_port))
        assert not any(each.done() for each in (over_http, over_grpc, stopping))
        asked(f"127.0.0.1:{server.http_port}", "/v2/models/brief/infer", BODY)  # the batch is complete

    assert (over_http.result()[0], over_grpc.result()) == (200, "OK")


def test_a_router_that_is_about_to_stop_is_not_ready_and_takes_requests(
    make_router: Make, make_server: Make
) -> None:
    router = make_router(make_server("echo"))

    router.call(router.router._readiness.end)

    status, _, answer = asked(router.http, "/v2/health/ready")
    assert (status, answer) == (400, b'{"error":"the router is stopping"}')
    assert asked(router.http, "/v2/models/echo/infer", BODY)[0] == 200
    assert infer(router.grpc) == "OK"


def test_names_in_messages_stay_in_their_place_of_a_path(make_router: Make, make_server: Make) -> None:
    router = make_router(make_server("echo"))
    with tritonclient.grpc.InferenceServerClient(router.grpc) as client:
        for name in ("../repository/models/echo/unload?", "..", "echo/../../repository/models/echo/unload?"):
            with pytest.raises(InferenceServerException):
                client.update_trace_settings(name, {"trace_rate": "1"})

        assert client.is_model_ready("echo")


def test_a_port_that_is_taken_ends_the_start(make_router: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(TritonError, match="already in use"):
        make_router(ports={"http_port": taken.getsockname()[1]})


@pytest.mark.parametrize("name", ["", "fleet.example"])
def test_both_sides_are_encrypted(make_router: Make, make_server: Make, tmp_path: Path, name: str) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", name or "127.0.0.1")
    paths = {name: str(tmp_path / name) for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(paths["ca"])
    certificate.cert_chain_pems[0].write_to_path(paths["cert"])
    certificate.private_key_pem.write_to_path(paths["key"])
    tls = {
        "https_certificate": paths["cert"],
        "https_key": paths["key"],
        "grpc_use_ssl": True,
        "grpc_server_cert": paths["cert"],
        "grpc_server_key": paths["key"],
    }
    router = make_router(
        make_server("echo", **tls),
        ports=tls,
        replica_tls=True,
        replica_ca=paths["ca"],
        replica_tls_name=name,
    )

    with tritonclient.grpc.InferenceServerClient(
        f"localhost:{router.router.grpc_port}", ssl=True, root_certificates=paths["ca"]
    ) as client:
        tensor = tritonclient.grpc.InferInput("INPUT0", [1, 2], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 2), np.float32))
        answer = client.infer("echo", [tensor]).as_numpy("OUTPUT0")

    assert answer.tolist() == [[1, 1]]
    with pytest.raises(TritonError, match="--replica-ca"):
        make_router(replica_tls=True, replica_ca=str(tmp_path / "nosuch"))


def test_the_standard_health_service_follows_the_replicas(make_router: Make, make_server: Make) -> None:
    server = make_server("echo")
    router = make_router(server)
    with grpc.insecure_channel(router.grpc) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=DEADLINE_S)

        first = next(watch)
        server.stop()
        second = next(watch)
        watch.cancel()

    assert (first, second) == (b"\x08\x01", b"\x08\x02")


def test_a_server_that_is_killed_takes_only_what_it_was_doing(
    make_router: Make, corectl: Make, tmp_path: Path
) -> None:
    # The first server answers none of the two models, the second one does at once.
    servers = []
    for delay_ms in (600_000, 0):
        models = ModelRepository(tmp_path / f"{delay_ms}")
        delay = {"execute_delay_ms": {"string_value": str(delay_ms)}}
        models.model("once", {**ECHO, "parameters": delay})
        models.model(
            "again", {**ECHO, "parameters": {**delay, "retry_on_replica_loss": {"string_value": "true"}}}
        )
        servers.append(corectl(f"--model-repository={models.path}"))
    places = [
        Place(name, "127.0.0.1", server.ports["HTTPService"], server.ports["GRPCInferenceService"])
        for name, server in zip("ab", servers, strict=True)
    ]
    router = make_router(places=places, policy="round-robin")

    def has_first(count: int) -> bool:
        return router.call(lambda: router.router.view.replicas["a"].inflight) == count

    with ThreadPoolExecutor(6) as pool:
        again = [pool.submit(asked, router.http, "/v2/models/again/infer", BODY) for _ in range(2)]
        until(lambda: has_first(1))
        again_over_grpc = [pool.submit(infer, router.grpc, "again") for _ in range(2)]
        until(lambda: has_first(2))
        once = [pool.submit(infer, router.grpc, "once") for _ in range(2)]
        until(lambda: has_first(3))

        servers[0].process.send_signal(signal.SIGKILL)

        ends = [call.result()[0] for call in again], [call.result() for call in again_over_grpc]
        ends_once = sorted(call.result() for call in once)
    later = [asked(router.http, "/v2/models/once/infer", BODY)[0] for _ in range(4)]

    assert ends == ([200, 200], ["OK", "OK"])
    assert ends_once[0] == "OK"
    assert "replica 'a' was lost before it answered" in ends_once[1]
    assert later == [200] * 4


def test_a_server_that_hangs_is_given_up_with_what_it_was_doing(
    make_router: Make, corectl: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prober.ask, "__defaults__", (None, 0.5))  # its time for an answer
    ModelRepository(tmp_path).model(
        "echo", {**ECHO, "parameters": {"execute_delay_ms": {"string_value": "100"}}}
    )
    server = corectl(f"--model-repository={tmp_path}")
    place = Place("a", "127.0.0.1", server.ports["HTTPService"], server.ports["GRPCInferenceService"])
    router = make_router(places=[place])
    try:
        server.process.send_signal(signal.SIGSTOP)

        status, _, answer = asked(router.http, "/v2/models/echo/infer", BODY)
        over_grpc = infer(router.grpc)
    finally:
        server.process.send_signal(signal.SIGCONT)
    router.wait_until_ready(1)

    assert (status, b"replica 'a' was lost" in answer) == (503, True)
    assert "no replica is ready: 'a' does not answer" in over_grpc
    assert asked(router.http, "/v2/models/echo/infer", BODY)[0] == 200
