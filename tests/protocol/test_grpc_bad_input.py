"""Bad input over gRPC: the answer of ours, and, in the parity run, of a real server."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc
from tritonpy.server import Server

from ..servers import GRPC_TRANSPORTS, local_options
from .grpc_bad_requests import CASES, PAIR, UNIMPLEMENTED, Case, Request, nob


def ask(stub: Any, request: Request) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(request, timeout=30)
    return refused.value.code(), refused.value.details()


def assert_answers(stub: Any, case: Case) -> None:
    code, text = ask(stub, case.request)

    assert code is case.code, text
    if case.text.startswith("^"):
        assert re.fullmatch(case.text[1:], text, re.DOTALL), text
    else:
        assert text == case.text


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of the HTTP cases: what is asked differs, not whom."""
    spec = importlib.util.spec_from_file_location("http_cases", Path(__file__).with_name("http_cases.py"))
    assert spec is not None
    assert spec.loader is not None
    http_cases = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = http_cases
    spec.loader.exec_module(http_cases)
    root = tmp_path_factory.mktemp("models")
    http_cases.build_models(root)
    return root


@pytest.fixture(scope="module", params=GRPC_TRANSPORTS)
def our_stub(request: pytest.FixtureRequest, models: Path) -> Iterator[Any]:
    options = local_options(models, allow_http=False, allow_metrics=False, grpc_transport=request.param)
    with Server(options) as server, grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.fixture(scope="module")
def real_stub(models: Path, real_triton: Callable[[Path], dict[str, int]]) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{real_triton(models)['grpc']}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_is_refused_in_tritons_words(our_stub: Any, case: Case) -> None:
    assert_answers(our_stub, case)


def test_the_server_lives_after_all_of_them(our_stub: Any) -> None:
    for case in CASES:
        ask(our_stub, case.request)

    assert our_stub.ModelInfer(nob(), timeout=30).raw_output_contents[0] == PAIR


def in_stream(stub: Any) -> list[tuple[str, str]]:
    """All cases in one stream, each with an id of its own; returns error and id of every response."""
    requests = []
    for index, case in enumerate(CASES):
        request = Request()
        request.CopyFrom(case.request)
        request.id = str(index)
        if case.code is not UNIMPLEMENTED:
            requests.append(request)
    responses = stub.ModelStreamInfer(iter(requests), timeout=50)
    return [(response.error_message, response.infer_response.id) for response in responses]


def assert_stream_answers(stub: Any) -> None:
    answers = in_stream(stub)

    expected = [(case.text, str(index)) for index, case in enumerate(CASES) if case.code is not UNIMPLEMENTED]
    assert [id for _, id in answers] == [id for _, id in expected]
    for (text, id), (wanted, _) in zip(answers, expected, strict=True):
        if wanted.startswith("^"):
            assert re.fullmatch(wanted[1:], text, re.DOTALL), text
        else:
            assert text == re.sub(r"\[request id: [^]]*\]", f"[request id: {id}]", wanted)


def test_bad_input_in_a_stream_is_a_message_and_the_stream_goes_on(our_stub: Any) -> None:
    assert_stream_answers(our_stub)


@pytest.mark.parity
@pytest.mark.parametrize("case", [case for case in CASES if not case.differs], ids=lambda case: case.name)
def test_a_real_server_says_the_same(real_stub: Any, case: Case) -> None:
    assert_answers(real_stub, case)


@pytest.mark.parity
def test_a_real_server_says_the_same_in_a_stream(real_stub: Any) -> None:
    assert_stream_answers(real_stub)
