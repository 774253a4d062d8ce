"""JSON that is slow to read: it is answered like any other, and the loop is not what reads it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tritonpy.frontends.http.codec.json_body import MOST_LAX_HERE
from tritonpy.frontends.http.generate import parse_generate_request
from tritonpy.frontends.http.infer import RequestDecoder
from tritonpy.frontends.http.router import MOST_BYTES
from tritonpy.server import Server

from ..servers import local_options

SIZE = 500_000
WRONG = {
    "escapes": (b'["' + b"\\n" * (SIZE // 2) + b'",x', "Invalid value."),
    "pairs": (b'["' + b"\\ud800\\udc00" * (SIZE // 12) + b'",x', "Invalid value."),
    "objects": (b"[" + b"{}," * (SIZE // 3) + b"x", "Invalid value."),
    "members": (b"{" + b'"a":1,' * (SIZE // 6) + b"x", "Missing a name for object member."),
    "large numbers": (b"[" + b"1e300," * (SIZE // 6) + b"x", "Invalid value."),
    "infinities": (b"[" + b"Inf," * (SIZE // 4) + b"x", "Invalid value."),
}


@pytest.fixture(scope="module")
def port(echo_models: Path) -> Iterator[int]:
    options = local_options(echo_models, allow_grpc=False, allow_metrics=False)
    with Server(options) as server:
        yield server.http_port


def post(port: int, path: str, body: bytes) -> tuple[int, dict[str, object]]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as client:
        client.request("POST", path, body)
        response = client.getresponse()
        return response.status, json.loads(response.read())


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("call", ["infer", "generate"])
def test_wrong_json_that_is_slow_to_read_is_left_to_others_and_answered(
    port: int, kind: str, call: str
) -> None:
    text, reason = WRONG[kind]

    def read() -> object:
        if call == "infer":
            return RequestDecoder(None).decode(text, None, "echo", "")  # type: ignore[arg-type]  # not asked
        return parse_generate_request(text, {}, "echo", "")

    assert read() is None
    status, answer = post(port, f"/v2/models/echo/{call}", text)

    offset = len(text) - 1
    expected = f"failed to parse the request JSON buffer: {reason} at {offset}"
    assert (status, answer["error"]) == (500, expected)


def test_numbers_that_only_triton_knows_are_read_wherever_they_are(port: int) -> None:
    for count in (3, MOST_LAX_HERE):
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [count], "data": [1.5, *[0] * (count - 1)]}
        text = json.dumps({"id": "7", "inputs": [tensor]}).replace("1.5", "Infinity")
        status, answer = post(port, "/v2/models/echo/infer", text.encode())

        assert (status, answer["id"]) == (200, "7")
        outputs = answer["outputs"]
        assert isinstance(outputs, list)
        assert outputs[0]["data"] == [float("inf"), *[0.0] * (count - 1)]


@pytest.mark.parametrize(
    "path", ["/v2/logging", "/v2/repository/index", "/v2/systemsharedmemory/region/r/register"]
)
def test_a_call_that_needs_few_words_is_not_given_many(port: int, path: str) -> None:
    status, answer = post(port, path, b"[" + b"1," * (MOST_BYTES // 2) + b"1]")

    assert status == 400
    assert answer["error"] == (
        f"request of {MOST_BYTES + 3} bytes exceeds the maximum of {MOST_BYTES} bytes that '{path}' takes"
    )
    assert post(port, "/v2/logging", b"{}" + b" " * (MOST_BYTES - 2))[0] == 200


@pytest.mark.parametrize("length", ["9" * 5000, "0" * 5000 + "9" * 25])
def test_a_header_length_of_thousands_of_digits_is_out_of_range(port: int, length: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as client:
        client.request("POST", "/v2/models/echo/infer", b"{}", {"Inference-Header-Content-Length": length})
        response = client.getresponse()
        answer = json.loads(response.read())

    assert response.status == 400
    assert answer["error"].startswith("inference header size should be in range (0, 2), got: 99999")
