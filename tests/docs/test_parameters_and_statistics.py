"""What the pages on parameters and statistics show is what the server does."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tritonpy_sdk.repository import ModelRepository

DOCS = Path(__file__).parent.parent.parent / "docs"
PARAMETERS = (DOCS / "how-to/parameters.md").read_text()
STATISTICS = (DOCS / "reference/statistics.md").read_text()
MODEL, CLIENT = re.findall(r"```python\n(.*?)```", PARAMETERS, re.DOTALL)
[ANSWER] = re.findall(r"```json\n(.*?)```", PARAMETERS, re.DOTALL)
SERVE, CURL = re.findall(r"^\$ (.*)$", PARAMETERS, re.MULTILINE)

COUNTS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            tensor = pb_utils.Tensor("OUT", np.zeros(1, np.float32))
            sender.send(pb_utils.InferenceResponse([tensor]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
COUNTS_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


@pytest.fixture
def server(served: Callable[..., Any], tmp_path: Path) -> Any:
    repository = ModelRepository(tmp_path / "models")
    repository.python("price", MODEL, 'backend: "python"')
    repository.python("counts", COUNTS, COUNTS_CONFIG)
    assert SERVE == "corectl serve --model-repository models"
    return served("--model-repository", str(tmp_path / "models"))


def get(server: Any, path: str, body: bytes | None = None) -> str:
    url = f"http://127.0.0.1:{server.ports['HTTPService']}{path}"
    with urlopen(url, body, timeout=30) as answer:
        return answer.read().decode()  # type: ignore[no-any-return]


def test_the_request_of_the_page_gets_the_answer_of_the_page(server: Any) -> None:
    program, url, _, body = shlex.split(CURL)

    assert program == "curl"
    assert get(server, url.removeprefix("localhost:8000"), body.encode()) == ANSWER.strip()


def test_the_client_of_the_page_reads_the_parameters(server: Any) -> None:
    where = f"localhost:{server.ports['GRPCInferenceService']}"
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, where], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == "[20.] USD 1.0\n", done.stderr


def test_every_counter_of_the_statistics_is_on_their_page_and_no_other(server: Any) -> None:
    get(server, "/v2/models/counts/generate", b'{"IN": 1}')
    [stats] = json.loads(get(server, "/v2/models/counts/stats"))["model_stats"]

    [shown] = re.findall(r"```json\n(.*?)```", STATISTICS, re.DOTALL)
    assert json.loads(shown).keys() == stats["response_stats"].keys()
    assert json.loads(shown)["0"].keys() == stats["response_stats"]["0"].keys()
    for index, found in json.loads(shown).items():
        for phase, leaf in found.items():
            assert leaf["count"] == stats["response_stats"][index][phase]["count"], phase
    requests, responses = re.findall(r"^## (?:Requests|Responses.*?)\n(.*?)(?=^## )", STATISTICS, re.M | re.S)
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", requests, re.M))))
    assert named == {*stats["inference_stats"], *stats} - {
        "name",
        "version",
        "inference_stats",
        "response_stats",
    }
    assert set(re.findall(r"^\| `(\w+)` \|", responses, re.M)) == set(stats["response_stats"]["0"])
