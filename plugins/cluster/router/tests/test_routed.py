"""Real servers behind a router, asked by real clients over both protocols."""

from __future__ import annotations

import gzip
import json
import os
import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy.version import __version__
from tritonpy_router.membership import StaticMembership
from tritonpy_router.options import RouterOptions
from tritonpy_sdk.testing import DEADLINE_S

from .conftest import BODY, RouterThread, asked, local_ports, place_of

CLIENTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}


@pytest.fixture(scope="module")
def two(models: Path) -> Iterator[tuple[RouterThread, list[Server]]]:
    """A router before two servers that have all models; tests leave them as they were."""
    with ExitStack() as stack:
        ports = local_ports(
            model_control_mode="explicit", load_models=("*",), exit_timeout_s=0, allow_client_shm=True
        )
        servers = [stack.enter_context(Server(ServerOptions((str(models),), **ports))) for _ in range(2)]
        places = [place_of(name, server) for name, server in zip("ab", servers, strict=True)]
        options = RouterOptions(
            ports=ServerOptions((), **local_ports()),
            probe_interval_s=0.02,
            exit_timeout_s=0,
            shares_host=True,
            policy="round-robin",
        )
        router = RouterThread(options, StaticMembership(places))
        router.start()
        stack.callback(router.stop)
        router.wait_until_ready(2)
        yield router, servers


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, two: tuple[RouterThread, list[Server]]) -> Iterator[Any]:
    kind = request.param
    with CLIENTS[kind].InferenceServerClient(getattr(two[0], kind)) as made:
        made.kind = CLIENTS[kind]
        yield made


def infer(client: Any, size: int, model: str = "echo", kind: Any = None, **more: Any) -> Any:
    sent = np.arange(size, dtype=np.float32)[np.newaxis]
    tensor = (kind or client.kind).InferInput("INPUT0", sent.shape, "FP32")
    tensor.set_data_from_numpy(sent)
    answer = client.infer(model, [tensor], **more)
    assert np.array_equal(answer.as_numpy("OUTPUT0"), sent)
    return answer


@pytest.mark.parametrize("size", [1, 5_000, 20_000, 2_000_000])
def test_tensors_of_all_sizes_come_back_as_they_went(client: Any, size: int) -> None:
    for _ in range(4):
        infer(client, size)


def test_both_replicas_get_requests(client: Any, two: tuple[RouterThread, list[Server]]) -> None:
    before = [replica.request_count for replica in two[0].router.view]

    for _ in range(8):
        infer(client, 3)

    assert all(
        after.request_count - first >= 3 for after, first in zip(two[0].router.view, before, strict=True)
    )


def test_what_clients_ask_is_answered_as_by_a_server(client: Any) -> None:
    in_json = {"as_json": True} if client.kind is tritonclient.grpc else {}

    assert client.is_server_live()
    assert client.is_server_ready()
    assert [client.is_model_ready(name) for name in ("echo", "nosuch")] == [True, False]
    assert client.get_server_metadata(**in_json)["name"] == "triton"
    assert client.get_model_metadata("echo", **in_json)["inputs"][0]["name"] == "INPUT0"
    config = client.get_model_config("echo", **in_json)
    assert config.get("config", config)["backend"] == "identity"
    index = client.get_model_repository_index(**in_json)
    rows = index["models"] if isinstance(index, dict) else index
    names = {row["name"] for row in rows if row["state"] == "READY"}
    assert names == {"echo", "slow", "held", "brief", "seq", "many"}
    for ask in (client.get_trace_settings, client.get_log_settings):
        assert ask(**in_json)


def test_statistics_are_those_of_all_replicas(client: Any) -> None:
    in_json = {"as_json": True} if client.kind is tritonclient.grpc else {}

    def count() -> int:
        return int(
            client.get_inference_statistics("echo", **in_json)["model_stats"][0].get("inference_count", 0)
        )

    before = count()

    for _ in range(6):
        infer(client, 2)

    assert count() == before + 6


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (lambda client: infer(client, 2, "nosuch"), "Request for unknown model: 'nosuch' is not found"),
        (lambda client: infer(client, 2, model_version="7"), "model: 'echo' version 7 is not found"),
        (
            lambda client: client.get_model_config("nosuch"),
            "Request for unknown model: 'nosuch' is not found",
        ),
        (lambda client: client.load_model("nosuch"), "model 'nosuch' not found in any model repository"),
        (
            lambda client: client.get_inference_statistics("nosuch"),
            "requested model 'nosuch' is not available",
        ),
    ],
)
def test_errors_are_those_of_a_server(client: Any, work: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(InferenceServerException, match=text):
        work(client)


def test_a_model_is_loaded_and_unloaded_everywhere(
    client: Any, two: tuple[RouterThread, list[Server]]
) -> None:
    config = json.dumps({"backend": "identity", "max_batch_size": 3})

    client.unload_model("slow")
    after_unload = client.is_model_ready("slow")
    client.load_model("slow", config=config)

    assert not after_unload
    for server in two[1]:
        _, _, body = asked(f"127.0.0.1:{server.http_port}", "/v2/models/slow/config")
        assert json.loads(body)["max_batch_size"] == 3
    client.load_model("slow")


def test_a_sequence_stays_on_one_replica(client: Any, two: tuple[RouterThread, list[Server]]) -> None:
    first = 1 if client.kind is tritonclient.http else 100

    for number in range(first, first + 12):
        for step in range(3):
            infer(client, 2, "seq", sequence_id=number, sequence_start=step == 0, sequence_end=step == 2)

    counts = [sequence_count(server) for server in two[1]]
    assert all(count and count % 3 == 0 for count in counts), counts


def sequence_count(server: Server) -> int:
    _, _, body = asked(f"127.0.0.1:{server.http_port}", "/v2/models/seq/stats")
    return int(json.loads(body)["model_stats"][0]["inference_count"])


def test_a_sequence_in_a_compressed_body_is_seen(two: tuple[RouterThread, list[Server]]) -> None:
    router, _ = two
    document = json.loads(BODY)
    for step in range(3):
        document["parameters"] = {"sequence_id": 900, "sequence_start": step == 0, "sequence_end": step == 2}
        body = gzip.compress(json.dumps(document).encode())
        status, _, answer = asked(router.http, "/v2/models/seq/infer", body, {"Content-Encoding": "gzip"})
        assert status == 200, answer


class Stream:
    """A client's stream, and its answers."""

    def __init__(self, address: str) -> None:
        self.answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.client = tritonclient.grpc.InferenceServerClient(address)
        self.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def send(self, model: str, inputs: dict[str, np.ndarray[Any, Any]], **more: Any) -> None:
        tensors = []
        for name, value in inputs.items():
            datatype = {"float32": "FP32", "int32": "INT32", "uint32": "UINT32"}[value.dtype.name]
            tensor = tritonclient.grpc.InferInput(name, value.shape, datatype)
            tensor.set_data_from_numpy(value)
            tensors.append(tensor)
        self.client.async_stream_infer(model, tensors, **more)

    def take(self) -> tuple[Any, Any]:
        return self.answers.get(timeout=DEADLINE_S)

    def close(self) -> None:
        self.client.stop_stream()
        self.client.close()


@pytest.fixture
def stream(two: tuple[RouterThread, list[Server]]) -> Iterator[Stream]:
    made = Stream(two[0].grpc)
    yield made
    made.close()


def repeat(count: int) -> dict[str, np.ndarray[Any, Any]]:
    return {
        "IN": np.arange(count, dtype=np.int32),
        "DELAY": np.zeros(count, np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }


def test_requests_of_a_stream_may_be_for_several_models(stream: Stream) -> None:
    ones = {"INPUT0": np.ones((1, 4), np.float32)}
    for number in range(6):
        stream.send("echo", ones, request_id=f"e{number}")
    stream.send("many", repeat(40), request_id="m")
    stream.send("nosuch", ones, request_id="n")

    answers = [stream.take() for _ in range(6 + 40 + 1)]

    ids = [answer.get_response().id for answer, error in answers if error is None]
    assert [each for each in ids if each.startswith("e")] == [f"e{number}" for number in range(6)]
    assert ids.count("m") == 40
    [text] = [str(error) for _, error in answers if error is not None]
    assert "Request for unknown model: 'nosuch' is not found" in text


def test_sequences_of_one_stream_go_to_their_replicas(
    stream: Stream, two: tuple[RouterThread, list[Server]]
) -> None:
    before = [sequence_count(server) for server in two[1]]
    ones = {"INPUT0": np.ones((1, 4), np.float32)}
    for step in range(3):
        for number in range(500, 512):
            stream.send("seq", ones, sequence_id=number, sequence_start=step == 0, sequence_end=step == 2)

    errors = [error for _, error in (stream.take() for _ in range(36)) if error is not None]

    counts = [sequence_count(server) - first for server, first in zip(two[1], before, strict=True)]
    assert not errors
    assert sum(counts) == 36
    assert all(count % 3 == 0 for count in counts)


def test_a_large_flood_reaches_a_client_that_reads_late(stream: Stream) -> None:
    stream.send("many", repeat(20_000))

    taken = [stream.take() for _ in range(20_000)]

    assert [int(answer.as_numpy("IDX")[0]) for answer, _ in taken] == list(range(20_000))


def test_events_come_one_by_one(two: tuple[RouterThread, list[Server]]) -> None:
    body = json.dumps({"IN": [1, 2, 3], "DELAY": [0, 0, 0], "WAIT": 0}).encode()

    status, headers, answer = asked(two[0].http, "/v2/models/many/generate_stream", body)

    assert (status, headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    assert answer.count(b"data: ") == 3


def test_shared_memory_is_registered_with_all_replicas(client: Any) -> None:
    shm = pytest.importorskip("tritonclient.utils.shared_memory", exc_type=ImportError)
    sent = np.arange(16, dtype=np.float32)[np.newaxis]
    key = f"/router_{client.kind.__name__.rpartition('.')[2]}"
    region = shm.create_shared_memory_region("region", key, sent.nbytes)
    try:
        shm.set_shared_memory_region(region, [sent])
        client.register_system_shared_memory("region", key, sent.nbytes)
        tensor = client.kind.InferInput("INPUT0", sent.shape, "FP32")
        tensor.set_shared_memory("region", sent.nbytes)

        answers = [client.infer("echo", [tensor]).as_numpy("OUTPUT0") for _ in range(4)]

        client.unregister_system_shared_memory("region")
        assert all(np.array_equal(answer, sent) for answer in answers)
    finally:
        shm.destroy_shared_memory_region(region)


def test_the_router_counts(two: tuple[RouterThread, list[Server]]) -> None:
    router, _ = two
    asked(router.http, "/v2/models/nosuch/infer", BODY)
    asked(router.http, "/v2/models/echo/infer", BODY)

    _, _, page = asked(f"127.0.0.1:{router.router.metrics_port}", "/metrics")

    lines = page.decode().splitlines()
    assert 'tritonpy_router_replica_up{replica="a"} 1' in lines
    assert 'tritonpy_router_replica_models{replica="b"} 6' in lines
    assert f'tritonpy_router_info{{pid="{os.getpid()}",version="{__version__}"}} 1' in lines
    assert any(
        line.startswith('tritonpy_router_refused_total{code="not_found",protocol="http"}') for line in lines
    )
    assert any(line.startswith("tritonpy_router_request_duration_seconds_count") for line in lines)


@pytest.mark.parametrize(
    ("method_path", "status"),
    [("/v2/models/echo/nosuch", 404), ("/v1/models/echo", 404), ("/v2/models/echo/infer", 405)],
)
def test_paths_that_no_server_has_are_refused_here(
    two: tuple[RouterThread, list[Server]], method_path: str, status: int
) -> None:
    assert asked(two[0].http, method_path)[0] == status
