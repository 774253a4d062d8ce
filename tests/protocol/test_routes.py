"""Which path and method lead where: the same table for ours and the real server."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tritonpy.server import Server

from ..servers import local_options

MODELS = Path(__file__).with_name("generate_models")
M = "/v2/models/echo"
TOO_LARGE = (
    "failed to get model version from specified version string '{}' (details: stol), version should be an "
    "integral value > 0"
)
NOT_FOUND = (404, "Not Found")
NOT_ALLOWED = (405, "Method Not Allowed")
OK = (200, "")


def _lacks(version: str) -> tuple[int, str]:
    return 404, f"Request for unknown model: 'echo' version {version} is not found"


TABLE: list[tuple[str, str, tuple[int, str]]] = [
    ("GET", "/v2", OK),
    ("GET", "/v2?verbose=1", OK),
    ("GET", "/v2?", OK),
    ("GET", "http://somewhere/v2", OK),
    ("POST", "/v2", NOT_ALLOWED),
    ("HEAD", "/v2", NOT_ALLOWED),
    ("OPTIONS", "/v2", NOT_ALLOWED),
    ("GET", "/v2/", NOT_FOUND),
    ("GET", "//v2", NOT_FOUND),
    ("GET", "/v2;x", NOT_FOUND),
    ("GET", "/V2", NOT_FOUND),
    ("GET", "/", NOT_FOUND),
    ("GET", "/metrics", NOT_FOUND),
    ("PUT", "/v2/nope", NOT_FOUND),
    ("HEAD", "/v2/nope", NOT_FOUND),
    ("GET", "/v2/health", NOT_FOUND),
    ("GET", "/v2/health/live", OK),
    ("GET", "/v2/health/live/", NOT_FOUND),
    ("GET", "/v2//health/live", NOT_FOUND),
    ("HEAD", "/v2/health/live", NOT_ALLOWED),
    ("POST", "/v2/health/live", NOT_ALLOWED),
    ("GET", "/v2/health/ready", OK),
    ("DELETE", "/v2/health/ready", NOT_ALLOWED),
    ("GET", "/v2/models", NOT_FOUND),
    ("GET", "/v2/models/", NOT_FOUND),
    ("GET", M, OK),
    ("POST", M, NOT_ALLOWED),
    ("GET", f"{M}/", NOT_FOUND),
    ("GET", f"{M}/nope", NOT_FOUND),
    ("GET", f"{M}/versions", NOT_FOUND),
    ("GET", f"{M}/versions/", NOT_FOUND),
    ("GET", f"{M}/versions/x", NOT_FOUND),
    ("GET", f"{M}/versions/-1", NOT_FOUND),
    ("GET", f"{M}/versions/1.0", NOT_FOUND),
    ("GET", f"{M}/versions/1", OK),
    ("GET", f"{M}/versions/01", OK),
    ("GET", f"{M}/versions/1/", NOT_FOUND),
    ("GET", f"{M}/versions/1/versions/1", NOT_FOUND),
    ("GET", f"{M}/versions/0", _lacks("0")),
    ("GET", f"{M}/versions/9", _lacks("9")),
    ("GET", f"{M}/versions/{2**63 - 1}", _lacks(str(2**63 - 1))),
    *(
        (method, f"{M}/versions/{2**63}{what}", (400, TOO_LARGE.format(2**63)))
        for method, what in (
            ("GET", ""),
            ("GET", "/config"),
            ("GET", "/stats"),
            ("GET", "/ready"),
            ("POST", "/infer"),
            ("POST", "/generate"),
            ("POST", "/generate_stream"),
        )
    ),
    ("GET", "/v2/models/ech%6f", (404, "Request for unknown model: 'ech%6f' is not found")),
    ("GET", f"{M}#fragment", (404, "Request for unknown model: 'echo#fragment' is not found")),
    ("GET", f"{M}/ready", OK),
    ("GET", f"{M}/versions/1/ready", OK),
    ("POST", f"{M}/ready", NOT_ALLOWED),
    ("GET", f"{M}/versions/7/ready", (400, "Model version not ready")),
    ("GET", "/v2/models/nope/ready", (400, "Model version not ready")),
    ("GET", f"{M}/config", OK),
    ("POST", f"{M}/config", NOT_ALLOWED),
    ("GET", f"{M}/stats", OK),
    ("GET", f"{M}/versions/1/stats", OK),
    ("POST", f"{M}/stats", NOT_ALLOWED),
    ("GET", f"{M}/stats/", NOT_FOUND),
    ("GET", "/v2/models/stats", OK),
    ("GET", "/v2/models/stats?model=x", OK),
    ("POST", "/v2/models/stats", NOT_ALLOWED),
    ("GET", "/v2/models/stats/", NOT_FOUND),
    ("GET", "/v2/models/stats/config", (404, "Request for unknown model: 'stats' is not found")),
    ("GET", f"{M}/infer", NOT_ALLOWED),
    ("GET", f"{M}/generate", NOT_ALLOWED),
    ("PUT", f"{M}/versions/1/generate", NOT_ALLOWED),
    ("GET", f"{M}/generate_stream", NOT_ALLOWED),
    ("POST", f"{M}/generate_stream/", NOT_FOUND),
    ("POST", f"{M}/generate_streams", NOT_FOUND),
    ("GET", "/v2/trace/setting", OK),
    ("PUT", "/v2/trace/setting", NOT_ALLOWED),
    ("GET", "/v2/trace/setting/", NOT_FOUND),
    ("GET", f"{M}/trace/setting", OK),
    ("DELETE", f"{M}/trace/setting", NOT_ALLOWED),
    ("GET", f"{M}/versions/1/trace/setting", NOT_FOUND),
    ("GET", "/v2/logging", OK),
    ("PUT", "/v2/logging", NOT_ALLOWED),
    ("GET", "/v2/logging/", NOT_FOUND),
    ("POST", "/v2/repository/index", OK),
    ("POST", "/v2/repository/anything/index", OK),
    ("GET", "/v2/repository/index", NOT_ALLOWED),
    ("POST", "/v2/repository/index/", NOT_FOUND),
    ("POST", "/v2/repository", NOT_FOUND),
    ("GET", "/v2/repository/models/x/load", NOT_ALLOWED),
    ("GET", "/v2/repository/models/x/unload", NOT_ALLOWED),
    (
        "POST",
        "/v2/repository/r/models/x/load",
        (501, "'repository_name' specification is not supported"),
    ),
    ("GET", "/v2/systemsharedmemory/status", OK),
    ("POST", "/v2/systemsharedmemory/status", NOT_ALLOWED),
    ("GET", "/v2/systemsharedmemory/region/r/register", NOT_ALLOWED),
    ("GET", "/v2/systemsharedmemory/region//status", NOT_FOUND),
    ("GET", "/v2/cudasharedmemory/status", OK),
    ("GET", "/v2/cudasharedmemory", NOT_FOUND),
    ("GET", "/api/health/live", NOT_FOUND),
    ("GET", "/api/status", NOT_FOUND),
]


@pytest.fixture(scope="module")
def our_port(echo_models: Path) -> Iterator[int]:
    options = local_options(echo_models, allow_grpc=False, allow_metrics=False, allow_client_shm=True)
    with Server(options) as server:
        yield server.http_port


@pytest.fixture(scope="module")
def real_port(real_triton: Callable[[Path], dict[str, int]]) -> int:
    return real_triton(MODELS)["http"]


def ask(port: int, method: str, target: str) -> tuple[int, bytes]:
    """Status and body of a request whose target is sent as it stands."""
    head, body = exchange(port, method, target)
    return int(head.split()[1]), body


def exchange(port: int, method: str, target: str) -> tuple[bytes, bytes]:
    """Head and body of the answer to a request whose target is sent as it stands."""
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(head.encode())
        answer = b""
        while part := client.recv(65536):
            answer += part
    head_bytes, _, body = answer.partition(b"\r\n\r\n")
    return head_bytes, body


@pytest.mark.parametrize(("method", "path", "expected"), TABLE, ids=str)
def test_a_path_leads_where_the_table_says(
    our_port: int, method: str, path: str, expected: tuple[int, str]
) -> None:
    status, body = ask(our_port, method, path)

    assert status == expected[0]
    if method == "HEAD":
        assert body == b""  # that of the real server has one, which no client expects
    elif status != 200:
        assert json.loads(body)["error"] == expected[1]


@pytest.mark.parity
@pytest.mark.parametrize(("method", "path", "expected"), TABLE, ids=str)
def test_it_leads_there_on_a_real_server(
    real_port: int, method: str, path: str, expected: tuple[int, str]
) -> None:
    status, body = ask(real_port, method, path)

    assert status == expected[0]
    if status != 200:
        assert json.loads(body)["error"] == expected[1]


WITHOUT_BODY = [
    ("GET", "/v2/health/live", "text/plain"),
    ("GET", "/v2/health/ready", "text/plain"),
    ("GET", "/v2/models/echo/ready", "text/plain"),
    ("POST", "/v2/systemsharedmemory/unregister", "application/json"),
    ("POST", "/v2/cudasharedmemory/region/none/unregister", "application/json"),
]


def assert_has_no_body(port: int, method: str, path: str, content_type: str) -> None:
    head, body = exchange(port, method, path)

    assert body == b""
    assert f"Content-Type: {content_type}".encode() in head.split(b"\r\n")


@pytest.mark.parametrize(("method", "path", "content_type"), WITHOUT_BODY)
def test_an_answer_without_a_body_has_a_content_type(
    our_port: int, method: str, path: str, content_type: str
) -> None:
    assert_has_no_body(our_port, method, path, content_type)


@pytest.mark.parity
@pytest.mark.parametrize(("method", "path", "content_type"), WITHOUT_BODY)
def test_a_real_server_gives_it_the_same_one(
    real_port: int, method: str, path: str, content_type: str
) -> None:
    assert_has_no_body(real_port, method, path, content_type)
