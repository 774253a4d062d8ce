"""The end of a server: what it has accepted is answered, and nothing else is accepted."""

from __future__ import annotations

import http.client
import json
import threading

import grpc
import numpy as np
import pytest
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_frontend_tfserving import messages
from tritonpy_frontend_tfserving.tensor_messages import write_tensor
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import until


def test_requests_under_way_are_answered_when_the_server_stops(tmp_path):
    slow = {
        "backend": "identity",
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": 2}],
        "parameters": {"execute_delay_ms": {"string_value": "500"}},
    }
    ModelRepository(tmp_path).model("slow", slow)
    options = ServerOptions(
        (str(tmp_path),),
        allow_http=False,
        allow_grpc=False,
        allow_metrics=False,
        frontend_config=(
            ("tfserving", "port", "0"),
            ("tfserving", "grpc-port", "0"),
            ("tfserving", "address", "127.0.0.1"),
        ),
    )
    answers = []
    with Server(options) as server:
        frontend = server.runtime.frontends.by_name["tfserving"]
        address, grpc_address = frontend.addresses

        def ask():
            connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
            connection.request("POST", "/v1/models/slow:predict", b'{"instances": [1, 2]}')
            answer = connection.getresponse()
            answers.append((answer.status, json.loads(answer.read())))
            connection.close()

        def ask_over_grpc():
            request = messages.PredictRequest()
            request.model_spec.name = "slow"
            write_tensor(np.array([3], "f4"), "FP32", request.inputs.add(key="INPUT0").value)
            with grpc.insecure_channel(f"{grpc_address.host}:{grpc_address.port}") as channel:
                call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
                answers.append(messages.PredictResponse.FromString(call(request.SerializeToString())))

        asking = [threading.Thread(target=each) for each in (ask, ask_over_grpc)]
        for thread in asking:
            thread.start()
        until(lambda: server.runtime.dataplane.find("slow").inflight_count == 2)
    for thread in asking:
        thread.join()

    (over_grpc,) = [answer for answer in answers if not isinstance(answer, tuple)]
    assert list(over_grpc.outputs[0].value.float_val) == [3]
    assert (200, {"predictions": [1, 2]}) in answers
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(address.host, address.port, timeout=30).connect()
