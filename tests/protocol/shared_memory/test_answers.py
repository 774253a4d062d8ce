"""What is answered to requests that name regions: by ours, and, in the parity run, by a real server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from . import grpc_cases, http_cases
from .memory import Http, Memory, shape_of


def check_http(client: Http, case: Any, memory: Callable[..., Memory]) -> None:
    made = {"in": memory(http_cases.FLOATS), "out": memory(), "text": memory(http_cases.STRINGS)}
    for name, region in made.items():
        client.register(name, region)

    status, answer = client.ask(case.method, case.path, case.body)

    if status != 200 and case.answer["error"].endswith("…"):
        assert answer["error"].startswith(case.answer["error"][:-1])
    else:
        assert answer == case.answer
    assert status == case.status
    assert made["out"].content == case.written.ljust(64, b"\0")


@pytest.mark.parametrize("case", http_cases.CASES, ids=lambda case: case.name)
def test_http_answers_as_triton_does(
    ours: dict[str, int], http_of: Callable[[int], Http], memory: Callable[..., Memory], case: Any
) -> None:
    check_http(http_of(ours["http"]), case, memory)


@pytest.mark.parity
@pytest.mark.parametrize("case", http_cases.CASES, ids=lambda case: case.name)
def test_a_real_server_answers_the_same_over_http(
    real: dict[str, int], http_of: Callable[[int], Http], memory: Callable[..., Memory], case: Any
) -> None:
    check_http(http_of(real["http"]), case, memory)


def check_grpc(client: Http, stub: Any, case: grpc_cases.Case, memory: Callable[..., Memory]) -> None:
    made = {"in": memory(http_cases.FLOATS), "out": memory()}
    for name, region in made.items():
        client.register(name, region)

    try:
        answer = stub.ModelInfer(case.request, timeout=30)
        status: Any = grpc.StatusCode.OK
        text: Any = b"".join(answer.raw_output_contents)
        assert len(answer.raw_output_contents) == len(answer.outputs) == 1
        assert not answer.outputs[0].parameters
    except grpc.RpcError as error:
        status, text = error.code(), error.details()  # type: ignore[attr-defined]

    assert (status, text) == (case.status, case.text)
    assert made["out"].content == case.written.ljust(64, b"\0")


@pytest.mark.parametrize("case", grpc_cases.CASES, ids=lambda case: case.name)
def test_grpc_answers_as_triton_does(
    ours: dict[str, int], http_of: Any, stub_of: Any, memory: Callable[..., Memory], case: grpc_cases.Case
) -> None:
    check_grpc(http_of(ours["http"]), stub_of(ours["grpc"]), case, memory)


@pytest.mark.parity
@pytest.mark.parametrize("case", grpc_cases.CASES, ids=lambda case: case.name)
def test_a_real_server_answers_the_same_over_grpc(
    real: dict[str, int], http_of: Any, stub_of: Any, memory: Callable[..., Memory], case: grpc_cases.Case
) -> None:
    check_grpc(http_of(real["http"]), stub_of(real["grpc"]), case, memory)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_empty_tensor_needs_no_bytes_in_a_region(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory], client_of: Any, protocol: str
) -> None:
    http_of(ours["http"]).register("in", memory())
    module, client = client_of(protocol, ours)
    tensor = module.InferInput("INPUT0", [0], "FP32")
    tensor.set_shared_memory("in", 0)
    wanted = module.InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory("in", 0)

    answer = client.infer("numbers", [tensor], outputs=[wanted])

    assert shape_of(answer) == [0]


def test_one_object_may_be_registered_under_two_names(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory]
) -> None:
    client = http_of(ours["http"])
    shared = memory(http_cases.FLOATS)
    for name in ("one", "two"):
        client.register(name, shared)

    _, answer = client.ask("GET", f"{http_cases.SYSTEM}/status")

    assert [region["name"] for region in answer] == ["one", "two"]
