"""Calls of other models."""

import json
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


def described(response):
    """What there is to see of a response."""
    error = response.error()
    return {
        "has_error": response.has_error(),
        "error": None if error is None else error.message(),
        "code": None if error is None else CODES.index(error.code()),
        "outputs": {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()},
    }


CODES = [
    pb_utils.TritonError.UNKNOWN,
    pb_utils.TritonError.INTERNAL,
    pb_utils.TritonError.NOT_FOUND,
    pb_utils.TritonError.INVALID_ARG,
    pb_utils.TritonError.UNAVAILABLE,
    pb_utils.TritonError.UNSUPPORTED,
    pb_utils.TritonError.ALREADY_EXISTS,
    pb_utils.TritonError.CANCELLED,
]


def row(name, *values):
    return pb_utils.Tensor(name, np.array([values], np.float32))


def vector(name, *values):
    return pb_utils.Tensor(name, np.array(values, np.float32))


def adding(**more):
    return pb_utils.InferenceRequest(
        **{
            "model_name": "add",
            "requested_output_names": ["SUM", "DIFFERENCE"],
            "inputs": [row("A", 3, 4), row("B", 1, 2)],
            **more,
        }
    )


def call(request):
    return described(adding().exec())


def read_by_name(request):
    response = adding().exec()
    found = pb_utils.get_output_tensor_by_name(response, "SUM")
    absent = pb_utils.get_output_tensor_by_name(response, "NOPE")
    return [found.name(), found.as_numpy().tolist(), list(found.shape()), found.is_cpu(), absent]


def chained(request):
    first = adding().exec()
    inputs = []
    for name, source in (("A", "SUM"), ("B", "DIFFERENCE")):
        array = pb_utils.get_output_tensor_by_name(first, source).as_numpy()
        inputs.append(pb_utils.Tensor(name, array))
    return described(adding(inputs=inputs).exec())


def one_output(request):
    return described(adding(requested_output_names=["DIFFERENCE"]).exec())


def no_outputs(request):
    return described(adding(requested_output_names=[]).exec())


def unknown_output(request):
    return described(adding(requested_output_names=["SUM", "NOPE"]).exec())


def version(request, number):
    return mirrored(**({} if number is None else {"model_version": number}))


def unknown_model(request):
    return described(adding(model_name="nope").exec())


def broken_model(request):
    return described(adding(model_name="raises_in_initialize").exec())


def unknown_input(request):
    return described(adding(inputs=[row("A", 1, 2), row("B", 1, 2), row("C", 1, 2)]).exec())


def missing_input(request):
    return described(adding(inputs=[row("A", 1, 2)]).exec())


def bad_shape(request):
    return described(adding(inputs=[row("A", 1, 2, 3), row("B", 1, 2)]).exec())


def bad_datatype(request):
    integers = pb_utils.Tensor("A", np.array([[1, 2]], np.int32))
    return described(adding(inputs=[integers, row("B", 1, 2)]).exec())


def batch_too_large(request):
    rows = np.zeros((5, 2), np.float32)
    return described(adding(inputs=[pb_utils.Tensor(name, rows) for name in "AB"]).exec())


def failing(request, how):
    text = pb_utils.Tensor("HOW", np.array([[how.encode()]], object))
    asking = pb_utils.InferenceRequest(model_name="fails", requested_output_names=["OUT"], inputs=[text])
    return described(asking.exec())


def mirrored(**more):
    asking = pb_utils.InferenceRequest(
        **{"model_name": "mirror", "requested_output_names": ["SEEN"], "inputs": [vector("ANY", 1)], **more}
    )
    response = asking.exec()
    if response.has_error():
        return described(response)
    return json.loads(pb_utils.get_output_tensor_by_name(response, "SEEN").as_numpy()[0])


def passed_on(request, more):
    return mirrored(**more)


def flags_set_later(request):
    asking = pb_utils.InferenceRequest(
        model_name="mirror", requested_output_names=["SEEN"], inputs=[vector("ANY", 1)], correlation_id=5
    )
    asking.set_flags(pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START)
    response = asking.exec()
    return json.loads(pb_utils.get_output_tensor_by_name(response, "SEEN").as_numpy()[0])["flags"]


def same_request_twice(request):
    asking = adding()
    return [described(asking.exec()), described(asking.exec())]


def with_trace(request):
    return described(adding(trace=request.trace()).exec())


def with_preferred_memory(request):
    cpu = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU)
    response = adding(preferred_memory=cpu).exec()
    return [described(response), [tensor.is_cpu() for tensor in response.output_tensors()]]


def from_a_thread(request):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(described(adding().exec()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def sending(*steps):
    """A request to a model that does what it is told with its response sender."""
    text = pb_utils.Tensor("STEPS", np.array([json.dumps(steps)], object))
    return pb_utils.InferenceRequest(model_name="sends", requested_output_names=["VALUE"], inputs=[text])


def repeating(*values):
    steps = [
        ["value", value] if value >= 0 else ["error", f"{value} is negative", "INVALID_ARG"]
        for value in values
    ]
    return sending(*steps, ["final"])


def without_saying_decoupled(request):
    return described(repeating(1).exec())


def last_response_has_the_flag(request):
    responses = sending(["value", 1], ["last_value", 2]).exec(decoupled=True)
    return [described(response) for response in responses]


def responses(request, *values):
    return [described(response) for response in repeating(*values).exec(decoupled=True)]


def responses_of_a_plain_model(request):
    return [described(response) for response in adding().exec(decoupled=True)]


def responses_of_an_unknown_model(request):
    return [described(response) for response in adding(model_name="nope").exec(decoupled=True)]


def iterated_twice(request):
    responses = repeating(1, 2).exec(decoupled=True)
    return [[described(response)["outputs"] for response in responses] for _ in range(2)]


def next_by_hand(request):
    iterator = iter(repeating(7).exec(decoupled=True))
    seen = []
    try:
        while True:
            seen.append(described(next(iterator))["outputs"])
    except StopIteration:
        return seen


def half_read(request):
    """Leaves responses unread, and calls again."""
    for response in repeating(1, 2, 3).exec(decoupled=True):
        first = described(response)["outputs"]
        break
    return [first, described(adding().exec())["outputs"]]


def cancelled(request):
    """Gives up a call of a model that sends until it is told to stop."""
    responses = sending(["later"], ["ticks"], ["final"]).exec(decoupled=True)
    count = 0
    for response in responses:
        count += len(response.output_tensors())
        if count == 3:
            responses.cancel()
    return count


def large(request, count):
    """Sends and receives `count` floats."""
    values = np.arange(count, dtype=np.float32)
    asking = pb_utils.InferenceRequest(
        model_name="echo", requested_output_names=["FP32_OUT"], inputs=[pb_utils.Tensor("FP32_IN", values)]
    )
    [output] = asking.exec().output_tensors()
    return bool((output.as_numpy() == values).all()) and list(output.shape()) == [count]


def texts(request, *values):
    elements = np.array([value.encode() for value in values], object)
    asking = pb_utils.InferenceRequest(
        model_name="echo",
        requested_output_names=["BYTES_OUT"],
        inputs=[pb_utils.Tensor("BYTES_IN", elements)],
    )
    [output] = asking.exec().output_tensors()
    return [element.decode() for element in output.as_numpy()]


def large_texts(request, count):
    elements = np.array([b"x" * (index % 100) for index in range(count)], object)
    asking = pb_utils.InferenceRequest(
        model_name="echo",
        requested_output_names=["BYTES_OUT"],
        inputs=[pb_utils.Tensor("BYTES_IN", elements)],
    )
    [output] = asking.exec().output_tensors()
    return output.as_numpy().tolist() == elements.tolist()


def own_input(request):
    """Hands its own input tensor on, under its own name."""
    tensor = pb_utils.get_input_tensor_by_name(request, "CASE")
    asking = pb_utils.InferenceRequest(
        model_name="echo",
        requested_output_names=["BYTES_OUT"],
        inputs=[pb_utils.Tensor("BYTES_IN", tensor.as_numpy())],
    )
    [output] = asking.exec().output_tensors()
    return output.as_numpy()[0].decode()


def ensemble(request):
    return described(adding(model_name="doubled", requested_output_names=["DOUBLE"]).exec())


def refusals(request, what):
    """The type and text of what making a certain request raises."""
    tensor = row("A", 1, 2)
    good = {"model_name": "add", "requested_output_names": ["SUM"], "inputs": [tensor]}
    bad = {
        "no arguments": {},
        "no model": {key: value for key, value in good.items() if key != "model_name"},
        "no outputs": {key: value for key, value in good.items() if key != "requested_output_names"},
        "no inputs": {key: value for key, value in good.items() if key != "inputs"},
        "inputs are arrays": {**good, "inputs": [np.zeros(2)]},
        "inputs are no list": {**good, "inputs": 3},
        "inputs hold None": {**good, "inputs": [None]},
        "model is a number": {**good, "model_name": 3},
        "outputs are numbers": {**good, "requested_output_names": [1]},
        "version is text": {**good, "model_version": "1"},
        "timeout is text": {**good, "timeout": "1"},
        "flags are text": {**good, "flags": "1"},
        "id is a number": {**good, "request_id": 1},
        "correlation id is a float": {**good, "correlation_id": 1.5},
        "parameters are a list": {**good, "parameters": [1]},
        "a parameter is a list": {**good, "parameters": {"a": [1]}},
        "a parameter is None": {**good, "parameters": {"a": None}},
        "a parameter's name is a number": {**good, "parameters": {1: 1}},
        "trace is text": {**good, "trace": "1"},
        "preferred memory is a number": {**good, "preferred_memory": 1},
        "an unknown argument": {**good, "nope": 1},
    }
    try:
        pb_utils.InferenceRequest(**bad[what])
    except Exception as exc:
        return [type(exc).__name__, str(exc)]
    return [None, ""]
