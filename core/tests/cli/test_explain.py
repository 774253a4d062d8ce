"""`corectl explain` against a server, and what it may be asked by whom."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tritonpy.cli.main import main
from tritonpy.options import ServerOptions
from tritonpy.server import Server

TENSORS = """
    input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
    output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
CONFIGS = {
    "plain": f'backend: "identity" max_batch_size: 8 {TENSORS}',
    "batched": f'backend: "identity" max_batch_size: 8 dynamic_batching {{ }} {TENSORS}',
}

Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    for name, config in CONFIGS.items():
        for version in ("1", "2"):
            (tmp_path / name / version).mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(f"{config} version_policy {{ all {{ }} }}")
    with ExitStack() as stack:

        def run(**options: Any) -> Server:
            return stack.enter_context(
                Server(
                    ServerOptions(
                        (str(tmp_path),),
                        http_address="127.0.0.1",
                        http_port=0,
                        allow_grpc=False,
                        allow_metrics=False,
                        **options,
                    )
                )
            )

        yield run


def infer(server: Server, model: str, count: int = 1) -> None:
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1]}]})
    with closing(http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)) as connection:
        for _ in range(count):
            connection.request("POST", f"/v2/models/{model}/infer", body)
            assert connection.getresponse().read().startswith(b'{"model_name"')


def explain(server: Server, *arguments: str) -> int:
    return main(["explain", *arguments, f"--url=127.0.0.1:{server.http_port}"])


def test_a_model_without_batching_is_told_so(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    server = start()
    infer(server, "plain", 3)

    assert explain(server, "plain", "--model-version=2") == 0

    text = capsys.readouterr().out
    assert text.startswith("plain version 2, ")
    assert "Scheduler   default: one request at a time, of up to 8 rows\n" in text
    assert "3 succeeded, 0 failed" in text
    assert "3 executions of 1 row" in text
    assert "single          3  100.0%" in text
    assert "* 100% of the batches were one request each: the model has no dynamic_batching" in text


def test_json_has_the_numbers_and_the_findings_of_all_versions(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start()
    infer(server, "batched", 4)

    assert explain(server, "batched", "--json") == 0

    first, second = json.loads(capsys.readouterr().out)
    assert (first["version"], first["executions"], first["closed"]) == ("1", 0, {})
    assert first["findings"][0]["finding"] == "Nothing was executed."
    assert (second["version"], second["executions"], second["closed"]) == ("2", 4, {"queue empty": 4})
    assert second["batch_sizes"].keys() == {"1"}
    assert second["requests"]["success"] == 4
    assert second["durations_ns"]["queue"] > 0
    assert second["instances"][0]["is_ready"] is True
    assert "because the queue was empty" in second["findings"][0]["finding"]


def test_two_looks_tell_what_came_between(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    server = start()
    infer(server, "batched", 5)

    assert explain(server, "batched", "--model-version=2", "--seconds=0.1", "--json") == 0

    [between] = json.loads(capsys.readouterr().out)
    assert 0.1 <= between["seconds"] < 30
    assert (between["executions"], between["requests"]["success"]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("none",), "requested model 'none' is not available (HTTP status 400)"),
        (("plain", "--model-version=9"), "requested model version is not available for model 'plain'"),
    ],
)
def test_a_model_that_is_not_there_is_an_error(
    start: Start, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    assert explain(start(), *arguments) == 1

    assert text in capsys.readouterr().err


def test_whoever_may_not_see_statistics_may_not_see_this(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start(http_restricted_apis=((("statistics",), "key", "secret"),))

    assert explain(server, "plain") == 1

    assert "This API is restricted, expecting header 'key'" in capsys.readouterr().err
