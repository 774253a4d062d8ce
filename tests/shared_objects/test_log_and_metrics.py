"""What a strategy in C logs and counts is in the server's log and on its metrics page, as with Triton."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from .conftest import Compiled

CONFIG: dict[str, Any] = {
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "dynamic_batching": {},
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
}
MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)]) for array in arrays]
"""
HEAD = r"([IWE])\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ talkative\.c:(\d+)\] "
LABELS = r'a_kind="of \"C\"\\\n",model="m"'

PAGE = [
    "# HELP talkative_asked Requests that came",
    "# TYPE talkative_asked counter",
    f"talkative_asked{{{LABELS}}} 2",
    "# HELP talkative_bytes_now Of the latest one",
    "# TYPE talkative_bytes_now gauge",
    'talkative_bytes_now{model="m"} 128',
    "# HELP talkative_bytes Of requests",
    "# TYPE talkative_bytes histogram",
    'talkative_bytes_count{model="m"} 2',
    'talkative_bytes_sum{model="m"} 144',
    'talkative_bytes_bucket{model="m",le="16"} 1',
    'talkative_bytes_bucket{model="m",le="64.5"} 1',
    'talkative_bytes_bucket{model="m",le="+Inf"} 2',
]
"""After a request of 16 bytes and one of 128."""


@pytest.fixture
def strategy(compiled: Compiled) -> Path:
    return compiled("strategies/talkative.c", "-pthread")


def repository(path: Path, strategy: Path, *, is_real: bool = False) -> Path:
    config = {**CONFIG, "parameters": {"TRITON_BATCH_STRATEGY_PATH": {"string_value": str(strategy)}}}
    if is_real:
        ModelRepository(path).python("m", MODEL, {**config, "backend": "python"})
    else:
        ModelRepository(path).model("m", {**config, "backend": "identity"})
    return path


def post(port: int, path: str, document: Mapping[str, Any]) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/{path}", json.dumps(document).encode())
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        answer.read()


def infer(port: int, columns: int) -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, columns], "data": [1.0] * columns}
    post(port, "models/m/infer", {"inputs": [tensor]})


def counted(port: int) -> list[str]:
    """What the page says of the strategy's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    return [line for line in text.splitlines() if "talkative_" in line]


def talk(log: str) -> Iterator[tuple[str, int, str]]:
    """Level, line and message of what the strategy logged."""
    for line in log.splitlines():
        if (match := re.match(HEAD, line)) is not None:
            yield match[1], int(match[2]), json.loads(line[match.end() :])


GREETING = [
    ("I", 1, 'talkative: hello\n"it" is\t\ufffd %s'),
    ("W", 2, "talkative: careful"),
    ("E", 3, "talkative: bad"),
    ("I", 5, "talkative: from a thread"),
    ("I", 6, "talkative: " + "x" * 4989),
]
ASKED = ("I", 7, "talkative: asked")
BYE = ("I", 8, "talkative: bye")


def test_the_log_has_every_line_at_the_levels_of_the_moment(
    corectl: Any, strategy: Path, tmp_path: Path
) -> None:
    server = corectl(f"--model-repository={repository(tmp_path, strategy)}")
    http = server.ports["HTTPService"]
    infer(http, 4)
    post(http, "logging", {"log_verbose_level": 1, "log_info": False})
    infer(http, 32)
    post(http, "logging", {"log_verbose_level": 0, "log_info": True})
    infer(http, 32)
    server.stop()

    assert list(talk(server.log)) == [*GREETING, ASKED, BYE]


def test_metrics_are_on_the_page_until_the_model_is_gone(serve: Any, strategy: Path, tmp_path: Path) -> None:
    server = serve(repository(tmp_path, strategy), model_control_mode="explicit", load_models=("m",))
    for columns in (4, 32):
        infer(server.http_port, columns)

    page = counted(server.metrics_port)
    post(server.http_port, "repository/models/m/unload", {})
    until(lambda: not counted(server.metrics_port))
    post(server.http_port, "repository/models/m/load", {})

    assert page == PAGE
    assert f"talkative_asked{{{LABELS}}} 0" in counted(server.metrics_port)


@pytest.mark.parity
def test_a_real_tritonserver_logs_and_shows_the_same(
    real_triton: Any, strategy: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    ports = real_triton(repository(tmp_path / "models", strategy, is_real=True), f"--log-file={log}")
    infer(ports["http"], 4)
    post(ports["http"], "logging", {"log_verbose_level": 1})
    infer(ports["http"], 32)
    post(ports["http"], "logging", {"log_verbose_level": 0})

    assert counted(ports["metrics"]) == PAGE
    said = list(talk(log.read_bytes().decode(errors="replace")))
    assert said[: len(GREETING)] == GREETING
    assert set(said[len(GREETING) :]) == {ASKED}
