"""Models under test that call other models (BLS), which are functions or models under test themselves."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

CONFIG = """
backend: "python"
max_batch_size: 4
input { name: "X" data_type: TYPE_FP32 dims: 2 }
output { name: "Y" data_type: TYPE_FP32 dims: 2 }
"""
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
COUNTDOWN = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        for number in range(int(array(request)[0]), 0, -1):
            sender.send(answer(Y=np.array([number], np.int32)))
        sender.send(flags=FINAL)
"""


def x(*rows):
    return {"X": np.array(rows, np.float32).reshape(len(rows), -1)}


CALLER = """
def execute(self, requests):
    responses = []
    for request in requests:
        call = pb_utils.InferenceRequest(
            model_name="other", requested_output_names=["Y"], inputs=request.inputs()
        )
        response = call.exec()
        self.ready = pb_utils.is_model_ready("other")
        if response.has_error():
            self.error = response.error()
            raise pb_utils.TritonModelException(response.error().message())
        responses.append(answer(Y=pb_utils.get_output_tensor_by_name(response, "Y").as_numpy() + 1))
    return responses
"""


def test_a_call_goes_to_the_function_that_stands_for_the_model(load):
    seen = []

    def other(inputs):
        seen.append(inputs["X"].tolist())
        return {"Y": inputs["X"] * 10, "Z": [1.0]}

    model = load(CALLER, models={"other": other})

    assert model.infer(x([1, 2]))["Y"].tolist() == [[11, 21]]
    assert seen == [[[1, 2]]]
    assert model.python_object.ready


def test_a_call_goes_to_a_loaded_model(load):
    model = load(CALLER, models={"other": load(DOUBLE, name="other")})

    assert model.infer(x([1, 2]))["Y"].tolist() == [[3, 5]]


def refuses(inputs):
    raise pb_utils.TritonError("closed today", pb_utils.TritonError.UNAVAILABLE)


def breaks(inputs):
    raise RuntimeError("out of order")


@pytest.mark.parametrize(
    ("other", "code", "message"),
    [
        (None, "NOT_FOUND", r"Request for unknown model: 'other' is not found"),
        (refuses, "UNAVAILABLE", "closed today"),
        (
            breaks,
            "INTERNAL",
            r"Failed to process the request\(s\) for model 'other', message: RuntimeError: out",
        ),
        (
            lambda inputs: [1],
            "INTERNAL",
            "the function that stands for model 'other' gave list, expected a dict",
        ),
        (lambda inputs: iter([]), "INTERNAL", "Please use 'decoupled=True' argument to the 'exec'"),
    ],
)
def test_a_call_that_fails_is_answered_with_an_error(load, other, code, message):
    model = load(CALLER, models={} if other is None else {"other": other})

    with pytest.raises(pb_utils.TritonModelException, match=message):
        model.infer(x([1, 2]))
    assert model.python_object.error.code() == getattr(pb_utils.TritonError, code)


def test_a_loaded_model_that_is_called_refuses_what_does_not_fit(load):
    other = load(DOUBLE, CONFIG.replace("dims: 2", "dims: 3"), name="other")
    model = load(CALLER, models={"other": other})

    with pytest.raises(
        pb_utils.TritonModelException, match="unexpected shape for input 'X' for model 'other'"
    ):
        model.infer(x([1, 2]))


def test_an_exception_in_a_called_model_reaches_the_caller_as_a_server_words_it(load):
    other = load("def execute(self, requests): raise ValueError('bad weights')", name="other")
    model = load(CALLER, models={"other": other})

    with pytest.raises(pb_utils.TritonModelException) as failure:
        model.infer(x([1, 2]))
    file = other.python_object.execute.__code__.co_filename
    assert str(failure.value) == (
        "Failed to process the request(s) for model 'other_0', message: ValueError: bad weights\n\n"
        f"At:\n  {file}(18): execute\n"
    )


def test_a_call_that_would_wait_for_itself_is_refused(load):
    models = {}
    caller = load(CALLER, models={"other": lambda inputs: models["middle"].infer(inputs)})
    models["middle"] = load(CALLER, name="middle", models={"other": caller})

    text = r"the call would wait for itself for ever \('net' waits for 'middle' waits for 'net'\)"
    with pytest.raises(pb_utils.TritonModelException, match=text):
        caller.infer(x([1, 2]))


def test_a_called_model_that_has_been_finalized_says_so(load):
    other = load(DOUBLE, name="other")
    model = load(CALLER, models={"other": other})
    other.finalize()

    with pytest.raises(pb_utils.TritonModelException, match="model 'other' has been finalized"):
        model.infer(x([1, 2]))


def test_calls_may_run_at_the_same_time(load):
    both_run = threading.Barrier(2)

    def other(inputs):
        both_run.wait(20)
        return {"Y": inputs["X"]}

    model = load(
        """
        async def execute(self, requests):
            calls = [
                pb_utils.InferenceRequest(
                    model_name="other", requested_output_names=["Y"], inputs=request.inputs()
                ).async_exec()
                for request in requests
            ]
            responses = await asyncio.gather(*calls)
            return [answer(Y=response.output_tensors()[0].as_numpy()) for response in responses]
    """,
        models={"other": other},
    )

    first, second = model.infer_batch([x([1, 2]), x([3, 4])])

    assert [first["Y"].tolist(), second["Y"].tolist()] == [[[1, 2]], [[3, 4]]]


STREAM_CALLER = """
def execute(self, requests):
    call = pb_utils.InferenceRequest(
        model_name="other", requested_output_names=["Y"], inputs=requests[0].inputs()
    )
    seen = [
        [tensor.as_numpy().tolist() for tensor in response.output_tensors()]
        for response in call.exec(decoupled=True)
    ]
    return [answer(LOUD=np.array([json.dumps(seen)], object)) for _ in requests]
"""
STREAM_CONFIG = """
backend: "python"
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "LOUD" data_type: TYPE_STRING dims: 1 }
"""


def test_calls_of_decoupled_models_give_all_responses(load):
    def other(inputs):
        for number in range(inputs["X"].item(), 0, -1):
            yield {"Y": np.array([number], np.int32)}

    stood_for = load(STREAM_CALLER, STREAM_CONFIG, models={"other": other})
    called = load(
        STREAM_CALLER, STREAM_CONFIG, name="two", models={"other": load(COUNTDOWN, DECOUPLED, name="other")}
    )

    # A server shows the final flag that comes alone as a response without outputs.
    for model in (stood_for, called):
        assert model.infer({"X": [2]})["LOUD"].tolist() == [b"[[[2]], [[1]], []]"]


def test_models_cannot_be_loaded_from_a_model_under_test(load):
    model = load("""
        def execute(self, requests):
            pb_utils.load_model("third")
    """)

    with pytest.raises(pb_utils.TritonModelException, match=r"has only the models it was given .*'third'"):
        model.infer(x([1, 2]))


def test_metrics_can_be_read_and_are_each_models_own(load):
    body = """
        def initialize(self, args):
            family = pb_utils.MetricFamily("requests_seen", "Requests.", pb_utils.MetricFamily.COUNTER)
            self.family, self.seen = family, family.Metric(labels={})

        def execute(self, requests):
            self.seen.increment(len(requests))
            return [answer(Y=array(request)) for request in requests]
    """
    one, other = load(body), load(body, name="other")

    one.infer(x([1, 2]))

    assert one.python_object.seen.value() == 1
    assert other.python_object.seen.value() == 0
