"""What the page on backends shows of calls of other models works, in a worker and in the server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options

PAGE = (Path(__file__).parents[2] / "docs/how-to/write-a-backend.md").read_text()
TENSOR = {"data_type": "TYPE_INT64", "dims": [1]}
CONFIG = {"input": [{"name": "INPUT0", **TENSOR}], "output": [{"name": "OUTPUT0", **TENSOR}]}
ASKING = """
import numpy as np
from tritonpy.plugin import InferResponse, hookimpl

@hookimpl
def model_instance_execute(instance, requests):
    server, answers = instance.model.server, []
    for request in requests:
        error = server.ask("server.model_config", "nowhere", "").exception(20)
        facts = [error.code.name, server.ask("server.is_ready").result(20)]
        answers.append(InferResponse(parameters={"facts": str(facts)}).add("OUTPUT0", np.array([1])))
    return answers
"""


@pytest.fixture(params=["process", "thread"])
def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    (calling,) = [
        code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "awaited_by=" in code
    ]
    info = tmp_path / "site/acme-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    entries = "[tritonpy.backends]\ncalling = acme_calling\nasking = acme_asking\n"
    (info / "entry_points.txt").write_text(entries)
    (info.parent / "acme_calling.py").write_text(calling)
    (info.parent / "acme_asking.py").write_text(ASKING)
    monkeypatch.syspath_prepend(info.parent)
    monkeypatch.setenv("PYTHONPATH", str(info.parent))
    isolation = {"parameters": {"TRITONPY_ISOLATION": {"string_value": request.param}}}
    models = ModelRepository(tmp_path / "models")
    for name in ("calling", "asking"):
        models.model(name, {"backend": name, **CONFIG, **isolation})
    models.model("other", {"backend": "identity", **CONFIG})
    with Server(local_options(models.path)) as running:
        yield running


@pytest.fixture
def infer(server: Server) -> Callable[..., object]:
    def ask(model: str) -> object:
        given = {"name": "INPUT0", "datatype": "INT64", "shape": [1], "data": [7]}
        url = f"http://127.0.0.1:{server.http_port}/v2/models/{model}/infer"
        with urlopen(Request(url, json.dumps({"inputs": [given]}).encode()), timeout=20) as answer:
            return json.load(answer)

    return ask


def test_another_model_answers(infer: Callable[..., dict]) -> None:
    assert infer("calling")["outputs"][0]["data"] == [7]


def test_questions_have_answers_and_errors(infer: Callable[..., dict]) -> None:
    assert infer("asking")["parameters"]["facts"] == "['NOT_FOUND', True]"
