"""Models that call models, on threads, on event loops, and with large tensors."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonpy_sdk.testing import until

from .models import infer, write_caller, write_model


def test_a_model_may_call_a_chain_of_models(serve, tmp_path):
    for name, targets in (("a", "b"), ("b", "c"), ("c", "")):
        write_caller(tmp_path, name, *filter(None, [targets]))
    server = serve(tmp_path)

    assert infer(server.http_port, "a", [5, 7]) == [3, 5]


def test_calls_on_many_threads_of_one_execute_are_answered(serve, tmp_path):
    write_caller(tmp_path, "echo", count=2)
    write_model(
        tmp_path,
        "fan",
        """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.pool = ThreadPoolExecutor(16)

    def call(self, value):
        request = pb_utils.InferenceRequest(
            model_name="echo",
            inputs=[pb_utils.Tensor("X", np.full(20000, -value, np.float32))],
            requested_output_names=["Y"],
        )
        return request.exec().output_tensors()[0].as_numpy().sum()

    def execute(self, requests):
        total = sum(self.pool.map(self.call, range(200)))
        y = pb_utils.Tensor("Y", np.array([total], np.float32))
        return [pb_utils.InferenceResponse([y]) for _ in requests]
""",
    )
    server = serve(tmp_path)

    assert infer(server.http_port, "fan", [0]) == [-20000.0 * sum(range(200))]


def test_a_call_on_a_loop_inside_a_plain_execute_is_answered(serve, tmp_path):
    write_caller(tmp_path, "echo")
    write_model(
        tmp_path,
        "loop",
        """
import asyncio
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def both(self, x):
        calls = [
            pb_utils.InferenceRequest(
                model_name="echo", inputs=[pb_utils.Tensor("X", -x)], requested_output_names=["Y"]
            ).async_exec()
            for _ in range(8)
        ]
        await asyncio.wait(calls)
        return sum(call.result().output_tensors()[0].as_numpy() for call in calls)

    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", asyncio.run(self.both(x)))])]
""",
    )
    server = serve(tmp_path)

    assert infer(server.http_port, "loop", [1, 2]) == [-8, -16]


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_large_tensors_of_calls_come_back_whole_and_leave_no_block_behind(serve, tmp_path, isolation):
    more = f'parameters {{ key: "TRITONPY_ISOLATION" value {{ string_value: "{isolation}" }} }}'
    for name, targets in (("a", ["b"]), ("b", ["c"]), ("c", [])):
        write_caller(tmp_path, name, *targets, more=more)
    server = serve(tmp_path)
    client = httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    values = np.arange(1_000_000, dtype=np.float32) + 2
    tensor = httpclient.InferInput("X", [1_000_000], "FP32")
    tensor.set_data_from_numpy(values)

    for _ in range(20):
        assert np.array_equal(client.infer("a", [tensor]).as_numpy("Y"), values - 2)
    client.close()

    registry = server.runtime.registry
    arenas = [registry.find(name).instances[0]._worker.endpoint.arena for name in "abc"]
    infer(server.http_port, "a", [3])  # the last references travel with the next frames
    until(lambda: all(arena.leased_count == 0 for arena in arenas))
    # Between models a block is lent: the server's own arenas hold what came from the client and no more.
    assert arenas[0].byte_size > 4_000_000
    assert max(arena.byte_size for arena in arenas[1:]) < 20_000


def test_a_dropped_iterator_stops_the_called_model(serve, tmp_path):
    flags = tmp_path / "flags"
    flags.mkdir()
    models = tmp_path / "models"
    write_model(
        models,
        "endless",
        f"""
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            deadline = time.monotonic() + 30
            while not request.is_cancelled() and time.monotonic() < deadline:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ones(1, np.float32))]))
                time.sleep(0.001)
            open(os.path.join({str(flags)!r}, "stopped" if request.is_cancelled() else "late"), "w").close()
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
        more="model_transaction_policy { decoupled: true }",
    )
    write_model(
        models,
        "curious",
        """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        request = pb_utils.InferenceRequest(
            model_name="endless", inputs=[requests[0].inputs()[0]], requested_output_names=["Y"]
        )
        response = next(iter(request.exec(decoupled=True)))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", response.output_tensors()[0].as_numpy())])]
""",
    )
    server = serve(models)

    assert infer(server.http_port, "curious", [5]) == [1]
    until(lambda: list(flags.iterdir()))
    assert (flags / "stopped").exists()


def test_names_that_are_no_plain_strings_travel_as_such(serve, tmp_path):
    write_caller(tmp_path, "echo")
    write_model(
        tmp_path,
        "subclasses",
        """
from enum import IntEnum
import numpy as np
import triton_python_backend_utils as pb_utils


class Flag(IntEnum):
    START = 1


class TritonPythonModel:
    def execute(self, requests):
        response = pb_utils.InferenceRequest(
            model_name=np.str_("echo"),
            request_id=np.str_("id"),
            correlation_id=np.str_("sequence"),
            flags=Flag.START,
            timeout=Flag.START,
            inputs=[pb_utils.Tensor("X", np.zeros(1, np.float32))],
            requested_output_names=[np.str_("Y")],
        ).exec()
        if response.has_error():
            return [pb_utils.InferenceResponse(error=response.error())]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", response.output_tensors()[0].as_numpy())])]
""",
    )
    server = serve(tmp_path)

    assert infer(server.http_port, "subclasses", [5]) == [0]
