"""Generate over HTTP: how bodies become requests and responses become bodies, beside the real server."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

MODELS = Path(__file__).with_name("generate_models")
MISSHAPEN = "The schema can not convert input '{}' to tensor with proper shape"
NOT_BYTES = "Unable to parse JSON bytes array: attempt to access JSON non-string as string"
NO_PARAMETER = "parameter '{}' has invalid type. It should be either 'int', 'bool', or 'string'."
NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates "
    "various number of responses"
)


def ask(
    port: int, path: str, body: bytes | dict[str, Any], headers: dict[str, str] | None = None
) -> tuple[int, str, bytes]:
    """Status, content type and body of a POST."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", f"/v2/models/{path}", sent, headers or {})
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read()
    finally:
        connection.close()


@dataclass(frozen=True)
class Seen:
    """A body, and what the model must see of it.

    Attributes:
        body: what is sent.
        inputs: shape and elements by name.
        parameters: the custom parameters.
        model: that is asked.
        id: of the request.
    """

    body: bytes | dict[str, Any]
    inputs: dict[str, list[Any]] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    model: str = "echo"
    id: str = ""


BATCHED = "echo_batched"
SEEN = {
    "nothing": Seen({}),
    "a string": Seen({"text": "hi"}, {"text": [[1], ["hi"]]}),
    "a string in an array": Seen({"text": ["hi"]}, {"text": [[1], ["hi"]]}),
    "no ASCII": Seen({"text": "é\n\U0001f600"}, {"text": [[1], ["é\n\U0001f600"]]}),
    "several strings": Seen({"texts": ["a", ""]}, {"texts": [[2], ["a", ""]]}),
    "a fixed shape": Seen({"pair": [1, 2.5]}, {"pair": [[2], [1.0, 2.5]]}),
    "two fixed dimensions": Seen({"grid": [1, 2, 3, 4, 5, 6]}, {"grid": [[2, 3], [1, 2, 3, 4, 5, 6]]}),
    "a scalar for a variable dimension": Seen({"many": 5}, {"many": [[1], [5]]}),
    "nothing for a variable dimension": Seen({"many": []}, {"many": [[0], []]}),
    "the last variable dimension takes all": Seen(
        {"mixed": [1, 2, 3, 4]}, {"mixed": [[1, 2, 2], [1, 2, 3, 4]]}
    ),
    "nothing beside a fixed dimension": Seen({"mixed": []}, {"mixed": [[1, 2, 0], []]}),
    "nested as many as counted": Seen({"many": [[1], 2]}, {"many": [[2], [1, 2]]}),
    "a batch of one": Seen({"pair": [1, 2]}, {"pair": [[1, 2], [1, 2]]}, model=BATCHED),
    "a batch of two": Seen({"pair": [1, 2, 3, 4]}, {"pair": [[2, 2], [1, 2, 3, 4]]}, model=BATCHED),
    "a batch of strings": Seen({"text": ["a", "b"]}, {"text": [[2, 1], ["a", "b"]]}, model=BATCHED),
    "a variable dimension of a batch": Seen(
        {"many": [1, 2, 3]}, {"many": [[1, 3], [1, 2, 3]]}, model=BATCHED
    ),
    "two dimensions of a batch": Seen({"grid": [0] * 12}, {"grid": [[2, 2, 3], [0] * 12]}, model=BATCHED),
    "three variable dimensions": Seen(
        {"mixed": [1, 2, 3, 4]}, {"mixed": [[1, 1, 2, 2], [1, 2, 3, 4]]}, model=BATCHED
    ),
    "a boolean": Seen({"flag": True}, {"flag": [[1], [True]]}),
    "the largest integers": Seen(
        {"i64": [2**63 - 1, -(2**63)], "u64": 2**64 - 1, "u8": 255},
        {"i64": [[2], [2**63 - 1, -(2**63)]], "u64": [[1], [2**64 - 1]], "u8": [[1], [255]]},
    ),
    "floats": Seen({"f64": [0.1, 1e300, 3]}, {"f64": [[3], [0.1, 1e300, 3.0]]}),
    "Infinity": Seen(b'{"f64":[Infinity,-Infinity]}', {"f64": [[2], [float("inf"), -float("inf")]]}),
    "parameters beside an input": Seen(
        {"text": "x", "number": 1, "flag?": True, "word": "w", "share": 0.5},
        {"text": [[1], ["x"]]},
        {"number": 1, "flag?": True, "word": "w", "share": 0.5},
    ),
    "parameters in their place": Seen(
        {"text": "x", "parameters": {"number": 1}}, {"text": [[1], ["x"]]}, {"number": 1}
    ),
    "an input among the parameters": Seen(
        {"parameters": {"text": "x", "n": 1}}, {"text": [[1], ["x"]]}, {"n": 1}
    ),
    "an id": Seen({"id": "42"}, {}, {"id": "42"}, id="42"),
    "an empty id": Seen({"id": ""}, {}, {"id": ""}),
    "an id among the parameters": Seen({"parameters": {"id": "42"}}, {}, {"id": "42"}),
    "names that mean something elsewhere": Seen(
        {"sequence_id": 5, "priority": 2, "timeout": 3, "binary_data_output": True, "triton_x": 1},
        {},
        {"sequence_id": 5, "priority": 2, "timeout": 3, "binary_data_output": True, "triton_x": 1},
    ),
    "the smallest integer": Seen({"number": -(2**63)}, {}, {"number": -(2**63)}),
    "an integer beyond 64 bits": Seen(b'{"number":9223372036854775808}', {}, {"number": 2.0**63}),
    "a version": Seen({"text": "x"}, {"text": [[1], ["x"]]}, model="echo/versions/1"),
}


def assert_seen(port: int, case: Seen) -> None:
    status, content_type, body = ask(port, f"{case.model}/generate", case.body)
    document = json.loads(body)

    assert status == 200, document
    assert content_type == "application/json"
    assert document.get("id", "") == case.id
    seen = json.loads(document["seen"])
    assert seen == {
        "id": case.id,
        "inputs": case.inputs,
        "parameters": case.parameters,
        "sequence": 0,
    }


@pytest.mark.parametrize("name", SEEN)
def test_a_body_becomes_inputs_and_parameters(generate_port: int, name: str) -> None:
    assert_seen(generate_port, SEEN[name])


@pytest.mark.parity
@pytest.mark.parametrize("name", SEEN)
def test_a_real_server_reads_the_same(real_generate_port: int, name: str) -> None:
    assert_seen(real_generate_port, SEEN[name])


@dataclass(frozen=True)
class Refused:
    """A request that is refused before a model runs.

    Attributes:
        path: behind `/v2/models/`.
        body: what is sent.
        status: the HTTP status.
        error: the text.
        headers: further headers.
    """

    path: str
    body: bytes | dict[str, Any]
    status: int
    error: str
    headers: dict[str, str] = field(default_factory=dict)


ECHO = "echo/generate"
REFUSED = {
    "unknown model": Refused("nope/generate", {}, 404, "Request for unknown model: 'nope' is not found"),
    "unknown version": Refused(
        "echo/versions/9/generate", {}, 404, "Request for unknown model: 'echo' version 9 is not found"
    ),
    "unknown model of a stream": Refused(
        "nope/generate_stream", {}, 404, "Request for unknown model: 'nope' is not found"
    ),
    "a compressed body": Refused(
        ECHO,
        {},
        400,
        "Unsupported content-encoding, only 'identity' is supported.",
        {"Content-Encoding": "gzip"},
    ),
    "a compressed body for an unknown model": Refused(
        "nope/generate",
        {},
        404,
        "Request for unknown model: 'nope' is not found",
        {"Content-Encoding": "gzip"},
    ),
    "no body": Refused(
        ECHO, b"", 500, "failed to parse the request JSON buffer: The document is empty. at 0"
    ),
    "an array": Refused(ECHO, b"[]", 500, "attempt to get members for non-object"),
    "null": Refused(ECHO, b"null", 500, "attempt to get members for non-object"),
    "an id that is no string": Refused(
        ECHO, {"pair": [1], "id": 5}, 500, "Unable to parse 'id': attempt to access JSON non-string as string"
    ),
    "too few elements": Refused(ECHO, {"pair": 1.5}, 400, MISSHAPEN.format("pair")),
    "too many elements": Refused(ECHO, {"pair": [1, 2, 3, 4]}, 400, MISSHAPEN.format("pair")),
    "no elements": Refused(ECHO, {"pair": []}, 400, MISSHAPEN.format("pair")),
    "no whole batch": Refused(f"{BATCHED}/generate", {"pair": [1, 2, 3]}, 400, MISSHAPEN.format("pair")),
    "two strings": Refused(ECHO, {"text": ["a", "b"]}, 400, MISSHAPEN.format("text")),
    "nested arrays count as one": Refused(ECHO, {"pair": [[1, 2]]}, 400, MISSHAPEN.format("pair")),
    "more nested elements than counted": Refused(
        ECHO,
        {"many": [[1, 2]]},
        500,
        "Unable to parse 'data': Shape does not match true shape of 'data' field",
    ),
    "a number for a string": Refused(ECHO, {"text": 5}, 500, NOT_BYTES),
    "numbers for a string": Refused(ECHO, {"text": [5, 6]}, 500, NOT_BYTES),
    "null for a string": Refused(ECHO, {"text": None}, 500, NOT_BYTES),
    "an object for a string": Refused(ECHO, {"text": {"a": "b"}}, 500, NOT_BYTES),
    "a string for a number": Refused(
        ECHO, {"pair": [1, "x"]}, 500, "Unable to parse 'data': attempt to access JSON non-number as double"
    ),
    "a number for a boolean": Refused(
        ECHO, {"flag": 1}, 500, "Unable to parse 'data': attempt to access JSON non-boolean as boolean"
    ),
    "a float for an integer": Refused(
        ECHO,
        {"many": [1.0]},
        500,
        "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer",
    ),
    "FP16": Refused(
        ECHO,
        {"half": [1]},
        400,
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input half",
    ),
    "FP16 without elements": Refused(
        ECHO,
        {"half": []},
        400,
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input half",
    ),
    "BF16": Refused(
        ECHO,
        {"brain": [1]},
        400,
        "receiving BF16 data via JSON is not supported. Please use the binary data format for input brain",
    ),
    "null as a parameter": Refused(ECHO, {"p": None}, 400, NO_PARAMETER.format("p")),
    "an array as a parameter": Refused(ECHO, {"p": [1]}, 400, NO_PARAMETER.format("p")),
    "an object as a parameter": Refused(ECHO, {"p": {"q": 1}}, 400, NO_PARAMETER.format("p")),
    "an array among the parameters": Refused(
        ECHO, {"parameters": {"p": [1]}}, 400, "Converting keyword: 'parameters': " + NO_PARAMETER.format("p")
    ),
    "parameters among the parameters": Refused(
        ECHO,
        {"parameters": {"parameters": {}}},
        400,
        "Converting keyword: 'parameters': " + NO_PARAMETER.format("parameters"),
    ),
    "a misshapen input among the parameters": Refused(
        ECHO,
        {"parameters": {"pair": 1}},
        400,
        "Converting keyword: 'parameters': " + MISSHAPEN.format("pair"),
    ),
    "parameters that are no object": Refused(
        ECHO,
        {"parameters": [1]},
        500,
        "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object",
    ),
    "an input in both places": Refused(
        ECHO,
        b'{"text":"a","parameters":{"text":"b"}}',
        400,
        "Converting keyword: 'parameters': [request id: <id_unknown>] input 'text' already exists in request",
    ),
    "an input in both places, the other way round": Refused(
        ECHO,
        b'{"parameters":{"text":"b"},"text":"a"}',
        400,
        "[request id: <id_unknown>] input 'text' already exists in request",
    ),
    "a missing input": Refused(
        "talker/generate_stream",
        {"zz": 1},
        400,
        "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'talker'. Got input(s) [], "
        "but missing required input(s) ['say']. Please provide all required input(s).",
    ),
}


def assert_refused(port: int, case: Refused) -> None:
    status, content_type, body = ask(port, case.path, case.body, case.headers)

    assert json.loads(body) == {"error": case.error}
    assert status == case.status
    assert content_type == "application/json"


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_fits_nothing_is_refused(generate_port: int, name: str) -> None:
    assert_refused(generate_port, REFUSED[name])


@pytest.mark.parity
@pytest.mark.parametrize("name", REFUSED)
def test_a_real_server_refuses_the_same(real_generate_port: int, name: str) -> None:
    assert_refused(real_generate_port, REFUSED[name])


SHELF = b'"model_name":"shelf","model_version":"1"'
NOT_HALF = "sending FP16 data via JSON is not supported. Please use the binary data format for output"
ANSWERS = {
    "scalars": (
        200,
        b'{"f32":0.10000000149011612,"f64":0.1,"flag":true,"i64":-4611686018427387904,"i8":-3,"id":"7",'
        + SHELF
        + ',"text":"a \\"b\\"\\né","u64":18446744073709551615,"u8":250}'.encode(),
    ),
    "arrays": (
        200,
        b'{"f32":[1.0,NaN,Infinity],"f64":[],"flag":[true,false],"i8":[1,2,3,4],"id":"7",'
        + SHELF
        + b',"text":["a","b"]}',
    ),
    "nothing": (200, b'{"id":"7",' + SHELF + b"}"),
    "raw": (200, b'{"id":"7",' + SHELF + b',"text":"\xff\\u0000a"}'),
    "half": (400, json.dumps({"error": NOT_HALF}, separators=(",", ":")).encode()),
}


def assert_answers(port: int, kind: str) -> None:
    status, _, body = ask(port, "shelf/generate", {"kind": kind, "id": "7"})
    streamed_status, content_type, events = ask(port, "shelf/generate_stream", {"kind": kind, "id": "7"})

    assert (status, body) == ANSWERS[kind]
    assert (streamed_status, events) == (status, b"data: " + body + b"\n\n")
    assert content_type == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize("kind", ANSWERS)
def test_outputs_become_keys_in_their_order(generate_port: int, kind: str) -> None:
    assert_answers(generate_port, kind)


@pytest.mark.parity
@pytest.mark.parametrize("kind", ANSWERS)
def test_a_real_server_writes_the_same(real_generate_port: int, kind: str) -> None:
    assert_answers(real_generate_port, kind)


def test_parameters_of_a_response_are_keys_too_and_hide_outputs_but_not_the_model(generate_port: int) -> None:
    status, _, body = ask(generate_port, "shelf/generate", {"kind": "parameters"})

    assert status == 200
    assert body == (b'{"flag":true,' + SHELF + b',"number":7,"text":"hides the output","word":"x"}')


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        (
            "raise",
            500,
            r"Failed to process the request\(s\) for model 'shelf_0.*', message: ValueError: boom\n.*",
        ),
        ("error:UNKNOWN", 400, "told to error:UNKNOWN"),
        ("error:INTERNAL", 500, "told to error:INTERNAL"),
        ("error:NOT_FOUND", 404, "told to error:NOT_FOUND"),
        ("error:INVALID_ARG", 400, "told to error:INVALID_ARG"),
        ("error:UNAVAILABLE", 503, "told to error:UNAVAILABLE"),
        ("error:UNSUPPORTED", 501, "told to error:UNSUPPORTED"),
        ("error:ALREADY_EXISTS", 400, "told to error:ALREADY_EXISTS"),
    ],
)
def test_an_error_of_the_model_has_the_status_of_its_code(
    generate_port: int, path: str, kind: str, status: int, error: str
) -> None:
    got, _, body = ask(generate_port, f"shelf/{path}", {"kind": kind})

    assert got == status
    if path == "generate_stream":
        assert body.startswith(b"data: ")
        assert body.endswith(b"\n\n")
        body = body[6:]
    assert re.fullmatch(error, json.loads(body)["error"], re.DOTALL)


@pytest.mark.parity
@pytest.mark.parametrize("path", ["generate", "generate_stream"])
def test_a_real_server_answers_400_whatever_the_code(real_generate_port: int, path: str) -> None:
    status, _, body = ask(real_generate_port, f"shelf/{path}", {"kind": "error:NOT_FOUND"})

    assert status == 400
    assert b"told to error:NOT_FOUND" in body


TALKS = {
    "one response and the flag alone": (
        ["a"],
        200,
        {"model_name": "talker", "model_version": "1", "text": "a"},
    ),
    "one response with the flag": (
        ["last"],
        200,
        {"model_name": "talker", "model_version": "1", "text": "last"},
    ),
    "a response without outputs": (["nothing"], 200, {"model_name": "talker", "model_version": "1"}),
    "two responses": (["a", "b"], 200, {"error": NOT_ONE}),
    "a response, and one with the flag": (["a", "last"], 200, {"error": NOT_ONE}),
    "no response": ([], 200, {"error": NOT_ONE}),
    "an error behind a response": (["a", "error"], 200, {"error": NOT_ONE}),
}


def assert_talks(port: int, name: str) -> None:
    say, expected_status, expected = TALKS[name]

    status, content_type, body = ask(port, "talker/generate", {"say": say})

    assert (status, json.loads(body)) == (expected_status, expected)
    assert content_type == "application/json"


@pytest.mark.parametrize("name", TALKS)
def test_a_decoupled_model_must_answer_once(generate_port: int, name: str) -> None:
    assert_talks(generate_port, name)


@pytest.mark.parity
@pytest.mark.parametrize("name", TALKS)
def test_a_real_server_wants_one_answer_too(real_generate_port: int, name: str) -> None:
    assert_talks(real_generate_port, name)


def test_a_large_body_is_read_elsewhere_and_means_the_same(generate_port: int) -> None:
    numbers = list(range(170_000))
    words = ["é" * 10] * 10_000
    body = {"many": numbers, "texts": words, "n": 1, "parameters": {"flag?": True}, "id": "7"}

    _, _, answer = ask(generate_port, "echo/generate", body)
    seen = json.loads(json.loads(answer)["seen"])
    status, _, refusal = ask(generate_port, "echo/generate", {"pair": numbers, "parameters": {"x": 1}})
    nested_status, _, nested = ask(generate_port, "echo/generate", {"parameters": {"many": [*numbers, "x"]}})
    too_many_status, _, too_many = ask(generate_port, "echo/generate", {f"{n:020}": n for n in range(70_000)})

    assert seen["inputs"] == {"many": [[170_000], numbers], "texts": [[10_000], words]}
    assert seen["parameters"] == {"n": 1, "flag?": True, "id": "7"}
    assert seen["id"] == "7"
    assert (status, json.loads(refusal)) == (400, {"error": MISSHAPEN.format("pair")})
    assert nested_status == 500
    assert json.loads(nested)["error"].startswith("Converting keyword: 'parameters': Unable to parse 'data'")
    assert too_many_status == 400
    assert b"names more than 65536" in too_many
