"""The gRPC port called by @grpc/grpc-js on Node's HTTP/2."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonpy.protos
from tritonpy_sdk.testing import until

from ..fetched import CACHE, from_npm
from .conftest import ClientServer, TlsServer
from .models import seen_by_model

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(600)]  # the first time it is fetched

PROGRAM = Path(__file__).with_name("grpc_js.cjs")
PROTO = Path(tritonpy.protos.__file__).with_name("grpc_service.proto")
PATIENCE_S = 60
CANCELLED, DEADLINE_EXCEEDED, NOT_FOUND, INTERNAL, UNAVAILABLE = 1, 4, 5, 13, 14

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def node_modules() -> Path:
    return from_npm(CACHE / "grpc-js", "@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1")


@pytest.fixture
def call(node_modules: Path, server: ClientServer) -> Call:
    """Run one of the program's calls; gives its outcome."""

    def run(name: str, target: str = server.grpc, *more: str) -> Any:
        command = ["node", PROGRAM, node_modules, PROTO, target, name, *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_an_inference_comes_back_with_metadata(call: Call) -> None:
    found = call("unary")

    assert found["id"] == "mine"
    numbers, seen = map(base64.b64decode, found["raw"])
    assert np.frombuffer(numbers, np.float32).tolist() == [1.5, -2]
    assert seen_by_model(seen)["parameters"] == {"x-tenant": "blue"}


def test_a_tensor_larger_than_every_window_comes_back_whole(call: Call) -> None:
    assert call("large") == {"same": True}


def test_calls_side_by_side_are_answered_each_with_its_own(call: Call) -> None:
    assert call("beside") == list(range(30))


def test_failures_have_their_status_and_text(call: Call) -> None:
    unknown, refused, raised = call("failures")

    assert unknown == {"code": NOT_FOUND, "details": "Request for unknown model: 'fäils' is not found"}
    assert (refused["code"], refused["details"]) == (UNAVAILABLE, "so UNAVAILABLE")
    assert raised["code"] == INTERNAL
    assert "ValueError: boom" in raised["details"]


def test_a_stream_answers_as_it_is_asked_and_ends_well(call: Call) -> None:
    found = call("bidi")

    assert [(each["id"], each["numbers"]) for each in found["responses"]] == [
        ("first", [0]),
        ("first", [1]),
        ("second", []),
        ("third", [0]),
    ]
    assert found["responses"][2]["error"] == "Request for unknown model: 'nope' is not found"
    assert (found["code"], found["metadata"]) == (0, True)


def test_a_stream_that_is_cancelled_stops_its_model(call: Call, server: ClientServer) -> None:
    assert call("cancel")["code"] == CANCELLED

    until(lambda: re.search(r"stopped counting to 4012 at \d+", server.log))


def test_a_deadline_ends_the_call_and_its_request(call: Call, server: ClientServer) -> None:
    assert call("deadline")["code"] == DEADLINE_EXCEEDED

    begun = re.findall(r"began request (js-\d+)", server.log)
    until(lambda: all(f"nobody waits for request {name}" in server.log for name in begun))


def test_messages_may_be_compressed(call: Call) -> None:
    assert call("gzip") == {"same": True, "details": ""}


def test_tls_is_spoken(call: Call, tls_server: TlsServer) -> None:
    unknown, *_ = call("failures", f"localhost:{tls_server.port}", str(tls_server.authority_file))

    assert unknown["code"] == NOT_FOUND
