"""Lines of the log that are about requests name them, whoever writes them."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

CONFIG: dict[str, Any] = {
    "backend": "python",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
}
ENDS = """
import os

class TritonPythonModel:
    def execute(self, requests):
        os._exit(3)
"""
RAISES = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("not today")
"""


def infer(server: Server, model: str, request_id: str) -> int:
    tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    body = json.dumps({"id": request_id, "inputs": [tensor]})
    with closing(http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)) as connection:
        connection.request("POST", f"/v2/models/{model}/infer", body)
        return connection.getresponse().status


@pytest.mark.parametrize(
    ("source", "parameters", "text"),
    [
        (ENDS, {}, "1 requests were at it"),
        (RAISES, {}, "not today"),
        (RAISES, {"TRITONPY_ISOLATION": {"string_value": "thread"}}, "not today"),
    ],
    ids=["worker that ends", "worker that raises", "thread that raises"],
)
def test_what_goes_wrong_with_a_batch_is_logged_with_its_requests(
    serve: Callable[..., Server],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    source: str,
    parameters: dict[str, Any],
    text: str,
) -> None:
    caplog.set_level(logging.INFO)
    ModelRepository(tmp_path).python("bad", source, {**CONFIG, "parameters": parameters})
    server = serve(tmp_path)

    assert infer(server, "bad", "my request") == 500

    server.stop()  # what workers say is read to its end
    about = [
        (getattr(record, "model", ""), getattr(record, "request_id", ""))
        for record in caplog.records
        if text in f"{record.getMessage()} {record.exc_info} {record.exc_text}"
    ]
    assert ("bad", "my request") in about
