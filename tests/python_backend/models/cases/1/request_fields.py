"""What a model sees of its own request."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


def seen(request):
    return {
        "id": request.request_id(),
        "correlation_id": request.correlation_id(),
        "flags": request.flags(),
        "timeout": request.timeout(),
        "parameters": json.loads(request.parameters()),
        "requested": sorted(request.requested_output_names()),
        "inputs": [[tensor.name(), list(tensor.shape())] for tensor in request.inputs()],
    }


def is_cancelled(request):
    return request.is_cancelled()


def type_of_parameters(request):
    return [type(request.parameters()).__name__, request.parameters()]


def by_name(request):
    absent = pb_utils.get_input_tensor_by_name(request, "NOPE")
    return [pb_utils.get_input_tensor_by_name(request, "CASE").name(), absent]


def made_by_hand(request):
    """A request that is never sent."""
    made = pb_utils.InferenceRequest(
        request_id="one",
        correlation_id=3,
        inputs=[pb_utils.Tensor("A", np.zeros(1, np.float32))],
        requested_output_names=["B", "C"],
        model_name="net",
        model_version=2,
        flags=1,
        timeout=7,
        parameters={"text": "t", "flag": True, "number": 3},
    )
    return seen(made)


def made_with(request, argument):
    """What becomes of one argument of a request that is never sent."""
    try:
        made = pb_utils.InferenceRequest(inputs=[], requested_output_names=[], model_name="net", **argument)
    except Exception as exc:
        return [type(exc).__name__, str(exc)]
    [name] = argument
    return [name, getattr(made, name)()]


def response_with(request, value):
    """What becomes of a response with this parameter."""
    try:
        pb_utils.InferenceResponse([], parameters={"key": value})
    except Exception as exc:
        return [type(exc).__name__, str(exc)]


def responses_made_by_hand(request):
    tensor = pb_utils.Tensor("OUT", np.array([1, 2], np.int32))
    good = pb_utils.InferenceResponse(output_tensors=[tensor])
    bad = pb_utils.InferenceResponse(error=pb_utils.TritonError("text", pb_utils.TritonError.NOT_FOUND))
    return [
        [good.has_error(), good.error(), [each.name() for each in good.output_tensors()]],
        [bad.has_error(), bad.error().message(), bad.error().code() == pb_utils.TritonError.NOT_FOUND],
        len(bad.output_tensors()),
        len(pb_utils.InferenceResponse([]).output_tensors()),
    ]


def errors_made_by_hand(request):
    error = pb_utils.TritonError("text")
    keyword = pb_utils.TritonError(message="text", code=pb_utils.TritonError.CANCELLED)
    return [
        error.message(),
        error.code() == pb_utils.TritonError.INTERNAL,
        keyword.code() == pb_utils.TritonError.CANCELLED,
        issubclass(pb_utils.TritonModelException, Exception),
    ]


def refused_responses(request):
    """Which responses cannot be made."""
    tensor = pb_utils.Tensor("OUT", np.zeros(1, np.float32))
    found = {}
    for name, make in {
        "outputs are an array": lambda: pb_utils.InferenceResponse([np.zeros(1)]),
        "outputs are one tensor": lambda: pb_utils.InferenceResponse(tensor),
        "error is text": lambda: pb_utils.InferenceResponse(error="text"),
        "error is an exception": lambda: pb_utils.InferenceResponse(error=ValueError("text")),
        "message is a number": lambda: pb_utils.TritonError(3),
        "code is a number": lambda: pb_utils.TritonError("text", 99),
        "outputs hold None": lambda: pb_utils.InferenceResponse([None]),
        "error is None": lambda: pb_utils.InferenceResponse([tensor], None),
        "outputs are a tuple": lambda: pb_utils.InferenceResponse((tensor,)),
    }.items():
        try:
            make()
        except Exception as exc:
            found[name] = [type(exc).__name__, str(exc)]
        else:
            found[name] = [None, ""]
    return found


def constants(request):
    return [
        int(pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL),
        int(pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START),
        int(pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END),
        int(pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL),
        int(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE),
    ]


def new_flags(request):
    before = request.flags()
    request.set_flags(pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
    return [before, request.flags()]


def is_sender_the_same(request):
    return request.get_response_sender() is request.get_response_sender()
