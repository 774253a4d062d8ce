"""What a model may do with the batches and requests it is given."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tritonpy.ipc import frame

from ..on_loop import on_loop
from .models import infer, write_caller, write_model


def test_batches_of_an_async_model_overlap_as_far_as_its_parameter_says(serve, tmp_path):
    write_model(
        tmp_path,
        "overlapping",
        """
import asyncio
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.running = 0
        self.arrived = asyncio.Event()

    async def execute(self, requests):
        self.running += 1
        seen = self.running
        if seen == 3:
            self.arrived.set()
        try:
            await asyncio.wait_for(self.arrived.wait(), 25)
        finally:
            self.running -= 1
        y = pb_utils.Tensor("Y", np.array([seen], np.float32))
        return [pb_utils.InferenceResponse([y]) for _ in requests]
""",
        more='parameters { key: "TRITONPY_CONCURRENT_BATCHES" value { string_value: "3" } }',
    )
    server = serve(tmp_path)

    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: infer(server.http_port, "overlapping", [1]), range(3)))

    assert sorted(answers) == [[1], [2], [3]]


def test_a_bad_number_of_concurrent_batches_is_refused_by_name(serve, tmp_path):
    write_caller(
        tmp_path, "a", more='parameters { key: "TRITONPY_CONCURRENT_BATCHES" value { string_value: "none" } }'
    )
    server = serve(tmp_path, exit_on_error=False)

    [row] = server.runtime.registry.index()
    assert "TRITONPY_CONCURRENT_BATCHES is 'none', expected the number of batches" in row["reason"]


def test_rescheduled_requests_come_again_until_the_model_answers(serve, tmp_path):
    write_model(
        tmp_path,
        "counting",
        """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.state = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            id = request.correlation_id()
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.state[id] = [int(request.inputs()[0].as_numpy()[0]), 0]
            left, count = self.state[id]
            if left > 0:
                self.state[id] = [left - 1, count + 1]
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                responses.append(None)
            else:
                del self.state[id]
                y = pb_utils.Tensor("Y", np.array([count], np.float32))
                responses.append(pb_utils.InferenceResponse([y]))
        return responses
""",
        more="sequence_batching { iterative_sequence: true }",
    )
    server = serve(tmp_path)

    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda n: infer(server.http_port, "counting", [n]), [5, 0, 3]))

    assert answers == [[5], [0], [3]]
    stats = server.runtime.registry.find("counting").stats
    assert on_loop(server, lambda: stats.success_count) == 3


def test_rescheduling_without_an_iterative_sequence_is_an_error(serve, tmp_path):
    write_model(
        tmp_path,
        "eager",
        """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return [None for _ in requests]
""",
    )
    server = serve(tmp_path)

    with pytest.raises(RuntimeError, match="rescheduled a request, which only a model with"):
        infer(server.http_port, "eager", [1])


@pytest.mark.parametrize("what", ["requests.clear()", "requests.append(requests[0])", "requests.reverse()"])
def test_a_model_may_do_what_it_likes_with_its_list_of_requests(serve, tmp_path, what):
    write_model(
        tmp_path,
        "careless",
        f"""
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        y = requests[0].inputs()[0].as_numpy()
        {what}
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])]
""",
    )
    server = serve(tmp_path)
    [instance] = server.runtime.registry.find("careless").instances
    before = instance.pid

    assert infer(server.http_port, "careless", [5]) == [5]
    assert instance.pid == before


def test_a_batch_whose_answers_do_not_match_is_failed_and_not_lost(serve, tmp_path, monkeypatch):
    write_caller(tmp_path, "echo")
    server = serve(tmp_path)
    [instance] = server.runtime.registry.find("echo").instances
    take = instance._take

    def cut(message):
        if message[0] == frame.EXECUTED and message[4] is not None:
            message = (*message[:4], [], *message[5:])
        take(message)

    monkeypatch.setattr(instance._worker, "_on_message", cut)

    with pytest.raises(RuntimeError, match="0 responses for a batch of 1 requests"):
        infer(server.http_port, "echo", [0])
