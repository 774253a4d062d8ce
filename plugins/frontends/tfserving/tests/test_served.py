"""Requests of TensorFlow Serving's clients on a real socket, to models of another backend."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import logging
import socket
import threading

import pytest
from tritonpy_sdk.testing import DEADLINE_S

TYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
TYPES += ["float16", "float", "double"]


def b64(data):
    return {"b64": base64.b64encode(data).decode()}


# model, request, answer
PREDICTIONS = [
    # Rows, with and without a name; columns likewise.
    ("scale", {"instances": [[1, 2], [3, 4.5]]}, {"predictions": [[3, 6], [9, 13.5]]}),
    ("scale", {"instances": [{"x": [1, 2]}]}, {"predictions": [[3, 6]]}),
    ("scale", {"inputs": [[1, 2], [3, 4]]}, {"outputs": [[3, 6], [9, 12]]}),
    ("scale", {"inputs": {"x": [[1, 2]]}}, {"outputs": [[3, 6]]}),
    ("scale", {"signature_name": "serving_default", "instances": [[0, 1]]}, {"predictions": [[0, 3]]}),
    ("scale", {"signature_name": "", "instances": [[0, 1]]}, {"predictions": [[0, 3]]}),
    ("signed", {"signature_name": "special", "instances": [[0, 1]]}, {"predictions": [[0, 2]]}),
    # More rows than a batch has.
    (
        "scale",
        {"instances": [[row, 0] for row in range(11)]},
        {"predictions": [[3 * row, 0] for row in range(11)]},
    ),
    # Several inputs and outputs, one of them with a number for each row.
    (
        "two",
        {"instances": [{"a": [1, 2], "b": 3}, {"b": 4, "a": [5, 6]}]},
        {"predictions": [{"c": [-1, -2], "d": -3}, {"c": [-5, -6], "d": -4}]},
    ),
    (
        "two",
        {"inputs": {"a": [[1, 2]], "b": [3], "more": 1}},
        {"outputs": {"c": [[-1, -2]], "d": [-3]}},
    ),
    # Strings, and bytes.
    ("strings", {"instances": [["grün", ""]]}, {"predictions": [["grün", ""]]}),
    ("strings", {"instances": [[b64(b"grau"), "b64"]]}, {"predictions": [["grau", "b64"]]}),
    ("raw", {"inputs": [[b64(b"\xff\0"), "a"]]}, {"outputs": [[b64(b"\xff\0"), "a"]]}),
    ("image", {"instances": [b64(b"JPEG"), b64(b"")]}, {"predictions": [b64(b"JPEG"), b64(b"")]}),
    (
        "image",
        {"instances": [{"image_bytes": b64(b"a")}, {"image_bytes": "text"}]},
        {"predictions": [b64(b"a"), b64(b"text")]},
    ),
    # Models that do not batch.
    ("fixed", {"instances": [[1, 2, 3]]}, {"predictions": [[-1, -2, -3]]}),
    ("sum", {"inputs": [1, 2, 3]}, {"outputs": [6]}),
    ("uneven", {"inputs": [[1, 2], [3, 4]]}, {"outputs": {"y": [[-1, -2], [-3, -4]], "s": [[4, 6]]}}),
    *((f"of_{name}", {"instances": [1, 0, 100]}, {"predictions": [1, 0, 100]}) for name in TYPES[1:]),
    ("of_bool", {"instances": [True, False]}, {"predictions": [True, False]}),
    ("of_uint64", {"instances": [2**64 - 1]}, {"predictions": [2**64 - 1]}),
    ("of_int64", {"instances": [-(2**63)]}, {"predictions": [-(2**63)]}),
    ("of_int8", {"instances": [-128, 127]}, {"predictions": [-128, 127]}),
]


@pytest.mark.parametrize(("model", "document", "expected"), PREDICTIONS)
def test_predictions_have_the_form_of_the_request(call, model, document, expected):
    assert call(f"/v1/models/{model}:predict", document) == (200, expected)


def test_numbers_that_are_not_finite_come_and_go(call):
    body = b'{"instances": [[0], [-1.0], [Infinity], [NaN]]}'

    status, answer = call("/v1/models/log:predict", body)

    assert status == 200
    assert repr(answer["predictions"]) == "[[-inf], [nan], [inf], [nan]]"


def test_floats_are_as_short_as_they_can_be(call):
    assert call("/v1/models/scale:predict", {"instances": [[0.1, 1]]})[1] == {"predictions": [[0.3, 3.0]]}


# model, request, status, words of the error
REFUSALS = [
    ("scale", b"", 400, "JSON Parse error: The document is empty"),
    ("scale", b"{", 400, "JSON Parse error"),
    ("scale", b"[" * 90000, 400, "JSON Parse error"),
    ("scale", [1], 400, "JSON Value: [1] Is not object"),
    ("scale", {}, 400, "Missing 'inputs' or 'instances' key"),
    (
        "scale",
        {"inputs": [[1, 2]], "instances": [[1, 2]]},
        400,
        "expecting only one of 'inputs' or 'instances'",
    ),
    ("scale", {"instances": {"x": 1}}, 400, "Expecting 'instances' to be a list/array"),
    ("scale", {"instances": []}, 400, "No values in 'instances' array"),
    ("scale", {"instances": [{"x": [1, 2]}, [1, 2]]}, 400, "Expecting object but got [1, 2] at item 1"),
    ("scale", {"instances": [[1, 2], {"x": [1, 2]}]}, 400, "Expecting value/list but got object at item 1"),
    ("scale", {"instances": [{"z": [1, 2]}]}, 400, "keys must be equal to: x"),
    ("two", {"instances": [{"a": [1, 2], "b": 1}, {"a": [1, 2]}]}, 400, "element: 1 of 'instances' list"),
    ("two", {"instances": [[1, 2]]}, 400, "instances is a plain list, but expecting list of objects"),
    ("two", {"inputs": [[1, 2]]}, 400, "inputs is a plain value/list, but expecting an object"),
    ("two", {"inputs": {"a": [[1, 2]]}}, 400, "Missing named input: b in 'inputs' object."),
    ("scale", {"instances": [[1, 2], [3]]}, 400, "input 'x': lists that are side by side differ in size"),
    ("scale", {"instances": [["a", "b"]]}, 400, "JSON Value: [['a', 'b']] is not of expected type: float32"),
    ("scale", {"instances": [[1, None]]}, 400, "is not of expected type: float32"),
    ("scale", {"instances": [[True, False]]}, 400, "is not of expected type: float32"),
    (
        "scale",
        {"instances": [[1e39, 0]]},
        400,
        "Cannot convert JSON value: [[1e+39, 0]] to float32 without loss",
    ),
    ("scale", {"instances": [[1, 2, 3]]}, 400, "shape"),
    ("of_int32", {"instances": [1.5]}, 400, "is not of expected type: int32"),
    ("of_int8", {"instances": [128]}, 400, "is not of expected type: int8, which goes from -128 to 127"),
    ("of_uint8", {"instances": [-1]}, 400, "is not of expected type: uint8, which goes from 0 to 255"),
    ("of_uint64", {"instances": [2**64]}, 400, "is not of expected type: uint64"),
    ("of_int32", {"instances": [True, 2]}, 400, "JSON Value: [True, 2] is not of expected type: int32"),
    ("scale", {"instances": [["x" * 20000, ""]] * 2}, 400, "is not of expected type: float32"),
    ("scale", {"instances": [[10**400, 0]]}, 400, "to float32 without loss of precision"),
    ("scale", {"instances": [[0, 0]] * 4097}, 400, "4097 rows are more than 1024 batches of model 'scale'"),
    ("of_bool", {"instances": [1]}, 400, "is not of expected type: bool"),
    ("strings", {"instances": [["a", 1]]}, 400, "JSON Value: 1 is not of expected type: string"),
    ("strings", {"instances": [["a", {"b64": "*"}]]}, 400, "Unable to base64 decode"),
    ("strings", {"instances": [["a", {"b64": "", "c": 1}]]}, 400, "not formatted correctly for base64 data"),
    ("strings", {"instances": [["a"], ["b", "c"]]}, 400, "lists that are side by side differ in size"),
    ("strings", {"instances": [[[["a"]]]]}, 400, "is not of expected type: string"),
    (
        "scale",
        {"signature_name": 1, "instances": [[1, 2]]},
        400,
        "'signature_name' key must be a string value.",
    ),
    (
        "scale",
        {"signature_name": "other", "instances": [[1, 2]]},
        400,
        'Serving signature name: "other" not found in signature def',
    ),
    ("brain", {"instances": [[1, 2]]}, 501, "input 'INPUT0': Conversion of JSON Value to type: BF16"),
    ("nope", {"instances": [1]}, 404, "Servable not found for request: Latest(nope)"),
    ("broken", {"instances": [1]}, 404, "Servable not found for request: Latest(broken)"),
    ("scale/versions/9", {"instances": [[1, 2]]}, 404, "Servable not found for request: Specific(scale, 9)"),
    (
        "scale/labels/gone",
        {"instances": [[1, 2]]},
        404,
        "Servable not found for request: Specific(scale, gone)",
    ),
    (
        "scale/labels/no",
        {"instances": [[1, 2]]},
        400,
        "Unrecognized servable version label: no; the parameter ",
    ),
    ("uneven", {"instances": [[1, 2], [3, 4]]}, 400, "has inconsistent batch size: 1 expecting: 2"),
    ("scale", b" " * 100001, 413, "the body is larger than 100000 bytes"),
]


@pytest.mark.parametrize(("model", "document", "status", "words"), REFUSALS)
def test_what_is_wrong_is_said_in_an_object(call, model, document, status, words):
    got, answer = call(f"/v1/models/{model}:predict", document)

    assert (got, list(answer)) == (status, ["error"])
    assert words in answer["error"]


def test_compressed_bodies_are_unpacked_no_further_than_the_limit(call):
    small = gzip.compress(json.dumps({"instances": [[1, 2]]}).encode())
    bomb = gzip.compress(b" " * (10 << 20))

    headers = {"Content-Encoding": "gzip"}
    assert call("/v1/models/scale:predict", small, **headers) == (200, {"predictions": [[3, 6]]})
    assert call("/v1/models/scale:predict", bomb, **headers)[0] == 413


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Encoding": "gzip"}, b"not compressed"),
        ({"Content-Encoding": "deflate"}, b"not compressed"),
    ],
)
def test_bodies_that_are_not_what_their_headers_say_are_the_client_s_fault(call, caplog, headers, body):
    status, answer = call("/v1/models/scale:predict", body, **headers)

    assert status == 400
    assert answer["error"].startswith("the body cannot be read: ")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert call("/v1/models/scale")[0] == 200


HEAD = b"POST /v1/models/scale:predict HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([HEAD + b"zz\r\n"], "the request cannot be read: Invalid character in chunk size: b'zz' ^"),
        ([HEAD, b"zz\r\n"], "the body cannot be read: it is not as its headers say"),
        ([HEAD, b'5\r\n{"ins\r\n', b"zz\r\n"], "the body cannot be read: it is not as its headers say"),
        ([HEAD, b'5\r\n{"insXX'], "the body cannot be read: it is not as its headers say"),
        ([b"nonsense\r\n\r\n"], "the request cannot be read: Invalid method encountered: b'nonsense' ^"),
    ],
)
def test_what_is_no_http_is_answered_and_the_connection_closed(server, call, caplog, parts, reason):
    address, _ = server.runtime.frontends.by_name["tfserving"].addresses
    with socket.create_connection((address.host, address.port), timeout=DEADLINE_S) as client:
        client.sendall(parts[0])
        for part in parts[1:]:
            assert call("/v1/models/scale")[0] == 200  # what was sent before has been read by then
            client.sendall(part)
        answer = b"".join(iter(lambda: client.recv(65536), b""))

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert json.loads(body)["error"] == reason
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_body_in_chunks_is_read_as_a_whole(server):
    address, _ = server.runtime.frontends.by_name["tfserving"].addresses
    body = b'{"instances": [[1, 2]]}'
    with socket.create_connection((address.host, address.port), timeout=DEADLINE_S) as client:
        for _ in range(2):
            client.sendall(HEAD)
            for byte in body:
                client.sendall(b"1\r\n%c\r\n" % byte)
            client.sendall(b"0\r\n\r\n")
            answer = b""
            while not answer.endswith(b'{"predictions":[[3.0,6.0]]}'):
                part = client.recv(65536)
                assert part, answer
                answer += part


@pytest.mark.parametrize(
    ("where", "factor"),
    [("", 3), ("/versions/1", 2), ("/versions/2", 3), ("/labels/stable", 2), ("/labels/canary", 3)],
)
def test_versions_and_labels_choose(call, where, factor):
    document = {"instances": [[1, 10]]}

    assert call(f"/v1/models/scale{where}:predict", document) == (
        200,
        {"predictions": [[factor, 10 * factor]]},
    )
    version = {2: "1", 3: "2"}[factor]
    assert call(f"/v1/models/scale{where}/metadata")[1]["model_spec"]["version"] == version
    (*others, last) = call(f"/v1/models/scale{where}")[1]["model_version_status"]
    assert len(others) == (where == "")
    assert last == {
        "version": version,
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }


def test_status_of_what_failed_to_load_has_the_reason(call):
    status, answer = call("/v1/models/broken")

    assert status == 200
    ((version, state, reason),) = [
        (row["version"], row["state"], row["status"]) for row in answer["model_version_status"]
    ]
    assert (version, state, reason["error_code"]) == ("1", "END", "UNKNOWN")
    assert "failed to load" in reason["error_message"]


def test_metadata_is_the_signature(call):
    status, answer = call("/v1/models/two/metadata")

    assert (status, answer["model_spec"]) == (200, {"name": "two", "signature_name": "", "version": "1"})
    ((name, signature),) = answer["metadata"]["signature_def"]["signature_def"].items()
    assert (name, signature["method_name"]) == ("serving_default", "tensorflow/serving/predict")
    described = {
        key: (info["dtype"], [dim["size"] for dim in info["tensor_shape"]["dim"]])
        for key, info in (signature["inputs"] | signature["outputs"]).items()
    }
    assert described == {
        "a": ("DT_FLOAT", ["-1", "2"]),
        "b": ("DT_INT64", ["-1"]),
        "c": ("DT_FLOAT", ["-1", "2"]),
        "d": ("DT_INT64", ["-1"]),
    }
    assert list(call("/v1/models/signed/metadata")[1]["metadata"]["signature_def"]["signature_def"]) == [
        "special"
    ]


@pytest.mark.parametrize(
    ("path", "method", "status", "error"),
    [
        ("/v1/models/nope", "GET", 404, "Could not find any versions of model nope"),
        ("/v1/models/scale/versions/9", "GET", 404, "Could not find version 9 of model scale"),
        ("/v1/models/nope/metadata", "GET", 404, "Servable not found for request: Latest(nope)"),
        ("/v1/models", "GET", 400, "Missing model name in request."),
        ("/v1/other", "GET", 400, "Malformed request: GET /v1/other"),
        ("/v1/models/scale", "POST", 400, "Malformed request: POST /v1/models/scale"),
        ("/v1/models/scale:predict", "GET", 400, "Malformed request: GET /v1/models/scale:predict"),
        ("/v1/models/scale:explain", "POST", 400, "Malformed request: POST /v1/models/scale:explain"),
        ("/v1/models/scale:classify", "POST", 501, ":classify takes tf.Example records"),
        ("/v1/models/scale:regress", "POST", 501, ":regress takes tf.Example records"),
    ],
)
def test_paths_without_an_answer_are_refused(call, path, method, status, error):
    got, answer = call(path, {} if method == "POST" else None, method=method)

    assert (got, list(answer)) == (status, ["error"])
    assert answer["error"].startswith(error)


def test_a_connection_is_kept_for_many_requests(server):
    address, _ = server.runtime.frontends.by_name["tfserving"].addresses
    connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
    sockets = set()
    for _ in range(3):
        connection.request("POST", "/v1/models/scale:predict", b'{"instances": [[1, 2]]}')
        sockets.add(connection.sock)
        assert connection.getresponse().read() == b'{"predictions":[[3.0,6.0]]}'
    connection.close()

    assert len(sockets) == 1


def test_requests_of_many_clients_are_answered_each(call):
    answers = {}

    def ask(number):
        answers[number] = call("/v1/models/scale:predict", {"instances": [[number, 0]] * 9})

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()

    assert answers == {number: (200, {"predictions": [[3 * number, 0]] * 9}) for number in range(8)}
    assert call("/v1/models/scale")[0] == 200


def test_no_bytes_are_held_when_everything_is_answered(server, call):
    call("/v1/models/scale:predict", {"instances": [[1, 2]] * 50})
    call("/v1/models/scale:predict", b" " * 100001)

    assert server.runtime.frontends.by_name["tfserving"].admission.held == 0
