"""Models under test that answer by and by, run as coroutines, or take several turns."""

from __future__ import annotations

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

DECOUPLED = """
backend: "python"
model_transaction_policy { decoupled: true }
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "Y" data_type: TYPE_INT32 dims: 1 }
"""
DOUBLE = """
def execute(self, requests):
    return [answer(Y=array(request) * 2) for request in requests]
"""


def x(*rows):
    return {"X": np.array(rows, np.float32).reshape(len(rows), -1)}


def test_execute_may_be_a_coroutine(load):
    model = load("""
        async def execute(self, requests):
            await asyncio.sleep(0)
            return [answer(Y=array(request) * 2) for request in requests]
    """)

    assert model.infer(x([1, 2]))["Y"].tolist() == [[2, 4]]


async def test_so_it_may_where_the_test_is_one_itself(load):
    model = load("""
        async def execute(self, requests):
            if array(requests[0])[0, 0]:
                raise ValueError("not zero")
            return [answer(Y=array(request)) for request in requests]
    """)

    assert model.infer(x([0, 2]))["Y"].tolist() == [[0, 2]]
    with pytest.raises(ValueError, match="not zero"):
        model.infer(x([1, 2]))


COUNTDOWN = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        for number in range(int(array(request)[0]), 0, -1):
            sender.send(answer(Y=np.array([number], np.int32)))
        sender.send(flags=FINAL)
"""


def test_a_stream_gives_the_responses_of_a_decoupled_model(load):
    model = load(COUNTDOWN, DECOUPLED)

    assert [outputs["Y"].tolist() for outputs in model.stream({"X": [3]})] == [[3], [2], [1]]
    assert list(model.stream({"X": [0]})) == []


def test_a_stream_of_a_coroutine_is_read_while_it_runs(load):
    model = load(
        """
        async def execute(self, requests):
            self.go_on, self.loop = asyncio.Event(), asyncio.get_running_loop()
            sender = requests[0].get_response_sender()
            sender.send(answer(Y=np.array([1], np.int32)))
            await self.go_on.wait()
            sender.send(answer(Y=np.array([2], np.int32)), FINAL)
    """,
        DECOUPLED,
    )

    stream = model.stream({"X": [0]})
    first = next(stream)["Y"].tolist()
    model.python_object.loop.call_soon_threadsafe(model.python_object.go_on.set)

    assert first == [1]
    assert [outputs["Y"].tolist() for outputs in stream] == [[2]]
    assert next(stream, None) is None


def test_a_stream_may_be_cancelled(load):
    model = load(
        """
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            number = 0
            while not sender.is_cancelled():
                sender.send(answer(Y=np.array([number], np.int32)))
                number += 1
            sender.send(flags=FINAL)
    """,
        DECOUPLED,
    )

    stream = model.stream({"X": [0]})
    assert next(stream)["Y"].tolist() == [0]
    stream.cancel()

    numbers = [outputs["Y"].item() for outputs in stream]
    assert numbers == list(range(1, len(numbers) + 1))


def test_an_error_in_a_stream_is_raised_and_others_may_follow(load):
    model = load(
        """
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("hiccup")))
            sender.send(answer(Y=np.array([1], np.int32)), FINAL)
    """,
        DECOUPLED,
    )

    stream = model.stream({"X": [0]})

    with pytest.raises(pb_utils.TritonError, match="hiccup"):
        next(stream)
    assert next(stream)["Y"].tolist() == [1]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_exception_in_a_stream_is_the_models_own(load, kind):
    model = load(
        f"""
        {kind} execute(self, requests):
            requests[0].get_response_sender().send(answer(Y=np.array([1], np.int32)))
            raise KeyError("lost")
    """,
        DECOUPLED,
    )

    stream = model.stream({"X": [0]})

    assert next(stream)["Y"].tolist() == [1]
    with pytest.raises(KeyError, match="lost"):
        next(stream)
    assert list(stream) == []


def test_a_model_that_is_not_decoupled_streams_its_one_response(load):
    assert [outputs["Y"].tolist() for outputs in load(DOUBLE).stream(x([1, 2]))] == [[[2, 4]]]


def test_a_decoupled_model_is_to_be_streamed(load):
    with pytest.raises(TypeError, match=r"model 'net' is decoupled: .* call stream\(\)"):
        load(COUNTDOWN, DECOUPLED).infer({"X": [1]})


def test_a_decoupled_model_must_not_return_responses(load):
    model = load("def execute(self, requests): return [answer(Y=array(requests[0]))]", DECOUPLED)

    with pytest.raises(pb_utils.TritonError, match="using the decoupled mode and the execute function must"):
        next(model.stream({"X": [1]}))


ITERATIVE = (
    DECOUPLED.replace("decoupled: true", "decoupled: false")
    + "sequence_batching { iterative_sequence: true }"
)
STEPS = """
def initialize(self, args):
    self.flags, self.state = [], {}

def execute(self, requests):
    responses = []
    for request in requests:
        self.flags.append(request.flags())
        left = self.state.setdefault(request.correlation_id(), int(array(request)[0])) - 1
        self.state[request.correlation_id()] = left
        if left > 0:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            responses.append(None)
        else:
            responses.append(answer(Y=np.array([left], np.int32)))
    return responses
"""


def test_a_rescheduled_request_is_executed_again(load):
    model = load(STEPS, ITERATIVE)

    assert model.infer({"X": [3]})["Y"].tolist() == [0]
    assert model.python_object.flags == [pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, 0, 0]
    assert list(model.python_object.state) == [1]


def test_a_request_is_rescheduled_only_where_the_configuration_says_so(load):
    model = load(STEPS, DECOUPLED.replace("decoupled: true", "decoupled: false"))

    with pytest.raises(pb_utils.TritonError, match="rescheduled a request, which only a model with"):
        model.infer({"X": [3]})
