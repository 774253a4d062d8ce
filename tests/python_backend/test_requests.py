"""What a model sees of a request, and what it can make by hand."""

from __future__ import annotations

import json

import pytest

NOTHING = {
    "id": "",
    "correlation_id": 0,
    "flags": 0,
    "timeout": 0,
    "parameters": {},
    "requested": ["RESULT"],
    "inputs": [["CASE", [1]]],
}


def test_a_plain_request_shows_what_it_is_and_nothing_else(server):
    assert server.ask("requests.seen") == NOTHING


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ({"id": "one"}, {"id": "one"}),
        ({"outputs": [{"name": "RESULT"}]}, {}),
        (
            {
                "parameters": {
                    "number": 1,
                    "text": "é",
                    "flag": True,
                    "float": 1.5,
                    "negative": -3,
                    "empty": "",
                }
            },
            {
                "parameters": {
                    "number": 1,
                    "text": "é",
                    "flag": True,
                    "float": 1.5,
                    "negative": -3,
                    "empty": "",
                }
            },
        ),
        ({"parameters": {"large": 2**40}}, {"parameters": {"large": 2**40}}),
        ({"parameters": {"sequence_id": 5}}, {"correlation_id": 5}),
        ({"parameters": {"sequence_id": "five"}}, {"correlation_id": "five"}),
        (
            {"parameters": {"sequence_id": 5, "sequence_start": True, "sequence_end": True}},
            {"correlation_id": 5, "flags": 3},
        ),
        ({"parameters": {"timeout": 5_000_000}}, {"timeout": 5_000_000}),
        ({"parameters": {"priority": 0, "mine": 1}}, {"parameters": {"mine": 1}}),
    ],
    ids=str,
)
def test_a_model_sees_the_fields_of_a_request_over_http(server, sent, seen):
    assert server.ask("requests.seen", **sent) == {**NOTHING, **seen}


@pytest.mark.parametrize(
    ("parameters", "seen"),
    [
        (
            {"number": {"int64_param": -7}, "text": {"string_param": "é"}, "flag": {"bool_param": True}},
            {"parameters": {"number": -7, "text": "é", "flag": True}},
        ),
        ({"float": {"double_param": 1.5}}, {"parameters": {"float": 1.5}}),
        (
            {"sequence_id": {"int64_param": 9}, "sequence_start": {"bool_param": True}},
            {"correlation_id": 9, "flags": 1},
        ),
        ({"sequence_id": {"string_param": "nine"}}, {"correlation_id": "nine"}),
        ({"timeout": {"int64_param": 5_000_000}}, {"timeout": 5_000_000}),
    ],
    ids=str,
)
def test_a_model_sees_the_fields_of_a_request_over_grpc(server, parameters, seen):
    sent = server.grpc_infer("cases", {"CASE": ['["requests.seen"]']}, parameters=parameters, id="two")

    assert json.loads(sent.outputs["RESULT"][0]) == {**NOTHING, "id": "two", **seen}


def test_parameters_are_json_text(server):
    assert server.ask("requests.type_of_parameters") == ["str", "{}"]
    assert server.ask("requests.type_of_parameters", parameters={"a": 1, "b": "t"}) == [
        "str",
        '{"a":1,"b":"t"}',
    ]


def test_a_model_sees_which_outputs_the_client_wants(server):
    answer = server.infer("mirror", {"ANY": [1]}, outputs=[{"name": "SEEN"}])
    everything = server.infer("mirror", {"ANY": [1]})

    assert json.loads(answer.outputs["SEEN"][0])["requested"] == ["SEEN"]
    assert list(answer.outputs) == ["SEEN"]
    assert json.loads(everything.outputs["SEEN"][0])["requested"] == ["OTHER", "SEEN"]
    assert sorted(everything.outputs) == ["OTHER", "SEEN"]


def test_inputs_are_found_by_name(server):
    assert server.ask("requests.by_name") == ["CASE", None]


def test_flags_can_be_changed(server):
    assert server.ask("requests.new_flags") == [0, 2]


def test_nobody_has_cancelled_a_request_that_is_waited_for(server):
    assert server.ask("requests.is_cancelled") is False


def test_a_request_has_one_response_sender(server):
    assert server.ask("requests.is_sender_the_same") is True


def test_constants_have_triton_s_numbers(server):
    assert server.ask("requests.constants") == [1, 1, 2, 1, 2]


def test_a_request_made_by_hand_shows_what_it_was_made_of(server):
    assert server.ask("requests.made_by_hand") == {
        "id": "one",
        "correlation_id": 3,
        "flags": 1,
        "timeout": 7,
        "parameters": {"text": "t", "flag": True, "number": 3},
        "requested": ["B", "C"],
        "inputs": [["A", [1]]],
    }


def test_responses_made_by_hand_show_what_they_were_made_of(server):
    good, bad, *counts = server.ask("requests.responses_made_by_hand")

    assert good == [False, None, ["OUT"]]
    assert bad == [True, "text", True]
    assert counts == [0, 0]


def test_errors_are_internal_unless_they_say_otherwise(server):
    assert server.ask("requests.errors_made_by_hand") == ["text", True, True, True]


@pytest.mark.parametrize(
    "what",
    [
        "outputs are an array",
        "outputs are one tensor",
        "error is text",
        "error is an exception",
        "message is a number",
    ],
)
def test_responses_and_errors_of_wrong_types_cannot_be_made(server, what):
    kind, _ = server.ask("requests.refused_responses")[what]

    assert kind == "TypeError"


def test_a_code_that_does_not_exist_is_refused(server):
    kind, _ = server.ask("requests.refused_responses")["code is a number"]

    assert kind == ("ValueError" if server.is_ours else "TypeError")


def test_an_output_that_is_none_is_refused(server):
    text = "Output tensor for inference response should not be empty."

    assert server.ask("requests.refused_responses")["outputs hold None"] == ["TritonModelException", text]


@pytest.mark.parametrize("what", ["error is None", "outputs are a tuple"])
def test_a_response_may_have_no_error_and_a_tuple_of_outputs(server, what):
    assert server.ask("requests.refused_responses")[what] == [None, ""]


@pytest.mark.ours("responses have had parameters only since a release after 2.51")
def test_parameters_of_a_response_reach_the_client(server):
    parameters = {"number": 1, "text": "é", "flag": True, "float": 1.5}
    steps = json.dumps([["last_value_with_parameters", parameters]])

    answer = server.infer("sends_once", {"STEPS": [steps]})
    [sent] = server.stream("sends", {"STEPS": [steps]})

    assert answer.document["parameters"] == parameters
    assert {name: sent.parameters[name] for name in parameters} == parameters
