"""Requests, responses and senders without a server, as in a model's own unit tests."""

from __future__ import annotations

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

X = pb_utils.Tensor("X", np.ones(2, np.float32))


def request(**changes):
    arguments = {"inputs": [X], "requested_output_names": ["Y"], "model_name": "net", **changes}
    return pb_utils.InferenceRequest(**arguments)


def test_a_request_shows_what_it_was_made_of():
    made = request(
        request_id="7", correlation_id="seq", flags=1, timeout=5, parameters={"a": 1, "b": "s", "c": True}
    )

    assert made.request_id() == "7"
    assert made.correlation_id() == "seq"
    assert made.flags() == pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
    assert made.timeout() == 5
    assert made.parameters() == '{"a": 1, "b": "s", "c": true}'
    assert made.requested_output_names() == {"Y"}
    assert made.inputs() == [X]
    assert made.trace().get_context() is None
    assert not made.is_cancelled()


def test_a_request_that_says_little_has_the_usual_values():
    made = request()

    assert (made.request_id(), made.correlation_id(), made.flags(), made.timeout()) == ("", 0, 0, 0)
    assert made.parameters() == "{}"


def test_flags_can_be_changed():
    made = request(request_id="7")

    made.set_flags(3)

    assert made.flags() == 3
    assert made.request_id() == "7"


def test_inputs_are_found_by_name():
    assert pb_utils.get_input_tensor_by_name(request(), "X") is X
    assert pb_utils.get_input_tensor_by_name(request(), "Z") is None


@pytest.mark.parametrize("missing", ["inputs", "requested_output_names", "model_name"])
def test_what_is_required_is_required(missing):
    with pytest.raises(TypeError, match="inputs, requested_output_names and model_name are required"):
        request(**{missing: None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": [5]}, "inputs must hold Tensors, got int"),
        ({"flags": "x"}, "flags must be an int, got str"),
        ({"timeout": 1.5}, "timeout must be an int, got float"),
        ({"request_id": 1}, "request_id must be a str, got int"),
        ({"trace": "t"}, "trace must be an InferenceTrace, got str"),
        ({"requested_output_names": [1]}, "an output's name must be a str, got int"),
        ({"requested_output_names": "Y"}, "requested_output_names must be a list of str, got str"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused(changes, message):
    with pytest.raises(TypeError, match=message):
        request(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"correlation_id": 1.5}, "Correlation ID must be integer or string"),
        ({"inputs": [None]}, "Input tensor for request with id '' and model name 'net' should not be empty."),
    ],
)
def test_what_cannot_travel_is_refused_in_triton_s_words(changes, message):
    with pytest.raises(pb_utils.TritonModelException, match=message):
        request(**changes)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({1: "x"}, "Expect parameters keys to have type str, found type <class 'int'>"),
        (
            {"x": []},
            "Expect parameters values to have type bool/int/float/str, found type <class 'list'>",
        ),
        ("x", "Expect parameters to be a dict, found type <class 'str'>"),
    ],
)
def test_parameters_that_cannot_travel_are_refused(parameters, message):
    for make in (request, pb_utils.InferenceResponse):
        with pytest.raises(pb_utils.TritonModelException) as failure:
            make(parameters=parameters)
        assert str(failure.value) == message


def test_a_response_shows_what_it_was_made_of():
    made = pb_utils.InferenceResponse(output_tensors=(X,), parameters={"a": 1.5})

    assert made.output_tensors() == [X]
    assert not made.has_error()
    assert made.error() is None
    assert made.parameters() == '{"a": 1.5}'
    assert pb_utils.get_output_tensor_by_name(made, "X") is X
    assert pb_utils.get_output_tensor_by_name(made, "Z") is None


def test_a_response_may_be_an_error():
    error = pb_utils.TritonError("not here", pb_utils.TritonError.NOT_FOUND)

    made = pb_utils.InferenceResponse([X], error)

    assert made.has_error()
    assert made.error() is error
    assert made.output_tensors() == [X]
    assert pb_utils.get_output_tensor_by_name(made, "X") is None


def test_a_response_holds_tensors_and_an_error_only():
    with pytest.raises(TypeError, match="output_tensors must hold Tensors, got int"):
        pb_utils.InferenceResponse([1])
    with pytest.raises(TypeError, match="error must be a TritonError, got str"):
        pb_utils.InferenceResponse([], "failed")
    with pytest.raises(
        pb_utils.TritonModelException, match="Output tensor for inference response should not"
    ):
        pb_utils.InferenceResponse([None])


def test_an_error_is_internal_unless_it_says_otherwise():
    error = pb_utils.TritonError("oops")

    assert error.code() == pb_utils.TritonError.INTERNAL == 1
    assert error.message() == str(error) == "oops"


def test_the_codes_have_tritons_numbers():
    error = pb_utils.TritonError

    assert [error.UNKNOWN, error.INTERNAL, error.NOT_FOUND, error.INVALID_ARG] == [0, 1, 2, 3]
    assert [error.UNAVAILABLE, error.UNSUPPORTED, error.ALREADY_EXISTS, error.CANCELLED] == [4, 5, 6, 7]


def test_an_error_without_a_text_is_refused():
    with pytest.raises(TypeError, match="message must be a str, got int"):
        pb_utils.TritonError(5)


def test_a_sender_without_a_server_checks_what_is_sent():
    sender = request().get_response_sender()

    sender.send(pb_utils.InferenceResponse([X]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    assert not sender.is_cancelled()
    with pytest.raises(pb_utils.TritonModelException, match="Response sender has been closed"):
        sender.send(pb_utils.InferenceResponse([X]))


def test_a_request_has_one_sender():
    made = request()

    assert made.get_response_sender() is made.get_response_sender()


def test_log_lines_go_to_standard_error_without_a_server(capsys):
    pb_utils.Logger.log_info("one")
    pb_utils.Logger.log("two", pb_utils.Logger.WARNING)
    pb_utils.Logger.log_error("three")
    pb_utils.Logger.log_verbose("four")

    assert capsys.readouterr().err == "INFO: one\nWARNING: two\nERROR: three\nVERBOSE: four\n"


def test_only_text_can_be_logged():
    with pytest.raises(TypeError, match="message must be a str, got int"):
        pb_utils.Logger.log_info(5)


def test_the_model_directory_is_unknown_without_a_server():
    with pytest.raises(pb_utils.TritonModelException, match="only in a process that a server started"):
        pb_utils.get_model_dir()


def test_calls_of_other_models_need_a_server():
    request = pb_utils.InferenceRequest(inputs=[], requested_output_names=[], model_name="other")

    with pytest.raises(pb_utils.TritonModelException, match=r"InferenceRequest\.exec needs a server"):
        request.exec()
    with pytest.raises(RuntimeError, match="no running event loop"):
        request.async_exec()


def test_release_flags_are_checked():
    request = pb_utils.InferenceRequest(inputs=[], requested_output_names=[], model_name="other")

    request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
    with pytest.raises(pb_utils.TritonModelException, match="unsupported flags 7"):
        request.set_release_flags(7)


@pytest.mark.parametrize("arguments", [("CPU",), (pb_utils.TRITONSERVER_MEMORY_GPU, "0")])
def test_a_memory_preference_is_of_the_right_types(arguments):
    with pytest.raises(TypeError, match="PreferredMemory: "):
        pb_utils.PreferredMemory(*arguments)
