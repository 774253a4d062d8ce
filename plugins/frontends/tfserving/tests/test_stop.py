"""The end of a server: what it has accepted is answered, and nothing else is accepted."""

from __future__ import annotations

import http.client
import json
import threading

import pytest
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import until


def test_a_request_under_way_is_answered_when_the_server_stops(tmp_path):
    slow = {
        "backend": "identity",
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "parameters": {"execute_delay_ms": {"string_value": "500"}},
    }
    ModelRepository(tmp_path).model("slow", slow)
    options = ServerOptions(
        (str(tmp_path),),
        allow_http=False,
        allow_grpc=False,
        allow_metrics=False,
        frontend_config=(("tfserving", "port", "0"), ("tfserving", "address", "127.0.0.1")),
    )
    answers = []
    with Server(options) as server:
        frontend = server.runtime.frontends.by_name["tfserving"]
        (address,) = frontend.addresses

        def ask():
            connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
            connection.request("POST", "/v1/models/slow:predict", b'{"instances": [1, 2]}')
            answer = connection.getresponse()
            answers.append((answer.status, json.loads(answer.read())))
            connection.close()

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: frontend.admission.held)
    asking.join()

    assert answers == [(200, {"predictions": [1, 2]})]
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(address.host, address.port, timeout=30).connect()
