"""Headers that become parameters of a request, over both protocols and beside the real server."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy.server import Server

from ..servers import GRPC_TRANSPORTS, local_options

MODELS = Path(__file__).with_name("generate_models")
PATTERN = "^x-(foo|bar)|-trace$|^(sequence_|priority|triton_)"
ECHO_ALONE = {"model_control_mode": "explicit", "load_models": ("echo",)}
TEXT = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["hi"]}]}
Header = tuple[str, str]


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    options = local_options(
        MODELS, allow_grpc=False, allow_metrics=False, http_header_forward_pattern=PATTERN, **ECHO_ALONE
    )
    with Server(options) as server:
        yield server


@pytest.fixture(scope="module", params=GRPC_TRANSPORTS)
def grpc_port(request: pytest.FixtureRequest) -> Iterator[int]:
    options = local_options(
        MODELS,
        allow_http=False,
        allow_metrics=False,
        grpc_transport=request.param,
        grpc_header_forward_pattern=PATTERN,
        **ECHO_ALONE,
    )
    with Server(options) as server:
        yield server.grpc_port


@pytest.fixture(scope="module")
def real_port(real_triton: Callable[..., dict[str, int]]) -> int:
    return real_triton(MODELS, f"--http-header-forward-pattern={PATTERN}")["http"]


def post(port: int, path: str, document: dict[str, Any], *headers: Header) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        body = json.dumps(document).encode()
        connection.putrequest("POST", f"/v2/models/echo/{path}")
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def parameters(port: int, document: dict[str, Any], *headers: Header) -> dict[str, Any]:
    """What an inference with these headers has for parameters."""
    status, answer = post(port, "infer", document, *headers)
    assert status == 200, answer
    seen: dict[str, Any] = json.loads(answer["outputs"][0]["data"][0])["parameters"]
    return seen


FORWARDED: list[tuple[dict[str, Any], list[Header], dict[str, Any]]] = [
    ({}, [], {}),
    ({}, [("X-Foo", "a")], {"X-Foo": "a"}),
    ({}, [("x-foo", "a"), ("X-FOO", "b")], {"x-foo": "a", "X-FOO": "b"}),
    ({}, [("X-Foo", "a"), ("X-Foo", "b")], {"X-Foo": "b"}),
    ({}, [("X-Football", "a b  c"), ("My-TRACE", "1")], {"X-Football": "a b  c", "My-TRACE": "1"}),
    ({}, [("My-X-Foo", "a"), ("Trace-Not", "b")], {}),
    ({}, [("X-Bar", "gr\u00fc\u00df")], {"X-Bar": "gr\u00fc\u00df"}),
    ({"n": 1, "X-Foo": "body"}, [("X-Foo", "head")], {"n": 1, "X-Foo": "head"}),
]


def assert_forwards(port: int, case: int) -> None:
    given, headers, expected = FORWARDED[case]
    encoded = [(name, value.encode().decode("latin-1")) for name, value in headers]

    assert parameters(port, {**TEXT, "parameters": given}, *encoded) == expected


@pytest.mark.parametrize("case", range(len(FORWARDED)))
def test_headers_that_the_pattern_finds_become_parameters(ours: Server, case: int) -> None:
    assert_forwards(ours.http_port, case)


@pytest.mark.parity
@pytest.mark.parametrize("case", range(len(FORWARDED)))
def test_a_real_server_forwards_the_same(real_port: int, case: int) -> None:
    assert_forwards(real_port, case)


def test_headers_of_one_request_are_not_those_of_the_next(ours: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", ours.http_port, timeout=30)
    with closing(connection):
        for headers, expected in (({"X-Foo": "a"}, {"X-Foo": "a"}), ({}, {})):
            connection.request("POST", "/v2/models/echo/infer", json.dumps(TEXT), headers)
            answer = json.loads(connection.getresponse().read())

            assert json.loads(answer["outputs"][0]["data"][0])["parameters"] == expected


@pytest.mark.parametrize("name", ["sequence_id", "sequence_start", "priority", "triton_anything"])
def test_names_that_mean_something_are_refused(ours: Server, name: str) -> None:
    status, answer = post(ours.http_port, "infer", TEXT, (name, "1"))

    assert status == 400
    assert answer == {"error": f"Header '{name}' is reserved for Triton usage and cannot be forwarded."}


def test_a_value_that_is_not_utf_8_is_refused(ours: Server) -> None:
    status, answer = post(ours.http_port, "infer", TEXT, ("X-Foo", "gr\xfc\xdf"))

    assert status == 400
    assert answer["error"].startswith("Header 'X-Foo' cannot be forwarded: its value is not UTF-8")


def test_generate_forwards_nothing(ours: Server) -> None:
    status, answer = post(ours.http_port, "generate", {"text": "x"}, ("X-Foo", "a"), ("priority", "1"))

    assert status == 200
    assert json.loads(answer["seen"])["parameters"] == {}


@pytest.mark.parity
def test_generate_of_a_real_server_forwards_nothing(real_port: int) -> None:
    _, answer = post(real_port, "generate", {"text": "x"}, ("X-Foo", "a"))

    assert json.loads(answer["seen"])["parameters"] == {}


def test_without_a_pattern_nothing_is_forwarded(serve: Callable[..., Server]) -> None:
    server = serve(MODELS, **ECHO_ALONE)

    assert parameters(server.http_port, TEXT, ("X-Foo", "a"), ("priority", "1")) == {}


def _infer_over_grpc(port: int, metadata: dict[str, str]) -> dict[str, Any]:
    tensor = grpcclient.InferInput("text", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"hi"], object))
    with grpcclient.InferenceServerClient(f"127.0.0.1:{port}") as client:
        result = client.infer("echo", [tensor], headers=metadata)
    seen = result.as_numpy("seen")
    assert seen is not None
    found: dict[str, Any] = json.loads(seen[0])["parameters"]
    return found


def test_metadata_is_forwarded_over_grpc(grpc_port: int) -> None:
    assert _infer_over_grpc(grpc_port, {"x-foo": "a", "other": "b"}) == {"x-foo": "a"}
    with pytest.raises(InferenceServerException, match="Header 'priority' is reserved for Triton usage"):
        _infer_over_grpc(grpc_port, {"priority": "1"})


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("pattern", ["x-(foo", "(?=x)"])
def test_a_pattern_that_is_none_ends_the_start_with_one_line(
    tmp_path: Path, protocol: str, pattern: str
) -> None:
    flag = f"--{protocol}-header-forward-pattern"
    command = [str(Path(sys.executable).with_name("corectl")), "serve", f"--model-repository={tmp_path}"]
    ended = subprocess.run(
        [*command, f"{flag}={pattern}"], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode != 0
    assert f"Bad option: \"{flag}\". Error parsing '{pattern}': " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_program_that_embeds_the_server_hears_of_it_too(tmp_path: Path, protocol: str) -> None:
    options = ServerOptions((str(tmp_path),), **{f"{protocol}_header_forward_pattern": "x-(foo"})  # type: ignore[arg-type]

    with pytest.raises(InvalidArg, match=f"--{protocol}-header-forward-pattern: 'x-.foo' is not a regular"):
        Server(options).start()
