"""Processes that a model forks, and what they want of the server."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from tritonpy.ipc import frame


@pytest.fixture
def load_forking(load):
    def load_forking(body, **options):
        return load(
            f"""
import multiprocessing, os, warnings
import numpy as np
import triton_python_backend_utils as pb_utils

warnings.simplefilter("ignore")  # newer Pythons warn of every fork where there are threads


def call(value):
    request = pb_utils.InferenceRequest(
        request_id=str(os.getpid()),
        model_name="other",
        inputs=[pb_utils.Tensor("X", np.full(value, value, np.float32))],
        requested_output_names=["Y"],
    )
    [output] = request.exec().output_tensors()
    return float(output.as_numpy().sum())


class TritonPythonModel:
    def execute(self, requests):
        fork = multiprocessing.get_context("fork")
{body}
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array(found, np.float32))])]
""",
            **options,
        )

    return load_forking


def answer_calls(worker, count):
    """Negate the input of so many calls."""
    for _ in range(count):
        number, _, decoupled, model, _, request = worker.expect(frame.CALL)
        assert (model, decoupled) == ("other", False)
        [(_, datatype, shape, data)] = request[8]
        values = -np.frombuffer(bytes(worker.endpoint.adopt(data)), np.float32)
        output = ("Y", datatype, shape, worker.endpoint.export(values.tobytes()))
        worker.send(frame.CALLED, number, ([output], None, None), True)


def outcome(worker):
    _, _, responses, error = worker.expect(frame.EXECUTED)
    assert error is None, error
    return worker.arrays(responses[0])["OUTPUT0"].tolist()


def test_children_of_a_pool_call_other_models_with_small_and_large_tensors(load_forking):
    worker = load_forking(
        """
        with fork.Pool(2) as pool:
            found = pool.map(call, [1, 2, 3, 100_000], chunksize=1)
"""
    )

    for _ in range(2):  # the second pool is forked where the first one has been ended
        worker.start(worker.request())
        answer_calls(worker, 4)
        assert outcome(worker) == [-1, -4, -9, -1e10]


def test_a_child_calls_beside_its_parent_and_its_own_child(load_forking):
    worker = load_forking(
        """
        def work(depth, results):
            if depth:
                child = fork.Process(target=work, args=(depth - 1, results))
                child.start()
            results.put(call(depth + 1))
            if depth:
                child.join()

        results = fork.SimpleQueue()
        work(2, results)
        found = sorted(results.get() for _ in range(3))
"""
    )

    worker.start(worker.request())
    answer_calls(worker, 3)
    assert outcome(worker) == [-9, -4, -1]


def test_what_a_child_waited_for_is_cancelled_when_it_is_killed(load_forking):
    worker = load_forking(
        """
        child = fork.Process(target=call, args=(1,))
        child.start()
        child.join()
        found = [child.exitcode]
"""
    )

    worker.start(worker.request())
    number, *_, request = worker.expect(frame.CALL)
    os.kill(int(request[1]), signal.SIGTERM)
    messages = [worker.receive() for _ in range(2)]

    assert [message[2] for message in messages if message[0] == frame.CANCEL] == [number]
    [executed] = [message for message in messages if message[0] == frame.EXECUTED]
    assert worker.arrays(executed[4][0])["OUTPUT0"].tolist() == [-signal.SIGTERM]


def test_a_call_of_a_child_with_more_than_there_is_memory_for_fails_alone(load_forking):
    worker = load_forking(
        """
        def attempt(count, results):
            request = pb_utils.InferenceRequest(
                model_name="other",
                inputs=[pb_utils.Tensor(name, np.ones(count, np.uint8)) for name in "XYZ"],
                requested_output_names=["Y"],
            )
            response = request.exec()
            exhausted = response.has_error() and "exhausted" in response.error().message()
            results.put(-1 if exhausted else 1)

        def work(results):
            attempt(1 << 20, results)
            attempt(1 << 10, results)

        results = fork.SimpleQueue()
        child = fork.Process(target=work, args=(results,))
        child.start()
        found = [results.get(), results.get()]
        child.join()
""",
        shared_memory=[2 << 20, 2 << 20, 2 << 20],
    )

    worker.start(worker.request())
    number, *_ = worker.expect(frame.CALL)
    worker.send(frame.CALLED, number, ([], None, None), True)
    assert outcome(worker) == [-1, 1]


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_child_cannot_send_responses_and_is_told_so(load_forking, decoupled):
    worker = load_forking(
        """
        sender = requests[0].get_response_sender()
        response = pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.zeros(1, np.float32))])

        def work(results):
            try:
                for _ in range(20):  # more than may be ahead of the client
                    sender.send(response)
            except pb_utils.TritonModelException as exc:
                results.put(str(exc))
            else:
                results.put("sent")

        results = fork.SimpleQueue()
        child = fork.Process(target=work, args=(results,))
        child.start()
        pb_utils.Logger.log_info(results.get())
        child.join()
        found = [child.exitcode]
"""
        + ("        return sender.send(response, 1)" if decoupled else ""),
        decoupled=decoupled,
    )

    worker.start(worker.request())
    response, executed = worker.receive(), worker.receive()
    assert (response[0], executed[0]) == (frame.RESPONSE, frame.EXECUTED)
    assert worker.arrays(response[3])["OUTPUT0"].tolist() == [0]
    assert [text for _, text, _ in worker.logs] == [
        "Unable to send response. This process was forked by the model's: only that one can send responses."
    ]


def test_a_child_logs_and_counts(load_forking):
    worker = load_forking(
        """
        self.family = pb_utils.MetricFamily("forked", "d", pb_utils.MetricFamily.COUNTER)
        metric = self.family.Metric()

        def work():
            pb_utils.Logger.log_info("from the child")
            metric.increment(2)

        child = fork.Process(target=work)
        child.start()
        child.join()
        found = [child.exitcode]
"""
    )

    worker.start(worker.request())
    for answer in ((7, "net_0_0"), (8, [])):
        number, *_ = worker.expect(frame.ASK)
        worker.send(frame.ANSWER, number, answer, None)
    messages = [worker.receive() for _ in range(2)]

    assert [text for _, text, _ in worker.logs] == ["from the child"]
    assert [message[2:] for message in messages if message[0] == frame.TELL] == [
        ("metrics.change", ([(8, False, 2.0)],))
    ]
