"""Clients that hang up while the model that works for them waits for another one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.testing import until

from .models import infer, write_caller, write_model

WAITS = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

FLAGS = {flags!r}


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = request.inputs()[0].as_numpy()
            name = f"{{int(x[0])}}"
            if x[0] < 0:
                continue
            open(os.path.join(FLAGS, name + " began"), "w").close()
            deadline = time.monotonic() + 30
            while not request.is_cancelled() and time.monotonic() < deadline:
                if os.path.exists(os.path.join(FLAGS, name + " go")):
                    break
                time.sleep(0.002)
            how = " was cancelled" if request.is_cancelled() else " was not"
            open(os.path.join(FLAGS, name + how), "w").close()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ones(1, np.float32))]) for _ in requests]
"""

ASKS = """
import asyncio
import triton_python_backend_utils as pb_utils


def ask(request):
    return pb_utils.InferenceRequest(
        model_name="waits", inputs=[request.inputs()[0]], requested_output_names=["Y"]
    )


def answer(response):
    if response.has_error():
        return pb_utils.InferenceResponse(error=response.error())
    return pb_utils.InferenceResponse([response.output_tensors()[0]])


class TritonPythonModel:
"""

SEVERAL = """
    async def execute(self, requests):
        responses = await asyncio.gather(*(ask(request).async_exec() for request in requests))
        return [answer(response) for response in responses]
"""

STREAM = """
    async def execute(self, requests):
        self.tasks = [asyncio.create_task(self.stream(request)) for request in requests]

    async def stream(self, request):
        await asyncio.sleep(0.05)  # execute has returned
        sender = request.get_response_sender()
        sender.send(answer(await ask(request).async_exec()), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    folder = tmp_path / "flags"
    folder.mkdir()
    return folder


@pytest.fixture
def models(tmp_path: Path, flags: Path) -> Path:
    folder = tmp_path / "models"
    write_model(folder, "waits", WAITS.format(flags=str(flags)))
    return folder


@contextmanager
def asking(port: int, model: str, number: int) -> Iterator[None]:
    """A client over HTTP that hangs up at the end of the block."""
    body = json.dumps({"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [number]}]})
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall((head + body).encode())
        yield


def message(model: str, number: int) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name=model)
    made.inputs.add(name="X", datatype="FP32", shape=[1])
    made.raw_input_contents.append(np.array([number], np.float32).tobytes())
    return made


def test_the_called_model_is_cancelled(serve, models, flags):
    write_caller(models, "asks", "waits")
    server = serve(models)
    with asking(server.http_port, "asks", 8):
        until((flags / "7 began").exists)

    until((flags / "7 was cancelled").exists)
    assert infer(server.http_port, "asks", [0]) == [0]


def test_so_are_all_that_it_calls_in_turn(serve, models, flags):
    write_caller(models, "asks", "between")
    write_caller(models, "between", "waits")
    server = serve(models)
    with asking(server.http_port, "asks", 9):
        until((flags / "7 began").exists)

    until((flags / "7 was cancelled").exists)


def test_over_grpc_too(serve, models, flags):
    write_caller(models, "asks", "waits")
    server = serve(models)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ModelInfer.future(message("asks", 8), timeout=30)
        until((flags / "7 began").exists)
        call.cancel()
        until((flags / "7 was cancelled").exists)

        # One of these is long enough for the called model to begin.
        for number, deadline_s in ((6, 0.5), (5, 2), (4, 8), (3, 20)):
            with pytest.raises(grpc.RpcError) as late:
                stub.ModelInfer(message("asks", number), timeout=deadline_s)
            assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            if (flags / f"{number - 1} began").exists():
                break
        until((flags / f"{number - 1} was cancelled").exists)


def test_a_call_that_waits_in_a_queue_never_runs(serve, models, flags):
    write_caller(models, "asks", "waits")
    write_caller(models, "also", "waits")
    server = serve(models)
    stats = server.runtime.registry.find("waits").stats
    with asking(server.http_port, "asks", 8):
        until((flags / "7 began").exists)
        with asking(server.http_port, "also", 6):
            until(lambda: stats.pending_count == 1)
        until(lambda: stats.failures["CANCELED"] == 1)
        assert stats.pending_count == 0
        (flags / "7 go").touch()
        until((flags / "7 was not").exists)

    assert not (flags / "5 began").exists()


def test_a_batch_goes_on_while_one_of_its_clients_waits(serve, models, flags):
    write_model(models, "asks", ASKS + SEVERAL)
    config = models / "asks" / "config.pbtxt"
    batching = "max_batch_size: 2 dynamic_batching { max_queue_delay_microseconds: 20000000 }"
    config.write_text(config.read_text().replace("max_batch_size: 0", batching))
    waits = models / "waits" / "config.pbtxt"
    waits.write_text(waits.read_text().replace("count: 1", "count: 2"))
    waits.write_text(waits.read_text().replace("dims: [ -1 ]", "dims: [ -1, -1 ]"))
    code = models / "waits" / "1" / "model.py"
    code.write_text(
        code.read_text().replace(
            "x = request.inputs()[0].as_numpy()", "x = request.inputs()[0].as_numpy()[0]"
        )
    )
    server = serve(models)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        calls = []
        for number in (3, 4):
            made = message("asks", number)
            made.inputs[0].shape[:] = [1, 1]
            calls.append(stub.ModelInfer.future(made, timeout=30))
        until(lambda: (flags / "3 began").exists() and (flags / "4 began").exists())
        [(execution, _)] = server.runtime.registry.find("asks").instances[0].running_executions()

        calls[0].cancel()
        until(lambda: any(request.ticket.cancelled for request in execution.requests))
        assert not [flag for flag in flags.iterdir() if "was" in flag.name]
        calls[1].cancel()

        until(lambda: (flags / "3 was cancelled").exists() and (flags / "4 was cancelled").exists())


def test_a_stream_that_coroutines_answer_is_cancelled_with_its_calls(serve, models, flags):
    write_model(models, "asks", ASKS + STREAM, more="model_transaction_policy { decoupled: true }")
    server = serve(models)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ModelStreamInfer(iter([message("asks", 7)]), timeout=30)
        until((flags / "7 began").exists)

        call.cancel()

        until((flags / "7 was cancelled").exists)
