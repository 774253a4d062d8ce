"""Instances with sequences that die, go away, are warmed up, or run on threads."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from .stage import CONTROLS, MODEL, Model, add, config

Start = Callable[..., Model]

EXPLICIT = {"model_control_mode": "explicit", "load_models": ("m",)}
STRATEGIES: dict[str, dict[str, Any]] = {"direct": {"direct": {}}, "oldest": {"oldest": {}}}
both = pytest.mark.parametrize("strategy", STRATEGIES)


@pytest.fixture
def start(serve: Callable[..., Server], tmp_path: Path) -> Iterator[Start]:
    """Serve one model, `m`, and talk to it."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(16))

        def begin(options: dict[str, Any] | None = None, **settings: Any) -> Model:
            models = ModelRepository(tmp_path / "models")
            add(models, tmp_path, "m", **settings)
            if options is not None and "rate_limit" in options:
                limit = {"resources": [{"name": "R", "count": 1, "global": True}]}
                document = config(tmp_path / "m", **settings)
                document["instance_group"][0]["rate_limiter"] = limit
                models.model("m", document)
            # Sequences that a test leaves open would be waited for.
            server = serve(models.path, exit_timeout_s=0.1, **(options or {}))
            stack.callback(lambda: (tmp_path / "m" / "gate").touch())
            return Model("m", (server.http_port, server.metrics_port), tmp_path / "m", pool)

        yield begin


@both
def test_a_killed_worker_ends_its_sequences_and_no_others(start: Start, strategy: str) -> None:
    model = start(max_batch_size=2, instances=2, **STRATEGIES[strategy])
    model.ask(10, 1, start=True)
    model.ask(20, 2, start=True)
    model.ask(30, 3, start=True)  # on the instance of the first one
    homes = [instance for instance, _ in model.rows]
    assert homes == ["m_0_0", "m_0_1", "m_0_0"]
    running = model.block(1)
    waiting = [model.queue(1, 1), model.queue(1, 1)]

    model.kill("m_0_0")

    assert running.result()[0] == 500
    for answer in waiting:
        status, text = answer.result()
        assert status == 503
        assert text.startswith("sequence 1 was ended: ")
        assert "signal" in text
    assert model.ask(2, 2) == 22
    for sequence in (1, 3):
        status, text = model.ask(4, sequence)
        assert status == 400
        assert "must specify the START flag" in text
        assert "; the one before was ended: " in text
    model.release()
    assert model.ask(5, 1, start=True) == 5
    assert model.ask(5, 3, start=True) == 5
    assert model.failed(BACKEND=3)


def test_a_killed_worker_that_was_idle_ends_its_sequences_too(start: Start) -> None:
    model = start(direct={})
    model.ask(1, 1, start=True)

    model.kill("m_0_0")

    until(lambda: model.ask(2, 1)[0] == 400)
    until(lambda: model.ask(3, 1, start=True) == 3)
    assert model.ask(4, 1, end=True) == 7


def test_an_instance_that_is_taken_away_ends_its_sequences_first(start: Start, tmp_path: Path) -> None:
    model = start(EXPLICIT, direct={}, instances=2)
    for sequence in (1, 2):
        model.ask(sequence, sequence, start=True)

    load(model, config(tmp_path / "m", instances=1, direct={}))

    model.ask(3, 3, start=True)
    assert model.ask(10, 2) == 12
    assert [instance for instance, _ in model.rows] == ["m_0_0", "m_0_1", "m_0_0", "m_0_1"]
    assert not model.has_ended("m_0_1")
    assert model.ask(10, 2, end=True) == 22
    until(lambda: model.has_ended("m_0_1"))
    assert model.ask(10, 1, end=True) == 11
    assert not model.has_ended("m_0_0")


def test_an_instance_that_is_added_takes_sequences_from_the_backlog(start: Start, tmp_path: Path) -> None:
    model = start(EXPLICIT, direct={}, max_batch_size=1)
    model.ask(1, 1, start=True)
    waiting = model.queue(2, 2, start=True)

    load(model, config(tmp_path / "m", instances=2, direct={}, max_batch_size=1))

    assert waiting.result() == 2
    assert model.ask(10, 1, end=True) == 11
    assert model.ask(10, 2, end=True) == 12


def load(model: Model, document: dict[str, Any]) -> None:
    body = json.dumps({"parameters": {"config": json.dumps(document)}}).encode()
    url = f"http://127.0.0.1:{model._http}/v2/repository/models/m/load"
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("is_ended", [True, False], ids=["ended", "left idle"])
def test_a_server_that_stops_lets_running_sequences_end(
    corectl: Callable[..., Any], tmp_path: Path, is_ended: bool
) -> None:
    models = ModelRepository(tmp_path / "models")
    idle_us = 30_000_000 if is_ended else 1_000_000
    add(models, tmp_path, "m", direct={}, max_sequence_idle_microseconds=idle_us)
    server = corectl(f"--model-repository={models.path}")
    ports = (server.ports["HTTPService"], server.ports["Metrics Service"])
    with ThreadPoolExecutor(2) as pool:
        model = Model("m", ports, tmp_path / "m", pool)
        running = model.block(1, start=True)  # as long as it runs, its sequence is not idle

        server.process.send_signal(signal.SIGTERM)
        until(lambda: "Model 'm' (version 1) has 1 in-flight inferences: open sequences" in server.log)

        assert model.ask(5, 2, start=True) == (
            503,
            "Server is stopping, scheduler for model has stopped accepting new inference requests",
        )
        waiting = model.queue(2, 1)
        model.release()
        assert (running.result(), waiting.result()) == (-7, -5)
        if is_ended:
            assert model.ask(3, 1, end=True) == -2
        assert server.wait() == 0, server.log
        assert "in flight; they are answered UNAVAILABLE" not in server.log


@both
def test_a_client_that_hangs_up_ends_its_sequence(start: Start, strategy: str) -> None:
    model = start(max_batch_size=1, **STRATEGIES[strategy])
    running = model.block(1, start=True)
    tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    body = json.dumps({"inputs": [tensor], "parameters": {"sequence_id": 1}})
    with socket.create_connection(("127.0.0.1", model._http)) as connection:
        head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        until(lambda: model.pending == 1)
        follower, other = model.queue(2, 1), model.queue(3, 2, start=True, end=True)

    status, text = follower.result()
    assert (status, text.endswith("another request of sequence 1 was cancelled")) == (400, True)
    model.release()
    assert (running.result(), other.result()) == (-7, 3)
    status, text = model.ask(4, 1)
    assert status == 400
    assert "; the one before was ended because a request of it was cancelled" in text
    assert model.failed(CANCELED=2)


def test_a_warmup_of_a_model_with_sequences_brings_the_controls_itself(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "m").mkdir()
    zero = {"dims": [1], "zero_data": True}
    inputs = {
        "X": {"data_type": "TYPE_INT32", **zero},
        "START": {"data_type": "TYPE_INT32", **zero},
        "END": {"data_type": "TYPE_FP32", **zero},
        "READY": {"data_type": "TYPE_BOOL", **zero},
        "CORRID": {"data_type": "TYPE_UINT64", **zero},
    }
    sample = {"name": "sample", "batch_size": 2, "inputs": inputs}
    document = config(tmp_path / "m", direct={}) | {"model_warmup": [sample]}
    models = ModelRepository(tmp_path / "models")
    models.python("m", MODEL, document)
    server = serve(models.path, exit_timeout_s=0.1)
    with ThreadPoolExecutor(1) as pool:
        model = Model("m", (server.http_port, server.metrics_port), tmp_path / "m", pool)

        assert model.batches == [[None, None]]  # READY is false
        assert model.ask(1, 1, start=True, end=True) == 1


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_backends_see_null_requests_wherever_they_run(
    serve: Callable[..., Server], tmp_path: Path, isolation: str
) -> None:
    models = ModelRepository(tmp_path / "models")
    tensor = {"data_type": "TYPE_INT32", "dims": [1]}
    models.model(
        "m",
        {
            "backend": "identity",
            "max_batch_size": 4,
            "input": [{"name": "INPUT0", **tensor}],
            "output": [{"name": "OUTPUT0", **tensor}],
            "instance_group": [{"kind": "KIND_CPU", "count": 1}],
            "parameters": {"TRITONPY_ISOLATION": {"string_value": isolation}},
            "sequence_batching": {
                "direct": {},
                "control_input": CONTROLS,
                "max_sequence_idle_microseconds": 30_000_000,  # all three are there at the end
            },
        },
    )
    server = serve(models.path, exit_timeout_s=0.1)
    with ThreadPoolExecutor(1) as pool:
        model = Model("m", (server.http_port, server.metrics_port), tmp_path, pool)
        model.input_name = "INPUT0"
        for sequence in (1, 2, 3):
            assert model.ask(sequence, sequence, start=True) == sequence
        assert model.ask(7, 3, end=True) == 7

        assert model.counted(batches={1: 1, 2: 1, 3: 2}, success=4, inferences=4)


@both
def test_instances_that_share_a_resource_take_turns(start: Start, strategy: str) -> None:
    model = start({"rate_limit": "execution_count"}, instances=2, **STRATEGIES[strategy])
    running = model.block(1, start=True)
    others = [model.queue(sequence, sequence, start=True) for sequence in (2, 3)]
    assert len(model.batches) == 1  # the other instance is free, and may not

    model.release()

    assert [running.result(), *(each.result() for each in others)] == [-7, 2, 3]
    assert model.ask(10, 2, end=True) == 12


def test_a_batching_strategy_that_is_named_is_refused(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    document = config(tmp_path / "m", direct={})
    document["parameters"]["TRITON_BATCH_STRATEGY_PATH"] = {"string_value": "volume"}
    models = ModelRepository(tmp_path / "models")
    models.python("m", MODEL, document)
    server = serve(models.path, exit_on_error=False)

    row = index_row(server)
    assert row["state"] == "UNAVAILABLE"
    expected = "TRITON_BATCH_STRATEGY_PATH cannot be specified with sequence batcher, using default batching "
    assert expected + "strategy" in row["reason"]


def test_a_batching_strategy_beside_the_model_is_passed_over(
    serve: Callable[..., Server], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "m").mkdir()
    models = ModelRepository(tmp_path / "models")
    models.model("m", config(tmp_path / "m", direct={}), {"model.py": MODEL, "batchstrategy.py": "1 / 0"})

    server = serve(models.path, exit_on_error=False)

    assert index_row(server)["state"] == "READY"
    path = models.path / "m/1/batchstrategy.py"
    assert f"batching strategy '{path}' is never asked: model 'm' has sequence_batching" in caplog.messages


def index_row(server: Server) -> dict[str, Any]:
    url = f"http://127.0.0.1:{server.http_port}/v2/repository/index"
    with urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=30) as answer:
        row: dict[str, Any]
        [row] = json.load(answer)
    return row
