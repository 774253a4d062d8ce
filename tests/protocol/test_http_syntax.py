"""What HTTP allows, forbids and leaves open: how ours and the real server answer it.

Each case is sent as it stands. Where the real server answers something else than ours, the case says so; the
reasons are in docs/reference/differences.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options

GET = b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n"
POST = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: t\r\n"
JSON = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[1,2]}]}'
LENGTH = b"Content-Length: %d\r\n" % len(JSON)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(JSON), JSON)

OPEN, CLOSED, UNKNOWN = "open", "closed", "not looked at"


@dataclass(frozen=True)
class Case:
    """A request, the statuses of its answers, and what becomes of the connection."""

    request: bytes
    statuses: tuple[int, ...]
    after: str = OPEN
    error: str = ""
    real: tuple[tuple[int, ...], str] | None = None  # None: like ours


NOTHING = ((), CLOSED)
CASES = {
    "plain": Case(GET + b"\r\n", (200,)),
    "no host": Case(b"GET /v2/health/live HTTP/1.1\r\n\r\n", (200,)),
    "1.0": Case(GET.replace(b"1.1", b"1.0") + b"\r\n", (200,), CLOSED),
    "1.2": Case(GET.replace(b"1.1", b"1.2") + b"\r\n", (200,)),
    "1.9 that leaves": Case(GET.replace(b"1.1", b"1.9") + b"Connection: close\r\n\r\n", (200,), CLOSED),
    "1.2 with a body": Case(POST.replace(b"1.1", b"1.2") + LENGTH + b"\r\n" + JSON, (200,)),
    "an unknown method of 1.2": Case(
        GET.replace(b"GET", b"BREW").replace(b"1.1", b"1.2") + b"\r\n",
        (405,),
        CLOSED,
        "Method Not Allowed",
        ((405,), OPEN),
    ),
    "1.0 that stays": Case(
        POST.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\n" + LENGTH + b"\r\n" + JSON, (200,)
    ),
    "1.1 that leaves": Case(GET + b"Connection: close\r\n\r\n", (200,), CLOSED),
    "upper-case header names": Case(POST + LENGTH.upper() + b"\r\n" + JSON, (200,)),
    "lower-case header names": Case(POST + LENGTH.lower() + b"\r\n" + JSON, (200,)),
    "blanks around a value": Case(POST + LENGTH.replace(b": ", b":   ") + b"\r\n" + JSON, (200,)),
    "a body nobody asked for": Case(GET + b"Content-Length: 5\r\n\r\nhello", (200,)),
    "a target with its server": Case(GET.replace(b"/v2", b"http://t:8000/v2", 1) + b"\r\n", (200,)),
    "a target with its server and a query": Case(
        b"GET http://t/v2/health/live?a=http://b/ HTTP/1.1\r\nHost: t\r\n\r\n", (200,)
    ),
    "a fragment": Case(GET.replace(b"live", b"live#x") + b"\r\n", (404,)),
    "an offered upgrade": Case(
        POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + LENGTH + b"\r\n" + JSON, (200,)
    ),
    "expect": Case(POST + b"Expect: 100-continue\r\n" + LENGTH + b"\r\n" + JSON, (100, 200)),
    "expect, in other letters": Case(
        POST + b"EXPECT: 100-Continue\r\n" + LENGTH + b"\r\n" + JSON, (100, 200)
    ),
    "expect something unknown": Case(POST + b"Expect: 200-tea\r\n" + LENGTH + b"\r\n" + JSON, (100, 200)),
    "expect several things": Case(
        POST + b"Expect: 100-continue, tea\r\n" + LENGTH + b"\r\n" + JSON, (100, 200)
    ),
    "expect behind another request": Case(
        GET + b"\r\n" + POST + b"Expect: 100-continue\r\n" + LENGTH + b"\r\n" + JSON,
        (200, 100, 200),
        real=((200,), UNKNOWN),
    ),
    "expect where nothing is expected": Case(
        GET + b"Expect: 100-continue\r\n\r\n", (200,), real=((100, 200), OPEN)
    ),
    "expect in 1.0": Case(
        POST.replace(b"1.1", b"1.0") + b"Expect: 100-continue\r\n" + LENGTH + b"\r\n" + JSON,
        (200,),
        CLOSED,
        real=((100, 200), CLOSED),
    ),
    "chunked": Case(POST + CHUNKED + b"\r\n" + CHUNKS, (200,)),
    "chunked, in other letters": Case(
        POST
        + CHUNKED.upper().replace(b"CHUNKED", b"Chunked")
        + b"\r\n"
        + CHUNKS.replace(b"%x" % len(JSON), b"%X" % len(JSON)),
        (200,),
    ),
    "chunked with trailers": Case(
        POST + CHUNKED + b"\r\n" + CHUNKS[:-2] + b"Inference-Header-Content-Length: 5\r\n\r\n",
        (200,),
        real=((200,), UNKNOWN),
    ),
    "chunked with an extension": Case(
        POST + CHUNKED + b"\r\n" + CHUNKS.replace(b"\r\n", b";a=b\r\n", 1), (200,), real=NOTHING
    ),
    "a chunk without a size": Case(
        POST + CHUNKED + b"\r\nzz\r\n", (400,), CLOSED, "Invalid character in chunk size", NOTHING
    ),
    "a chunk of negative size": Case(
        POST + CHUNKED + b"\r\n-5\r\n", (400,), CLOSED, "Invalid character in chunk size", NOTHING
    ),
    "another coding": Case(
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", (501,), CLOSED, "'gzip, chunked'", ((200,), OPEN)
    ),
    "a length and chunks": Case(
        POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
        (400,),
        CLOSED,
        "Transfer-Encoding can't be present with Content-Length",
        ((200,), OPEN),
    ),
    "chunks and a length": Case(
        POST + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
        (400,),
        CLOSED,
        "Content-Length can't be present with Transfer-Encoding",
        ((200,), OPEN),
    ),
    "the same length twice": Case(
        POST + LENGTH + LENGTH + b"\r\n" + JSON, (400,), CLOSED, "Duplicate Content-Length", ((200,), OPEN)
    ),
    "a list of lengths": Case(
        POST + LENGTH.replace(b"\r\n", b", 5\r\n") + b"\r\n" + JSON,
        (400,),
        CLOSED,
        "Invalid character in Content-Length",
        NOTHING,
    ),
    "a negative length": Case(
        POST + b"Content-Length: -5\r\n\r\n", (400,), CLOSED, "Invalid character in Content-Length", NOTHING
    ),
    "a length that is no number": Case(
        POST + b"Content-Length: many\r\n\r\n", (400,), CLOSED, "Invalid character in Content-Length", NOTHING
    ),
    "a length of more than 64 bit": Case(
        POST + b"Content-Length: %d\r\n\r\n" % 2**64, (400,), CLOSED, "Content-Length overflow", NOTHING
    ),
    "a header over two lines": Case(
        GET + b"X: a\r\n b\r\n\r\n", (400,), CLOSED, "Unexpected whitespace after header value", NOTHING
    ),
    "a header without a colon": Case(GET + b"X\r\n\r\n", (400,), CLOSED, "Invalid header token", NOTHING),
    "a header without a name": Case(GET + b": a\r\n\r\n", (400,), CLOSED, "Invalid header token", NOTHING),
    "a blank before the colon": Case(
        GET + b"X : a\r\n\r\n", (400,), CLOSED, "Invalid header token", ((200,), OPEN)
    ),
    "a zero byte in a header": Case(
        GET + b"X: a\0b\r\n\r\n", (400,), CLOSED, "Invalid header value char", ((200,), OPEN)
    ),
    "a zero byte in the path": Case(
        GET.replace(b"live", b"live\0") + b"\r\n", (400,), CLOSED, "Invalid char in url path", ((200,), OPEN)
    ),
    "a path beyond ASCII": Case(
        GET.replace(b"live", b"\xff") + b"\r\n", (400,), CLOSED, "Invalid char in url path", ((404,), OPEN)
    ),
    "lines without a carriage return": Case(
        (GET + b"\r\n").replace(b"\r", b""), (400,), CLOSED, "Expected CRLF after version", NOTHING
    ),
    "no request line": Case(b"GARBAGE\r\n\r\n", (400,), CLOSED, "Invalid method encountered", NOTHING),
    "a TLS greeting": Case(
        b"\x16\x03\x01\x02\0\x01\0\x01", (400,), CLOSED, "Invalid method encountered", NOTHING
    ),
    "a method in small letters": Case(
        GET.replace(b"GET", b"get") + b"\r\n", (400,), CLOSED, "Invalid method encountered", NOTHING
    ),
    "an unknown method": Case(
        GET.replace(b"GET", b"BREW") + b"\r\n", (405,), CLOSED, "Method Not Allowed", ((405,), OPEN)
    ),
    "the first of two like headers counts": Case(
        POST
        + b"Inference-Header-Content-Length: 5\r\nInference-Header-Content-Length: 9\r\n"
        + LENGTH
        + b"\r\n"
        + JSON,
        (500,),
        error="at 5",
    ),
}


def check(client: Any, case: Case, statuses: tuple[int, ...], after: str) -> list[Any]:
    client.send(case.request)
    answers = [client.answer() for _ in statuses]

    assert tuple(answer.status for answer in answers) == statuses
    assert after == UNKNOWN or client.is_closed() == (after == CLOSED)
    return answers


@pytest.fixture(scope="module")
def server(echo_models: Path) -> Iterator[Server]:
    options = local_options(echo_models, allow_grpc=False, allow_metrics=False)
    with Server(options) as running:
        yield running


@pytest.mark.parametrize("name", CASES)
def test_ours_answers(server: Server, dial: Callable[..., Any], name: str) -> None:
    case = CASES[name]
    answers = check(dial(server.http_port), case, case.statuses, case.after)

    if case.error:
        assert case.error in answers[-1].error
    version = "HTTP/1.0" if b"HTTP/1.0" in case.request else "HTTP/1.1"
    assert {answer.version for answer in answers} == {version}


PYTHON_ECHO = """\
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy())]
            )
            for request in requests
        ]
"""


@pytest.fixture(scope="module")
def real_port(real_triton: Callable[..., dict[str, int]], tmp_path_factory: pytest.TempPathFactory) -> int:
    repository = ModelRepository(tmp_path_factory.mktemp("real"))
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    repository.model(
        "echo",
        {
            "backend": "python",
            "input": [{"name": "INPUT0", **tensor}],
            "output": [{"name": "OUTPUT0", **tensor}],
        },
    )
    (repository.path / "echo/1").mkdir(parents=True, exist_ok=True)
    (repository.path / "echo/1/model.py").write_text(PYTHON_ECHO)
    return real_triton(repository.path)["http"]


@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_the_real_server_answers(real_port: int, dial: Callable[..., Any], name: str) -> None:
    case = CASES[name]
    statuses, after = case.real or (case.statuses, case.after)
    check(dial(real_port), case, statuses, after)
