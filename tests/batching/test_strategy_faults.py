"""What a batching strategy in Python may do wrong, end to end, and whom it costs what."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from .strategies import HELD, REFUSES_THREES, identity, infer, infer_in_order, scrape


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path / "models")


SLEEPS = (
    HELD
    + """
import time

@hookimpl
def model_batch_include_request(request, batch):
    time.sleep(0.005)
    return True
"""
)


FAILS_AT_INIT = (
    HELD.replace("return None", 'raise ValueError("no such budget")')
    + """
@hookimpl
def model_batch_include_request(request, batch):
    return True
"""
)


def test_a_strategy_that_raises_fails_only_that_request(
    serve: Callable[..., Server], repository: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "4")
    config = identity()
    config["input"][0]["allow_ragged_batch"] = True
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    repository.model("m", config, {"batchstrategy.py": REFUSES_THREES})
    server = serve(repository.path)

    answers = infer_in_order(server, "m", [2, 2, 3, 2])

    assert [status for status, _ in answers] == [200, 200, 500, 200]
    assert "ValueError: three is one too many" in answers[2][1]["error"]


def test_an_error_at_init_reaches_log_and_client_with_its_text(
    serve: Callable[..., Server], repository: ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    repository.model("m", identity(), {"batchstrategy.py": FAILS_AT_INIT})

    with caplog.at_level(logging.ERROR):
        server = serve(repository.path, exit_on_error=False)

    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request("POST", "/v2/repository/index")
    index = json.loads(connection.getresponse().read())
    connection.close()
    assert "no such budget" in caplog.text
    assert index[0]["state"] == "UNAVAILABLE"
    assert "no such budget" in index[0]["reason"]


def test_a_slow_strategy_is_named_in_log_and_metric(
    serve: Callable[..., Server], repository: ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    config = identity()
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    repository.model("m", config, {"batchstrategy.py": SLEEPS})
    server = serve(repository.path)

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            infer(server.http_port, "m", 2)

    warnings = [
        record.getMessage() for record in caplog.records if "batching strategy" in record.getMessage()
    ]
    assert len(warnings) == 1
    assert "batchstrategy.py" in warnings[0]
    path = repository.path / "m/1/batchstrategy.py"
    counted = f'tritonpy_slow_batching_scans_total{{model="m",strategy="{path}",version="1"}} 5'
    assert counted in scrape(server)


EXITS = (
    HELD
    + """
import sys

@hookimpl
def model_batch_include_request(request, batch):
    sys.exit("enough")
"""
)


def test_a_strategy_that_calls_sys_exit_fails_its_request_and_not_the_server(
    serve: Callable[..., Server], repository: ModelRepository
) -> None:
    config = identity()
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    repository.model("m", config, {"batchstrategy.py": EXITS})
    server = serve(repository.path)

    for _ in range(2):
        status, document = infer(server.http_port, "m", 2)

        assert status == 500
        assert "SystemExit: enough" in document["error"]


CANNOT_BEGIN = (
    HELD.replace("return []", 'raise RuntimeError("no memory left")')
    + """
@hookimpl
def model_batch_include_request(request, batch):
    raise AssertionError("asked for a batch that has no state")
"""
)


def test_a_strategy_that_cannot_begin_a_batch_fails_requests_with_its_text(
    serve: Callable[..., Server], repository: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    repository.model("m", identity(), {"batchstrategy.py": CANNOT_BEGIN})
    server = serve(repository.path)

    answers = infer_in_order(server, "m", [2, 2, 2])

    assert [status for status, _ in answers] == [500, 500, 500]
    assert all("RuntimeError: no memory left" in document["error"] for _, document in answers)
