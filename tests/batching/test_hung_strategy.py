"""A strategy that does not return when it is asked holds the loop, and with it every client."""

from __future__ import annotations

import queue
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess, until

from .strategies import HELD, identity

HANGS = (
    HELD
    + """
import pathlib
import time
from tritonpy import stop_signals

stop_signals._ANSWER_S = 0.2  # of this server; it is 5 s

@hookimpl
def model_batch_include_request(request, batch):
    if request.id == "hang":
        pathlib.Path({asked!r}).touch()
        time.sleep(3600)
    return True
"""
)


def infer(id: str) -> Any:
    message = service_pb2.ModelInferRequest(model_name="m", id=id)
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 1])
    message.raw_input_contents.append(np.ones(1, np.float32).tobytes())
    return message


def test_a_server_in_whose_strategy_a_stream_hangs_ends_when_it_is_told_to(
    corectl: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    models = ModelRepository(tmp_path / "models")
    config = identity() | {"dynamic_batching": {}}
    models.model("m", config, {"batchstrategy.py": HANGS.format(asked=str(asked))})
    server = corectl(f"--model-repository={models.path}", "--exit-timeout-secs=0")
    requests = queue.SimpleQueue[Any]()
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        stream = stub.ModelStreamInfer(iter(requests.get, None), timeout=60)
        requests.put(infer("first"))
        assert next(stream).infer_response.id == "first"
        requests.put(infer("hang"))
        until(asked.exists, lambda: server.log)

        status = server.stop(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        requests.put(None)

    assert status == 1
    assert "The event loop is stuck and has not answered for 0.2 s after the exit timeout" in server.log
    assert re.search(
        r"; it is in batching strategy '.*' of model 'm', in model_batch_include_request, .*strategy.py:\d",
        server.lines[-1],
    )
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
