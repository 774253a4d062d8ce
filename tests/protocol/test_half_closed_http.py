"""HTTP clients that leave, or end their side and wait: what is answered, and what is cancelled."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..on_loop import on_loop
from .http_transport import (
    CONFIG,
    GOOD,
    Gate,
    binary_request,
    closed_gate,
    connect,
    gated_server,
    json_request,
    read_response,
)


@pytest.fixture
def gate() -> Iterator[Gate]:
    yield from closed_gate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from gated_server(tmp_path_factory.mktemp("models"))


def test_a_client_that_hangs_up_cancels_its_queued_request(server: Server, gate: Gate) -> None:
    stats = server.runtime.registry.find("gated").stats
    executions, cancelled = stats.execution_count, stats.failures["CANCELED"]
    request = binary_request("gated", np.arange(4, dtype=np.float32))
    with connect(server) as running, running.makefile("rb") as stream:
        running.sendall(request)
        assert gate.is_busy.wait(20)
        waiting = connect(server)
        waiting.sendall(request)
        until(lambda: stats.pending_count == 1)
        waiting.close()
        until(lambda: stats.pending_count == 0)
        gate.is_open.set()
        assert read_response(stream)[0] == 200

    assert on_loop(server, lambda: stats.failures["CANCELED"]) == cancelled + 1
    assert stats.execution_count == executions + 1


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
def test_a_client_that_hangs_up_with_requests_behind_another_cancels_them_all(
    server: Server, gate: Gate, resets: bool
) -> None:
    stats = server.runtime.registry.find("gated").stats
    request = binary_request("gated", np.arange(4, dtype=np.float32))
    with connect(server) as running, running.makefile("rb") as stream:
        running.sendall(request)
        assert gate.is_busy.wait(20)
        executions = stats.execution_count
        waiting = connect(server)
        waiting.sendall(request * 3)  # which is not read while the second and third wait for the first
        until(lambda: stats.pending_count == 1)
        if resets:
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        waiting.close()
        until(lambda: stats.pending_count == 0)
        gate.is_open.set()
        assert read_response(stream)[0] == 200

    assert on_loop(server, lambda: stats.execution_count) <= executions + 1


def half_closed_request(model: str) -> bytes:
    return json_request(model, GOOD)


def test_a_client_that_ends_its_side_still_gets_the_answer(
    server: Server, dial: Callable[..., Any], gate: Gate
) -> None:
    """With an interim answer before it, which tells those who wait from those who are gone."""
    client = dial(server.http_port)
    client.send(half_closed_request("gated"))
    client.half_close()
    first = client.answer()
    gate.is_open.set()

    assert [first.status, client.answer().status] == [100, 200]
    assert client.stream.read() == b""


@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
def test_a_client_that_leaves_cancels_its_request_at_once(server: Server, gate: Gate, resets: bool) -> None:
    stats = server.runtime.registry.find("gated").stats
    cancelled = stats.failures["CANCELED"]
    request = binary_request("gated", np.arange(4, dtype=np.float32))
    with connect(server) as running, running.makefile("rb") as stream:
        running.sendall(request)
        assert gate.is_busy.wait(20)
        waiting = connect(server)
        waiting.sendall(request)
        until(lambda: stats.pending_count == 1)
        if resets:
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        waiting.close()
        until(lambda: stats.failures["CANCELED"] == cancelled + 1)  # the one before it is still running

        gate.is_open.set()
        assert read_response(stream)[0] == 200


@pytest.mark.parity
def test_the_real_server_answers_who_ends_its_side(
    real_triton: Callable[..., dict[str, int]], dial: Callable[..., Any], tmp_path: Path
) -> None:
    repository = ModelRepository(tmp_path)
    repository.model("slow", {**CONFIG, "backend": "python"})
    (tmp_path / "slow/1").mkdir(parents=True, exist_ok=True)
    (tmp_path / "slow/1/model.py").write_text(SLOW_PYTHON_MODEL)
    client = dial(real_triton(tmp_path)["http"])
    client.send(half_closed_request("slow"))
    client.half_close()

    assert client.answer().status == 200


SLOW_PYTHON_MODEL = """\
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.3)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy())]
            )
            for request in requests
        ]
"""
