"""However a request ends, its trace ends with it: none is lost, and none waits for the garbage collector."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from tritonpy.plugin import BackendAttributes, InferRequest, InferResponse, hookimpl
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import local_options
from .asking import Endpoint
from .conftest import wait_for_files

TENSORS = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
}
SLOW = {"parameters": {"execute_delay_ms": {"string_value": "400"}}}
FULL = {
    "max_batch_size": 1,
    "dynamic_batching": {"default_queue_policy": {"max_queue_size": 1}},
}


class Held:
    """A backend whose models answer when they are let go, or when nobody waits for them."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.executed: list[str] = []

    @hookimpl
    def backend_attributes(self) -> BackendAttributes:
        return BackendAttributes(execution="thread")

    @hookimpl
    def model_instance_execute(self, requests: Sequence[InferRequest]) -> list[InferResponse]:
        self.executed += [request.id for request in requests]
        while not self.gate.is_set() and not any(request.is_cancelled() for request in requests):
            time.sleep(0.002)
        return [InferResponse().add("OUTPUT0", request.input("INPUT0").numpy()) for request in requests]


class Place:
    """A server that traces every request into a file of its own.

    Attributes:
        endpoint: its ports.
        gate: lets its model `full` answer; `held` answers to nobody.
        executed: ids of the requests that have come to these two.
    """

    def __init__(self, server: Server, file: Path, held: Held) -> None:
        self.endpoint = Endpoint(server.http_port, server.grpc_port)
        self.gate = held.gate
        self.executed = held.executed
        self._server = server
        self._file = file
        self._count = 0
        self._entries: list[dict[str, Any]] = []

    def next_trace(self) -> tuple[dict[str, Any], list[str]]:
        """What the next trace is about, and its activities by their time."""
        path = wait_for_files(self._file, self._count + 1)[self._count]
        self._count += 1
        entries = json.loads(path.read_text())
        (about,) = (entry for entry in entries if "model_name" in entry)
        self._entries = entries
        return about, [entry["timestamps"][0]["name"] for entry in entries if "timestamps" in entry]

    def times(self) -> dict[str, int]:
        """When the activities of the last trace were."""
        stamps = [entry["timestamps"][0] for entry in self._entries if "timestamps" in entry]
        return {stamp["name"]: stamp["ns"] for stamp in stamps}

    def wait_until_under_way(self, model: str, count: int = 1) -> None:
        """Return when so many requests to a model have been accepted and not answered."""
        until(lambda: self._server.runtime.registry.find(model).inflight_count >= count)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    repository = ModelRepository(tmp_path / "models")
    repository.model("quick", TENSORS)
    repository.model("held", {**TENSORS, "backend": "held"})
    repository.model("full", {**TENSORS, **FULL, "backend": "held"})
    file, held = tmp_path / "traces", Held()
    words = [("", "rate", "1"), ("", "level", "TIMESTAMPS"), ("triton", "log-frequency", "1")]
    options = local_options(
        repository.path, allow_metrics=False, trace_config=(*words, ("triton", "file", str(file)))
    )
    with Server(options, plugins={"backends": {"held": held}}) as server:
        gc.collect()
        gc.disable()  # what ends a trace is that nobody holds it, and nothing else
        try:
            yield Place(server, file, held)
        finally:
            gc.enable()
            held.gate.set()


def raw_request(model: str, id: str, batch: tuple[int, ...] = ()) -> bytes:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [*batch, 2], "data": [1.0, 2.0]}
    body = json.dumps({"id": id, "inputs": [tensor]}).encode()
    return b"POST /v2/models/%b/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
        model.encode(),
        len(body),
        body,
    )


def given(*batch: int) -> grpcclient.InferInput:
    tensor = grpcclient.InferInput("INPUT0", [*batch, 2], "FP32")
    tensor.set_data_from_numpy(np.ones((*batch, 2), np.float32))
    return tensor


def test_answers_over_grpc(place: Place) -> None:
    with closing(grpcclient.InferenceServerClient(f"127.0.0.1:{place.endpoint.grpc}")) as client:
        client.infer("quick", [given()], request_id="answered")
        about, names = place.next_trace()

    assert about["request_id"] == "answered"
    assert names[-2:] == ["GRPC_SEND_START", "GRPC_SEND_END"]


def test_a_client_over_http_that_leaves(place: Place) -> None:
    with closing(socket.create_connection(("127.0.0.1", place.endpoint.http))) as client:
        client.sendall(raw_request("held", "gone"))
        place.wait_until_under_way("held")
    about, names = place.next_trace()

    assert about["request_id"] == "gone"
    assert names[:2] == ["HTTP_RECV_START", "HTTP_RECV_END"]
    assert "REQUEST_END" in names
    assert "HTTP_SEND_START" not in names


def test_a_client_over_grpc_whose_deadline_passes(place: Place) -> None:
    with closing(grpcclient.InferenceServerClient(f"127.0.0.1:{place.endpoint.grpc}")) as client:
        assert client.is_server_live()  # it is connected
        for patience_s in (1, 5, 25):  # a request whose client gives up before it is there leaves no trace
            id = f"late {patience_s}"
            with pytest.raises(InferenceServerException, match="Deadline"):
                client.infer("held", [given()], request_id=id, client_timeout=patience_s)
            if id in place.executed:
                break
    about, names = place.next_trace()
    while about["request_id"] != id:
        about, names = place.next_trace()

    assert "REQUEST_END" in names
    assert "GRPC_SEND_START" not in names


def test_a_stream_that_is_cancelled(place: Place) -> None:
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{place.endpoint.grpc}")
    client.start_stream(lambda result, error: None)
    client.async_stream_infer("held", [given()], request_id="streamed")
    place.wait_until_under_way("held")
    client.stop_stream(cancel_requests=True)
    about, names = place.next_trace()
    client.close()

    assert about["request_id"] == "streamed"
    assert names[:2] == ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END"]


def test_a_queue_that_is_full(place: Place) -> None:
    sockets = [socket.create_connection(("127.0.0.1", place.endpoint.http)) for _ in range(3)]
    for number, client in enumerate(sockets):
        client.sendall(raw_request("full", str(number), (1,)))
        place.wait_until_under_way("full", min(number + 1, 2))
    refused = place.next_trace()
    place.gate.set()
    ended = (refused, place.next_trace(), place.next_trace())
    traces = {about["request_id"]: names for about, names in ended}
    for client in sockets:
        client.close()

    assert set(traces) == {"0", "1", "2"}
    assert "COMPUTE_START" in traces["0"]
    assert "COMPUTE_START" in traces["1"]
    assert "COMPUTE_START" not in traces["2"]
    assert all(names[-1] == "HTTP_SEND_END" for names in traces.values())


def test_a_request_that_does_not_fit_its_model(place: Place) -> None:
    with closing(grpcclient.InferenceServerClient(f"127.0.0.1:{place.endpoint.grpc}")) as client:
        with pytest.raises(InferenceServerException):
            client.infer("quick", [], request_id="wrong")
        about, names = place.next_trace()

    assert about == {"id": 1, "model_name": "quick", "model_version": -1, "request_id": "wrong"}
    assert names == ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "REQUEST_START"]


def test_a_request_that_trickles_in_shows_how_long_it_took(place: Place) -> None:
    with closing(socket.create_connection(("127.0.0.1", place.endpoint.http))) as client:
        head, _, body = raw_request("quick", "slowly").partition(b"\r\n\r\n")
        client.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 100")  # the server has read it
        time.sleep(0.2)
        client.sendall(body)
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
    _, names = place.next_trace()
    times = place.times()

    assert names[:2] == ["HTTP_RECV_START", "HTTP_RECV_END"]
    assert times["HTTP_RECV_END"] - times["HTTP_RECV_START"] > 100_000_000


def test_a_server_that_ends_writes_what_is_under_way(corectl: Callable[..., Any], tmp_path: Path) -> None:
    repository = ModelRepository(tmp_path / "models")
    repository.model("slow", {**TENSORS, **SLOW})
    file = tmp_path / "traces"
    words = (f"triton,file={file}", "rate=1", "level=TIMESTAMPS")
    server = corectl(f"--model-repository={repository.path}", *(f"--trace-config={word}" for word in words))
    port = server.ports["HTTPService"]
    with closing(socket.create_connection(("127.0.0.1", port))) as client:
        client.sendall(raw_request("slow", "under way"))
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as other:
            other.request("GET", "/v2/health/ready")  # answered after the request has been read
            assert other.getresponse().read() == b""
        assert server.stop() == 0
        assert client.recv(4096).startswith(b"HTTP/1.1 200")

    (about,) = (entry for entry in json.loads(file.read_text()) if "model_name" in entry)
    assert about["request_id"] == "under way"
