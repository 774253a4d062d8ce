"""Backends on threads that break their promises."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import socket
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.options import ServerOptions
from tritonpy.plugin import InferResponse, InvalidArg, hookimpl
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from .odd_backends import BODY, CONFIG, raise_exit


def test_a_second_response_over_http_is_dropped_and_never_reaches_the_next_request(tmp_path: Path) -> None:
    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> None:
        for request in requests:
            first = InferResponse().add("O", request.input("I"))
            request.respond(first, final=False)
            request.respond(InferResponse().add("O", request.input("I")))

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    options = ServerOptions(
        (str(tmp_path),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    plugin = SimpleNamespace(model_instance_execute=model_instance_execute)
    with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
        # One buffer for the whole connection, so that a stray second response would be read as the next one.
        address = ("127.0.0.1", server.http_port)
        with socket.create_connection(address, timeout=30) as client, client.makefile("rb") as stream:
            for value in range(20):
                body = BODY.replace("[1]}", f"[{value}]}}").encode()
                head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n"
                client.sendall(head.encode() + body)
                length = 0
                while (line := stream.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                document = json.loads(stream.read(length))

                assert document["outputs"][0]["data"] == [value]


async def inflight_count(server: Server) -> int:
    """To be asked on the loop: a client has its answer before its request is no longer counted."""
    return server.runtime.registry.find("m").inflight_count


@pytest.mark.parametrize(
    ("misbehave", "said"),
    [
        (lambda: 5, "returned int, expected a list of InferResponse"),
        (lambda: ["x"], "returned a list with str in it"),
        (lambda: [], "returned 0 responses for 1 requests"),
        (raise_exit, "SystemExit: enough"),
    ],
)
def test_it_costs_its_own_batch_and_the_instance_serves_on(
    tmp_path: Path, misbehave: Callable[[], Any], said: str
) -> None:
    calls: list[int] = []

    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            return misbehave()
        return [InferResponse().add("O", request.input("I")) for request in requests]

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    options = ServerOptions(
        (str(tmp_path),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    plugin = SimpleNamespace(model_instance_execute=model_instance_execute)
    with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
        answers = []
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
            connection.request("POST", "/v2/models/m/infer", BODY)
            response = connection.getresponse()
            answers.append((response.status, response.read().decode()))
            connection.close()
        inflight = asyncio.run_coroutine_threadsafe(inflight_count(server), server.loop).result(20)

    assert answers[0][0] == 500
    assert said in answers[0][1]
    assert answers[1][0] == 200
    assert inflight == 0


def test_a_batch_that_fails_leaves_no_request_to_the_garbage_collector(tmp_path: Path) -> None:
    requests_seen: list[weakref.ref[Any]] = []

    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> None:
        requests_seen.extend(map(weakref.ref, requests))
        raise InvalidArg("no")

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    options = ServerOptions(
        (str(tmp_path),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    plugin = SimpleNamespace(model_instance_execute=model_instance_execute)
    with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
        gc.disable()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
            connection.request("POST", "/v2/models/m/infer", BODY)
            assert connection.getresponse().status == 400
            connection.close()
            until(lambda: [request() for request in requests_seen] == [None])
        finally:
            gc.enable()


def test_an_instance_that_goes_is_finalised_after_the_last_answer_that_it_owes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`execute` has returned long before; the answers come from a thread of the backend's own."""
    monkeypatch.setattr("tritonpy.model.instance_set._PATIENCE_S", 0.1)  # the patience of the load
    finalized: list[str] = []
    held: list[Any] = []

    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> None:
        held.extend((instance.name, request) for request in requests)

    @hookimpl
    def model_instance_finalize(instance: Any) -> None:
        finalized.append(instance.name)

    def ask(answers: list[int]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        connection.request("POST", "/v2/models/m/infer", BODY)
        answers.append(connection.getresponse().status)
        connection.close()

    def load(kind: str) -> None:
        (tmp_path / "m" / "config.pbtxt").write_text(f"{CONFIG} instance_group {{ kind: {kind} count: 1 }}")
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        connection.request("POST", "/v2/repository/models/m/load", b"{}")
        assert connection.getresponse().status == 200
        connection.close()

    (tmp_path / "m" / "1").mkdir(parents=True)
    options = ServerOptions(
        (str(tmp_path),),
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
        model_control_mode="explicit",
    )
    plugin = SimpleNamespace(
        model_instance_execute=model_instance_execute, model_instance_finalize=model_instance_finalize
    )
    with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
        load("KIND_CPU")
        statuses: list[int] = []
        threads = [threading.Thread(target=ask, args=(statuses,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: len(held) == 2)  # both by the only instance, which is free again
        (name,) = {name for name, _ in held}
        load("KIND_MODEL")  # another instance takes its place, and it still owes two answers
        _, first = held.pop()
        first.respond(InferResponse().add("O", first.input("I")))
        until(lambda: len(statuses) == 1)
        assert finalized == []
        _, last = held.pop()
        last.respond(InferResponse().add("O", last.input("I")))
        until(lambda: finalized == [name])
        for thread in threads:
            thread.join()
        assert statuses == [200, 200]
        del first, last


def test_requests_that_an_instance_owes_answers_are_refused_when_the_server_stops(tmp_path: Path) -> None:
    held: list[Any] = []

    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> None:
        held.extend(requests)

    def ask() -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        connection.request("POST", "/v2/models/m/infer", BODY)
        response = connection.getresponse()
        said = response.read().decode()
        connection.close()
        return response.status, said

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    options = ServerOptions(
        (str(tmp_path),),
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
        exit_timeout_s=0.1,
    )
    plugin = SimpleNamespace(model_instance_execute=model_instance_execute)
    with ThreadPoolExecutor() as clients:
        with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
            answers = [clients.submit(ask) for _ in range(2)]
            until(lambda: len(held) == 2)
        for answer in answers:
            status, said = answer.result(20)
            assert status == 503
            assert "Server is stopping" in said
    held.pop().respond(InferResponse())  # too late, and harmless
