"""What clients read when a model fails: while it is loaded, or with a request."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

PREFIX = "Failed to process the request(s) for model 'fails_0', message: "


def infer(server, how: str):
    return server.infer("fails", {"HOW": [[how]]})


def infer_both(server, *hows: str):
    """The answers to two requests that go together."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda how: server.infer("fails_in_pairs", {"HOW": [[how]]}), hows))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("value_error", "ValueError: boom"),
        ("model_exception", "TritonModelException: no such luck"),
        ("no_text", "RuntimeError: <EMPTY MESSAGE>"),
        ("two_lines", "RuntimeError: first\nsecond"),
    ],
)
def test_an_exception_fails_the_batch_and_says_where_it_was(server, how, message):
    answer = infer(server, how)

    assert answer.status == 500
    text, _, places = answer.error.partition("\n\nAt:\n")
    assert text == PREFIX + message
    first, second, last = places.split("\n")
    assert first.endswith(f"): {how}")
    assert "fails/1/model.py(" in first
    assert second.endswith("): execute")
    assert last == ""


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            "nothing",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n",
        ),
        (
            "too_many",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2\n",
        ),
        (
            "a_string",
            "Expected an 'InferenceResponse' object in the execute function return list, "
            "found type '<class 'str'>'.",
        ),
        ("a_tuple", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        ("a_dict", "Expected a list in the execute return, found type '<class 'dict'>'."),
    ],
)
def test_a_result_that_is_no_list_of_responses_fails_the_batch(server, how, message):
    answer = infer(server, how)

    assert (answer.status, answer.error) == (500, PREFIX + message)


@pytest.mark.parametrize(
    ("code", "status", "grpc_code"),
    [
        ("UNKNOWN", 400, grpc.StatusCode.UNKNOWN),
        ("INTERNAL", 500, grpc.StatusCode.INTERNAL),
        ("NOT_FOUND", 404, grpc.StatusCode.NOT_FOUND),
        ("INVALID_ARG", 400, grpc.StatusCode.INVALID_ARGUMENT),
        ("UNAVAILABLE", 503, grpc.StatusCode.UNAVAILABLE),
        ("UNSUPPORTED", 501, grpc.StatusCode.UNIMPLEMENTED),
        ("ALREADY_EXISTS", 400, grpc.StatusCode.ALREADY_EXISTS),
        ("CANCELLED", 400, grpc.StatusCode.CANCELLED),
    ],
)
def test_the_code_of_an_error_becomes_a_status_and_its_text_stays(server, code, status, grpc_code):
    answer = infer(server, code)
    with pytest.raises(grpc.RpcError) as refused:
        server.grpc_infer("fails", {"HOW": [[code]]})

    assert (answer.status, answer.error) == (status, f"{code}!")
    assert (refused.value.code(), refused.value.details()) == (grpc_code, f"{code}!")


def test_an_error_without_a_code_is_internal(server):
    answer = infer(server, "default_code")

    assert (answer.status, answer.error) == (500, "no code")


def test_a_response_with_an_error_has_no_outputs(server):
    answer = infer(server, "error_and_output")

    assert (answer.status, answer.error) == (500, "has both")


def test_one_request_of_a_batch_fails_alone(server):
    executions = server.settled_statistics("fails_in_pairs")["execution_count"]
    good, bad = infer_both(server, "fine", "NOT_FOUND")

    assert good.outputs == {"OUT": [1]}
    assert (bad.status, bad.error) == (404, "NOT_FOUND!")
    server.wait_for(lambda: server.statistics("fails_in_pairs")["execution_count"] == executions + 1)


def test_an_exception_fails_every_request_of_a_batch(server):
    answers = infer_both(server, "fine", "value_error")

    assert [answer.status for answer in answers] == [500, 500]


@pytest.mark.parametrize(
    ("how", "change"), [("value_error", (0, 1)), ("NOT_FOUND", (1, 0))], ids=["exception", "error response"]
)
def test_only_an_exception_is_counted_as_a_failure(server, how, change):
    def counts(found: dict[str, Any]) -> tuple[int, int]:
        phases = found["inference_stats"]
        return phases["success"]["count"], phases["fail"]["count"]

    successes, failures = counts(server.settled_statistics("fails"))
    infer(server, how)

    wanted = (successes + change[0], failures + change[1])
    server.wait_for(lambda: counts(server.statistics("fails")) == wanted)


def test_a_batch_may_be_answered_half_by_the_list_and_half_by_senders(server):
    listed, sent = infer_both(server, "fine", "by_sender")

    assert listed.outputs == {"OUT": [1]}
    assert sent.outputs == {"OUT": [5]}


@pytest.mark.ours("2.51 dies of it")
def test_an_exception_does_not_answer_again_what_a_sender_has_answered(server):
    unanswered, sent = infer_both(server, "fine", "sends_and_raises")

    assert (unanswered.status, sent.outputs) == (500, {"OUT": [5]})


def test_a_failed_batch_costs_the_model_nothing(server):
    assert infer(server, "value_error").status == 500
    assert infer(server, "fine").outputs == {"OUT": [1]}


class TestOutputs:
    def test_a_response_may_have_no_outputs(self, server):
        assert infer(server, "no_output").outputs == {}

    def test_an_output_that_is_not_configured_is_dropped(self, server):
        assert infer(server, "unknown_output").outputs == {"OUT": [1]}

    def test_an_output_keeps_its_own_shape(self, server):
        [output] = infer(server, "other_shape").document["outputs"]

        assert output["shape"] == [1, 3]

    def test_an_output_keeps_its_own_datatype(self, server):
        [output] = infer(server, "other_datatype").document["outputs"]

        assert output["datatype"] == "INT64"

    def test_an_output_may_come_twice(self, server):
        outputs = infer(server, "same_output_twice").document["outputs"]

        assert [(output["name"], output["data"]) for output in outputs] == [("OUT", [1]), ("OUT", [2])]


@pytest.mark.parametrize(
    ("model", "reason", "place"),
    [
        ("raises_in_initialize", "Internal: ValueError: no weights", "): initialize\n"),
        (
            "raises_in_completion",
            "Internal: TritonModelException: cannot complete",
            "): auto_complete_config\n",
        ),
        ("raises_on_import", "Internal: ImportError: no such framework", "): <module>\n"),
        (
            "has_no_class",
            "Internal: AttributeError: module '1.model' has no attribute 'TritonPythonModel'",
            "",
        ),
        (
            "completes_nothing",
            "Internal: auto_complete_config function in model 'completes_nothing' must return a valid "
            "pb.ModelConfig object.",
            "",
        ),
        (
            "contradicts_its_configuration",
            "Internal: ValueError: unable to load model 'contradicts_its_configuration', configuration "
            "expects datatype TYPE_FP32 for output 'OUT', model provides TYPE_INT64",
            "): auto_complete_config\n",
        ),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why_in_the_index_and_in_the_log(server, model, reason, place):
    state, found = server.index()[f"{model}/1"]

    text, _, places = found.partition("\n\nAt:\n")
    assert (state, text) == ("UNAVAILABLE", reason)
    assert place in places
    server.wait_for_log(re.escape(f"failed to load '{model}' version 1: {reason}"))


def test_a_model_that_cannot_be_loaded_is_not_there(server):
    answer = server.infer("raises_in_initialize", {})

    text = "Request for unknown model: 'raises_in_initialize' has no available versions"
    assert (answer.status, answer.error) == (404, text)
