"""Both transports of gRPC answer the same calls alike, to the byte: statuses, texts, headers and trailers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import GRPC_TRANSPORTS, local_options
from .grpc_calls import CASES
from .h2_caller import Outcome, call
from .http2 import raw

CODE = """
import time
import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        array = request.inputs()[0].as_numpy()
        if self.name == "fails":
            error = pb_utils.TritonError("so bad: 100% \\u2713", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        if self.name == "slow":
            time.sleep(0.4)
        if self.name == "parameters":
            array = numpy.frombuffer(request.parameters().encode(), numpy.uint8)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)])
"""
EACH = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CONFIG = {
    "input": [{"name": "INPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}],
}
RESTRICTED = (("model-repository",), "key", "open")
FORWARDED = "^(x-|grpc-x).*"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    for name in ("echo", "slow", "fails", "parameters"):
        repository.python(name, CODE, config=CONFIG)
    repository.python("each", EACH, config={**CONFIG, "model_transaction_policy": {"decoupled": True}})
    return repository.path


def serving_on(transport: str, models: Path) -> Iterator[int]:
    options = local_options(
        models,
        allow_http=False,
        allow_metrics=False,
        grpc_transport=transport,
        grpc_header_forward_pattern=FORWARDED,
        grpc_restricted_protocols=(RESTRICTED,),
    )
    with Server(options) as server:
        yield server.grpc_port


@pytest.fixture(scope="module")
def native_port(models: Path) -> Iterator[int]:
    yield from serving_on("native", models)


@pytest.fixture(scope="module")
def grpcio_port(models: Path) -> Iterator[int]:
    yield from serving_on("grpcio", models)


@pytest.fixture(scope="module")
def real_port(models: Path, real_triton: Callable[..., dict[str, int]]) -> int:
    return real_triton(
        models,
        f"--grpc-header-forward-pattern={FORWARDED}",
        "--grpc-restricted-protocol=model-repository:key=open",
    )["grpc"]


# Where they differ on purpose: of each call what grpcio answers, and what native does.
NO_ANSWER = "none"
DIFFERENT = {
    # HTTP says what is wrong where the request is no call of gRPC; grpcio resets the stream, or answers.
    "content-type of something else": ("0", "HTTP 415"),
    "content-type that only begins alike": ("0", "HTTP 415"),
    "content-type of gRPC for browsers": ("0", "HTTP 415"),
    "GET": ("INTERNAL_ERROR", "HTTP 405"),
    "PUT": ("INTERNAL_ERROR", "HTTP 405"),
    "te of something else": ("13 Error parsing 'te' metadata", "PROTOCOL_ERROR"),
    "an empty path": ("12 Method not found!", "PROTOCOL_ERROR"),
    # Proxies drop it, and nothing is lost without it.
    "no te": ("INTERNAL_ERROR", "0"),
    # A list is allowed; what is no base64 is no metadata.
    "binary metadata, a list": ("13 Error parsing 'x-a-bin' metadata: illegal base64 encoding", "0"),
    "binary metadata that is none": ("13 Error parsing 'x-a-bin' metadata: illegal base64 encoding", "0"),
    # grpcio's limit, which is the same, holds as soon as a client has acknowledged it; this one never has.
    "metadata of 32 KiB": ("0", "8 received metadata size exceeds hard limit (32351 vs. 16384)"),
    # More than gRPC allows.
    "a timeout of nine digits": ("0", "13 Invalid grpc-timeout: '999999999m'"),
    # grpcio leaves a client without an answer, and takes the first of two messages.
    "no message": (NO_ANSWER, "12 a call that takes one message got none"),
    "no message, ended by an empty frame": (NO_ANSWER, "12 a call that takes one message got none"),
    "half a message": (NO_ANSWER, "13 the client's last message is incomplete"),
    "half a head": (NO_ANSWER, "13 the client's last message is incomplete"),
    "two messages": ("0", "12 a call that takes one message got more"),
    "a whole message and half a head": ("0", "13 the client's last message is incomplete"),
    "half a message in a stream": ("0", "13 the client's last message is incomplete"),
    "a flag of its own": (
        "5 Request for unknown model: '' is not found",
        "13 a message begins with the flag 2",
    ),
    # The same in other words, or with the status that gRPC's documents ask for.
    **dict.fromkeys(
        ("compressed with identity", "compressed without saying how"),
        (
            "13 Compression bit set but no encoding configured",
            "13 Compressed message received without a grpc-encoding",
        ),
    ),
    "compressed as nobody can": (
        "13 Error parsing 'grpc-encoding' metadata",
        "12 Compression algorithm 'snappy' is disabled.",
    ),
    "compressed and no gzip": (
        "0",
        "3 the request's body is not valid deflate: Error -3 while decompressing data: invalid distance too "
        "far back",
    ),
    **{
        f"a timeout {name}": (
            "13 Error parsing 'grpc-timeout' metadata",
            f"13 Invalid grpc-timeout: '{value}'",
        )
        for name, value in (
            ("without a unit", "60"),
            ("of an unknown unit", "60x"),
            ("that is no number", "soon"),
            ("below zero", "-1S"),
        )
    },
}
# The real server, 2.51, is of an older gRPC: its texts differ, and it resets where a newer one answers.
ONLY_REAL = {
    "reflection",  # it has none
    *(f"an unknown {what}" for what in ("call", "service")),  # has no text
    *(f"a path {what}" for what in ("without a call", "of another case", "with a query")),
    "an unknown model with a very long name",  # its text is longer than many clients take
    "bytes that are no message in a stream",  # ends it
    "binary metadata that is no text",  # fails the request
    "compressed and broken",  # has other words
}
NEVER = {name for name, (grpcio, _) in DIFFERENT.items() if grpcio == NO_ANSWER}


def said(outcome: Outcome) -> str:
    """What it came to, in a line."""
    if outcome.reset and outcome.headers is None:
        return outcome.reset
    status = (outcome.headers or {}).get(":status", "")
    return outcome.status if status == "200" else f"HTTP {status}"


def seen(outcome: Outcome) -> dict[str, Any]:
    """All of an outcome that a client may see.

    Native begins to answer a stream at once: then it has headers where grpcio has only trailers. grpcio sends
    a text that is empty.
    """
    parts = asdict(outcome)
    headers, trailers = parts.pop("headers") or {}, parts.pop("trailers") or {}
    if not trailers:
        trailers = {name: headers.pop(name) for name in ("grpc-status", "grpc-message") if name in headers}
    if not outcome.messages:
        headers.pop("grpc-accept-encoding", None)
    if trailers.get("grpc-message") == "":
        del trailers["grpc-message"]
    return {"headers": headers, "trailers": trailers, **parts}


@pytest.mark.parametrize("name", [name for name in CASES if name not in DIFFERENT])
def test_both_answer_alike(native_port: int, grpcio_port: int, name: str) -> None:
    ask = CASES[name]

    assert seen(call(native_port, ask)) == seen(call(grpcio_port, ask))


@pytest.mark.parametrize("name", DIFFERENT)
def test_differences_are_those_that_are_listed(native_port: int, grpcio_port: int, name: str) -> None:
    grpcio, native = DIFFERENT[name]
    ask = CASES[name]

    assert said(call(native_port, ask)) == native
    if name not in NEVER:  # nobody waits for that
        assert said(call(grpcio_port, ask)) == grpcio


@pytest.mark.parametrize("transport", GRPC_TRANSPORTS)
def test_long_metadata_of_a_client_that_knows_the_limit_is_refused(
    request: pytest.FixtureRequest, transport: str
) -> None:
    with closing(raw.Http2Client(request.getfixturevalue(f"{transport}_port"))) as client:
        client.greet()
        client.send(raw.call(1, x_long="x" * 17_000))
        answer = client.answer()

    assert answer.status == 8
    assert answer.text.startswith("received metadata size exceeds hard limit (")


def test_an_error_is_sent_in_one_frame_that_proxies_may_retry(native_port: int) -> None:
    for name in ("an unknown model", "an unknown call", "a restricted call", "an error of the model"):
        assert call(native_port, CASES[name]).trailers is None, name


@pytest.mark.parity
@pytest.mark.parametrize("name", [name for name in CASES if name not in DIFFERENT])
def test_native_answers_as_the_real_server(native_port: int, real_port: int, name: str) -> None:
    ours, real = (call(port, CASES[name]) for port in (native_port, real_port))
    is_alike = (said(ours), len(ours.messages)) == (said(real), len(real.messages))

    assert is_alike is (name not in ONLY_REAL), (ours, real)
