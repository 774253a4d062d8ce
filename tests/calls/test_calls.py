"""Models that call models: what must not hang, must not be lost, and must not be left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonpy.ipc import frame

CALLER = """
import os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

TARGETS = {targets!r}


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X")
        depth = int(x.as_numpy()[0])
        if depth <= 0 or not TARGETS:
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())])
        response = pb_utils.InferenceRequest(
            model_name=TARGETS[0],
            inputs=[pb_utils.Tensor("X", x.as_numpy() - 1)],
            requested_output_names=["Y"],
        ).exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", response.output_tensors()[0].as_numpy())])
"""

CONFIG = """
backend: "python"
max_batch_size: 0
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }} ]
instance_group [ {{ count: {count} kind: KIND_CPU }} ]
{more}
"""


def write_model(root: Path, name: str, code: str, *, count: int = 1, more: str = "") -> None:
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(code)
    (root / name / "config.pbtxt").write_text(CONFIG.format(count=count, more=more))


def write_caller(root: Path, name: str, *targets: str, count: int = 1, more: str = "") -> None:
    write_model(root, name, CALLER.format(targets=list(targets)), count=count, more=more)


def infer(port: int, model: str, values: list[float]) -> list[float]:
    """The output of one request; raises with the server's error text."""
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [len(values)], "data": values}]}
    url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
    try:
        with urlopen(Request(url, json.dumps(body).encode()), timeout=15) as answer:
            outputs = json.load(answer)["outputs"]
    except HTTPError as error:
        with error:
            raise RuntimeError(json.load(error)["error"]) from None
    return outputs[0]["data"]


def test_a_model_may_call_a_chain_of_models(serve, tmp_path):
    for name, targets in (("a", "b"), ("b", "c"), ("c", "")):
        write_caller(tmp_path, name, *filter(None, [targets]))
    server = serve(tmp_path)

    assert infer(server.http_port, "a", [5, 7]) == [3, 5]


def test_a_model_with_one_instance_that_calls_itself_is_told_at_once(serve, tmp_path):
    write_caller(tmp_path, "a", "a")
    server = serve(tmp_path)

    with pytest.raises(
        RuntimeError, match="cannot call 'a': the call would wait for itself for ever"
    ) as error:
        infer(server.http_port, "a", [1])

    assert "'a_0_0' waits for 'a_0_0'" in str(error.value)
    assert infer(server.http_port, "a", [0]) == [0]


def test_a_model_may_call_itself_as_deep_as_it_has_instances(serve, tmp_path):
    write_caller(tmp_path, "a", "a", count=3)
    server = serve(tmp_path)

    assert infer(server.http_port, "a", [2]) == [0]
    with pytest.raises(RuntimeError, match=r"would wait for itself for ever \('a_0_\d' waits for"):
        infer(server.http_port, "a", [3])


def test_a_cycle_over_two_models_is_named(serve, tmp_path):
    write_caller(tmp_path, "a", "b")
    write_caller(tmp_path, "b", "a")
    server = serve(tmp_path)

    with pytest.raises(RuntimeError, match=r"model 'b' cannot call 'a'.*'b_0_0' waits for 'a_0_0'"):
        infer(server.http_port, "a", [5])


def test_two_clients_whose_requests_block_each_other_both_get_an_answer(serve, tmp_path):
    # Each of the models executes, then calls the other one: no request waits for itself, yet none can go on.
    meet = tmp_path / "meet"
    meet.mkdir()
    code = CALLER.replace(
        "        response = pb_utils.InferenceRequest(",
        f"""        open(os.path.join({str(meet)!r}, {{name!r}}), "w").close()
        deadline = time.monotonic() + 10
        while len(os.listdir({str(meet)!r})) < 2 and time.monotonic() < deadline:
            time.sleep(0.002)
        response = pb_utils.InferenceRequest(""",
    )
    models = tmp_path / "models"
    for name, target in (("a", "b"), ("b", "a")):
        write_model(models, name, code.format(name=name, targets=[target]))
    server = serve(models)

    def outcome(model: str) -> str:
        try:
            return str(infer(server.http_port, model, [1]))
        except RuntimeError as error:
            return str(error)

    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(outcome, "ab"))

    assert sum("would wait for itself for ever" in text for text in outcomes) == 1
    assert sum(text == "[0.0]" for text in outcomes) == 1


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


def test_a_worker_that_dies_while_it_is_called_answers_its_caller(serve, tmp_path):
    write_caller(tmp_path, "a", "dying")
    write_model(
        tmp_path,
        "dying",
        "import os\n\nclass TritonPythonModel:\n    def execute(self, requests):\n        os._exit(3)\n",
    )
    server = serve(tmp_path)

    with pytest.raises(RuntimeError, match=r"'dying_0_0' is not healthy: it exited with code 3"):
        infer(server.http_port, "a", [1])


def test_a_caller_that_dies_cancels_what_it_called(serve, tmp_path):
    flags = tmp_path / "flags"
    flags.mkdir()
    models = tmp_path / "models"
    write_caller(models, "a", "slow")
    write_model(
        models,
        "slow",
        f"""
import os, time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        open(os.path.join({str(flags)!r}, "started"), "w").close()
        deadline = time.monotonic() + 10
        while not requests[0].is_cancelled() and time.monotonic() < deadline:
            time.sleep(0.002)
        name = "cancelled" if requests[0].is_cancelled() else "late"
        open(os.path.join({str(flags)!r}, name), "w").close()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", requests[0].inputs()[0].as_numpy())])]
""",
    )
    server = serve(models)
    [instance] = server.runtime.registry.find("a").instances

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(infer, server.http_port, "a", [1])
        wait_for(lambda: (flags / "started").exists())
        os.kill(instance.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="SIGKILL"):
            answer.result(15)

    wait_for(lambda: len(list(flags.iterdir())) == 2)
    assert (flags / "cancelled").exists()


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
    wait_for(lambda: all(arena.leased_count == 0 for arena in arenas))
    # Between models a block is lent: the server's own arenas hold what came from the client and no more.
    assert arenas[0].byte_size > 4_000_000
    assert [arena.byte_size for arena in arenas[1:]] == [16384, 16384]


def test_a_caller_that_was_restarted_again_and_again_leaves_nothing_in_the_model_it_calls(serve, tmp_path):
    write_caller(tmp_path, "a", "b")
    write_caller(tmp_path, "b")
    server = serve(tmp_path)
    values = [float(value) for value in range(1, 10_001)]
    caller = server.runtime.registry.find("a").instances[0]
    called = server.runtime.registry.find("b").instances[0].pid

    def mappings() -> int:
        return Path(f"/proc/{called}/maps").read_text().count("memfd:tritonpy")

    counts = []
    for _ in range(8):
        assert infer(server.http_port, "a", values)[-1] == 9_999
        counts.append(mappings())
        old = caller.pid
        os.kill(old, signal.SIGKILL)
        wait_for(lambda old=old: caller.is_ready and caller.pid != old)

    assert counts[-1] <= counts[1]


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
            await asyncio.wait_for(self.arrived.wait(), 10)
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
    assert server.runtime.registry.find("counting").stats.success_count == 3


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


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        threading.Event().wait(0.005)


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
            deadline = time.monotonic() + 10
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
    wait_for(lambda: list(flags.iterdir()))
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
    take = instance.take

    def cut(message):
        if message[0] == frame.EXECUTED and message[4] is not None:
            message = (*message[:4], [], *message[5:])
        take(message)

    monkeypatch.setattr(instance._worker, "_on_message", cut)

    with pytest.raises(RuntimeError, match="0 responses for a batch of 1 requests"):
        infer(server.http_port, "echo", [0])


def test_a_model_that_ends_its_process_while_it_is_loaded_is_not_started_again(serve, tmp_path):
    starts = tmp_path / "starts"
    models = tmp_path / "models"
    write_model(
        models,
        "quitter",
        f"""
import os


class TritonPythonModel:
    def initialize(self, args):
        with open({str(starts)!r}, "a") as file:
            file.write("x")
        os._exit(7)
""",
    )
    server = serve(models, exit_on_error=False)

    [row] = server.runtime.registry.index()
    assert "exited with code 7" in row["reason"]
    assert starts.read_text() == "x"
    tasks = asyncio.run_coroutine_threadsafe(names_of_tasks(), server._loop).result(10)
    assert not [name for name in tasks if "_restart" in name]


async def names_of_tasks() -> list[str]:
    return [repr(task) for task in asyncio.all_tasks()]
