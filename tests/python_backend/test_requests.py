"""What a model sees of a request, and what it can make by hand."""

from __future__ import annotations

import json
import math

import grpc
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
    assert server.ask("request_fields.seen") == NOTHING


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
        ({"parameters": {"most": 2**63 - 1}}, {"parameters": {"most": 2**63 - 1}}),
        ({"parameters": {"least": -(2**63)}}, {"parameters": {"least": -(2**63)}}),
        ({"parameters": {"more": 2**63}}, {"parameters": {"more": 9.223372036854775808e18}}),
        ({"parameters": {"": 1, "a b": 2, "é": 3}}, {"parameters": {"": 1, "a b": 2, "é": 3}}),
        ({"parameters": {"headers": "x", "Triton_x": 1}}, {"parameters": {"headers": "x", "Triton_x": 1}}),
        ({"parameters": {"sequence_id": 2**64 - 1}}, {"correlation_id": 2**64 - 1}),
        ({"parameters": {"sequence_id": ""}}, {"correlation_id": ""}),
        ({"parameters": {"timeout": 2**64 - 1}}, {"timeout": 2**64 - 1}),
        ({"parameters": {"sequence_end": True}}, {"flags": 2}),
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
    assert server.ask("request_fields.seen", **sent) == {**NOTHING, **seen}


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
        ({"most": {"int64_param": 2**63 - 1}}, {"parameters": {"most": 2**63 - 1}}),
        ({"least": {"int64_param": -(2**63)}}, {"parameters": {"least": -(2**63)}}),
        ({"tiny": {"double_param": 5e-324}}, {"parameters": {"tiny": 5e-324}}),
        ({"whole": {"double_param": 2.0}}, {"parameters": {"whole": 2.0}}),
        ({"binary_data_output": {"bool_param": True}}, {"parameters": {"binary_data_output": True}}),
        ({"sequence_id": {"int64_param": -1}}, {"correlation_id": 2**64 - 1}),
        ({"sequence_id": {"string_param": ""}}, {"correlation_id": ""}),
        ({"timeout": {"int64_param": -5}}, {"timeout": 2**64 - 5}),
        ({"priority": {"uint64_param": 2**64 - 1}}, {}),
        ({"priority": {"int64_param": 3}, "mine": {"int64_param": 4}}, {"parameters": {"mine": 4}}),
        ({"triton_enable_empty_final_response": {"bool_param": True}}, {}),
    ],
    ids=str,
)
def test_a_model_sees_the_fields_of_a_request_over_grpc(server, parameters, seen):
    sent = server.grpc_infer("cases", {"CASE": ['["request_fields.seen"]']}, parameters=parameters, id="two")

    assert json.loads(sent.outputs["RESULT"][0]) == {**NOTHING, "id": "two", **seen}


@pytest.mark.parametrize("text", ["x" * 129, "é" * 65])
def test_a_text_for_a_sequence_has_at_most_128_bytes(server, text):
    with pytest.raises(grpc.RpcError) as refused:
        server.grpc_infer(
            "cases", {"CASE": ['["request_fields.seen"]']}, parameters={"sequence_id": {"string_param": text}}
        )
    answer = server.infer("cases", {"CASE": ['["request_fields.seen"]']}, parameters={"sequence_id": text})

    told = "string correlation ID cannot be longer than 128 characters"
    assert (answer.status, answer.error) == (501, told)
    assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNIMPLEMENTED, told)


@pytest.mark.ours("2.51 cuts texts at the first zero")
def test_texts_may_hold_zeros(server):
    over_http = server.ask("request_fields.seen", parameters={"text": "a\0b"})["parameters"]
    parameters = {"text": {"string_param": "a\0b"}}
    over_grpc = server.grpc_infer("cases", {"CASE": ['["request_fields.seen"]']}, parameters=parameters)

    assert over_http == {"text": "a\0b"}
    assert json.loads(over_grpc.outputs["RESULT"][0])["parameters"] == {"text": "a\0b"}


def test_parameters_are_json_text(server):
    assert server.ask("request_fields.type_of_parameters") == ["str", "{}"]
    assert server.ask("request_fields.type_of_parameters", parameters={"a": 1, "b": "t"}) == [
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
    assert server.ask("request_fields.by_name") == ["CASE", None]


def test_flags_can_be_changed(server):
    assert server.ask("request_fields.new_flags") == [0, 2]


def test_nobody_has_cancelled_a_request_that_is_waited_for(server):
    assert server.ask("request_fields.is_cancelled") is False


def test_a_request_has_one_response_sender(server):
    assert server.ask("request_fields.is_sender_the_same") is True


def test_constants_have_triton_s_numbers(server):
    assert server.ask("request_fields.constants") == [1, 1, 2, 1, 2]


def test_a_request_made_by_hand_shows_what_it_was_made_of(server):
    assert server.ask("request_fields.made_by_hand") == {
        "id": "one",
        "correlation_id": 3,
        "flags": 1,
        "timeout": 7,
        "parameters": {"text": "t", "flag": True, "number": 3},
        "requested": ["B", "C"],
        "inputs": [["A", [1]]],
    }


def test_responses_made_by_hand_show_what_they_were_made_of(server):
    good, bad, *counts = server.ask("request_fields.responses_made_by_hand")

    assert good == [False, None, ["OUT"]]
    assert bad == [True, "text", True]
    assert counts == [0, 0]


def test_errors_are_internal_unless_they_say_otherwise(server):
    assert server.ask("request_fields.errors_made_by_hand") == ["text", True, True, True]


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
    kind, _ = server.ask("request_fields.refused_responses")[what]

    assert kind == "TypeError"


def test_a_code_that_does_not_exist_is_refused(server):
    kind, _ = server.ask("request_fields.refused_responses")["code is a number"]

    assert kind == "TypeError"


def test_an_output_that_is_none_is_refused(server):
    text = "Output tensor for inference response should not be empty."

    assert server.ask("request_fields.refused_responses")["outputs hold None"] == [
        "TritonModelException",
        text,
    ]


@pytest.mark.parametrize(
    "argument",
    [
        {"timeout": -1},
        {"timeout": 2**64},
        {"flags": -1},
        {"flags": 2**32},
        {"model_version": 2**63},
        {"correlation_id": -1},
        {"correlation_id": 2**64},
    ],
    ids=str,
)
def test_a_request_made_by_hand_has_numbers_that_fit(server, argument):
    kind, _ = server.ask("request_fields.made_with", argument)

    # The real one has no text for a correlation id that does not fit.
    assert kind in ("TypeError", "RuntimeError" if not server.is_ours else "TypeError")


@pytest.mark.parametrize(
    "argument", [{"timeout": 2**64 - 1}, {"flags": 3}, {"correlation_id": 2**64 - 1}], ids=str
)
def test_a_request_made_by_hand_takes_the_largest_numbers(server, argument):
    [(name, value)] = argument.items()

    assert server.ask("request_fields.made_with", argument) == [name, value]


@pytest.mark.parametrize("what", ["error is None", "outputs are a tuple"])
def test_a_response_may_have_no_error_and_a_tuple_of_outputs(server, what):
    assert server.ask("request_fields.refused_responses")[what] == [None, ""]


PARAMETERS = {
    "number": 1,
    "text": "é",
    "flag": True,
    "off": False,
    "float": 1.5,
    "most": 2**64 - 1,
    "least": -(2**63),
    "": "unnamed",
    "sequence_id": 7,
    "not_a_number": math.nan,
    "infinite": -math.inf,
}
KINDS = {
    "number": "int64_param",
    "text": "string_param",
    "flag": "bool_param",
    "off": "bool_param",
    "float": "double_param",
    "most": "uint64_param",
    "least": "int64_param",
    "": "string_param",
    "sequence_id": "int64_param",
    "not_a_number": "double_param",
    "infinite": "double_param",
}


@pytest.mark.ours("responses have had parameters only since a release after 2.51")
def test_parameters_of_a_response_of_every_type_reach_the_client(server):
    steps = json.dumps([["last_value_with_parameters", PARAMETERS]])

    answer = server.infer("sends_once", {"STEPS": [steps]})
    unary = server.grpc_infer("sends_once", {"STEPS": [steps]})
    [streamed] = server.stream("sends", {"STEPS": [steps]})

    assert repr(answer.document["parameters"]) == repr(PARAMETERS)  # NaN differs from itself
    for sent in (unary, streamed):
        assert repr({name: sent.parameters[name] for name in PARAMETERS}) == repr(PARAMETERS)


@pytest.mark.ours("responses have had parameters only since a release after 2.51")
def test_parameters_of_a_response_have_their_types_over_grpc(server):
    steps = json.dumps([["last_value_with_parameters", PARAMETERS]])

    response = server.stub.ModelInfer(server.message("sends_once", {"STEPS": [steps]}), timeout=60)

    kinds = {name: each.WhichOneof("parameter_choice") for name, each in response.parameters.items()}
    assert kinds == KINDS


@pytest.mark.ours("responses have had parameters only since a release after 2.51")
def test_a_stream_s_own_parameter_is_not_a_model_s_to_set(server):
    steps = json.dumps([["last_value_with_parameters", {"triton_final_response": False}]])

    [streamed] = server.stream("sends", {"STEPS": [steps]})

    assert streamed.final is True


@pytest.mark.ours("responses have had parameters only since a release after 2.51")
@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_a_response_s_integers_have_at_most_64_bits(server, value):
    kind, text = server.ask("request_fields.response_with", value)

    assert kind == "TritonModelException"
    assert text == f"Expect parameters values to be integers of at most 64 bits, found {value} for 'key'"
