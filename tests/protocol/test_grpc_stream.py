"""Streams over gRPC: what ours sends, and, in the parity run, that a real server sends the same."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import GRPC_TRANSPORTS, TRANSPORTS_AND_REAL, local_options

ONCE = """
import json, os, time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            values = request.inputs()[0].as_numpy()
            if values[0] < 0:
                error = pb_utils.TritonError("negative", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
            else:
                time.sleep(float(values[0]))
                gate = json.loads(request.parameters() or "{}").get("gate")
                while gate and not os.path.exists(gate):
                    time.sleep(0.005)
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)]))
        return responses
"""

EACH = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for value in request.inputs()[0].as_numpy():
                if value < 0:
                    error = pb_utils.TritonError("negative", pb_utils.TritonError.INVALID_ARG)
                    sender.send(pb_utils.InferenceResponse(error=error))
                else:
                    tensor = pb_utils.Tensor("OUT", value.reshape(1))
                    sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

FINAL = "triton_final_response"
WANTS_EMPTY_FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}

Answer = tuple[str, str, str, bool | None, list[float]]
"""Error, model name, model version, final flag, values of the output."""


def infer(model: str, id: str, *values: float, **more: Any) -> Any:
    message = service_pb2.ModelInferRequest(model_name=model, id=id, **more)
    message.inputs.add(name="IN", datatype="FP32", shape=[len(values)])
    message.raw_input_contents.append(struct.pack(f"<{len(values)}f", *values))
    return message


def ask(stub: Any, *requests: Any, **options: Any) -> list[tuple[str, Answer]]:
    """Send the requests in one stream and close it; returns what came with its request id.

    Args:
        stub: of the server.
        requests: what is sent.
        options: of the call; `open_gate` is called with all that has come, whenever something has.
    """
    if not getattr(stub, "may_lose_answers", False):
        return asked(stub, requests, 50, **options)
    try:
        return asked(stub, requests, 15, **options)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        return asked(stub, requests, 15, **options)


def asked(stub: Any, requests: tuple[Any, ...], timeout_s: float, **options: Any) -> list[tuple[str, Answer]]:
    """See `ask`; at most so many seconds."""
    answers: list[tuple[str, Answer]] = []
    open_gate = options.pop("open_gate", lambda answers: None)
    for message in stub.ModelStreamInfer(iter(requests), timeout=timeout_s, **options):
        response = message.infer_response
        flag = response.parameters[FINAL].bool_param if FINAL in response.parameters else None
        values = [
            value
            for raw in response.raw_output_contents
            for value in struct.unpack(f"<{len(raw) // 4}f", raw)
        ]
        answers.append(
            (response.id, (message.error_message, response.model_name, response.model_version, flag, values))
        )
        open_gate(answers)
    return answers


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    repository = ModelRepository(root)
    config = {
        "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
        "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
    }
    repository.python("once", ONCE, config=config)
    repository.python("each", EACH, config={**config, "model_transaction_policy": {"decoupled": True}})
    return root


def stub_on(transport: str, models: Path) -> Iterator[Any]:
    options = local_options(models, allow_http=False, allow_metrics=False, grpc_transport=transport)
    with Server(options) as server, grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.fixture(scope="module")
def native_stub(models: Path) -> Iterator[Any]:
    yield from stub_on("native", models)


@pytest.fixture(scope="module")
def grpcio_stub(models: Path) -> Iterator[Any]:
    yield from stub_on("grpcio", models)


@pytest.fixture(params=GRPC_TRANSPORTS)
def our_stub(request: pytest.FixtureRequest) -> Any:
    """What is tested with this is not said of the real server."""
    return request.getfixturevalue(f"{request.param}_stub")


@pytest.fixture(scope="module")
def real_stub(models: Path, real_triton: Callable[[Path], dict[str, int]]) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{real_triton(models)['grpc']}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        stub.may_lose_answers = True  # once in a long while a stream of it never ends: it is asked again
        yield stub


@pytest.fixture(params=TRANSPORTS_AND_REAL)
def stub(request: pytest.FixtureRequest) -> Any:
    """What is tested with this is said of both servers."""
    return request.getfixturevalue(f"{request.param}_stub")


def test_responses_of_models_that_answer_once_keep_the_order_of_requests(stub: Any) -> None:
    answers = ask(
        stub,
        infer("once", "slow", 0.25),
        infer("once", "quick", 0),
        infer("nope", "bad"),
        infer("once", "end", 0),
    )

    assert answers == [
        ("slow", ("", "once", "1", True, [0.25])),
        ("quick", ("", "once", "1", True, [0])),
        ("bad", ("Request for unknown model: 'nope' is not found", "", "", None, [])),
        ("end", ("", "once", "1", True, [0])),
    ]


def test_error_of_a_model_leaves_the_stream_open(stub: Any) -> None:
    answers = ask(stub, infer("once", "bad", -1), infer("once", "good", 0))

    assert answers == [
        ("bad", ("negative", "once", "", True, [])),
        ("good", ("", "once", "1", True, [0])),
    ]


def test_decoupled_responses_come_without_the_lone_final_flag(stub: Any) -> None:
    assert ask(stub, infer("each", "e", 1, 2, 3)) == [
        ("e", ("", "each", "1", False, [value])) for value in (1, 2, 3)
    ]
    assert ask(stub, infer("each", "none")) == []


def test_lone_final_flag_comes_where_it_is_wanted(stub: Any) -> None:
    assert ask(stub, infer("each", "e", 1, parameters=WANTS_EMPTY_FINAL)) == [
        ("e", ("", "each", "1", False, [1])),
        ("e", ("", "each", "", True, [])),
    ]
    assert ask(stub, infer("each", "none", parameters=WANTS_EMPTY_FINAL, model_version="1")) == [
        ("none", ("", "each", "1", True, []))
    ]
    assert ask(stub, infer("once", "o", 0, parameters=WANTS_EMPTY_FINAL)) == [
        ("o", ("", "once", "1", True, [0]))
    ]


def test_error_among_decoupled_responses_is_not_final(stub: Any) -> None:
    assert ask(stub, infer("each", "e", 1, -1, 2)) == [
        ("e", ("", "each", "1", False, [1])),
        ("e", ("negative", "each", "", False, [])),
        ("e", ("", "each", "1", False, [2])),
    ]


def test_every_request_of_a_mixed_stream_is_answered_in_its_own_order(our_stub: Any) -> None:
    requests = []  # not for the real server: 2.51 dies of it
    for index in range(20):
        requests += [
            infer("once", f"o{index}", index / 1000),
            infer("each", f"e{index}", *range(index % 4)),
        ]

    answers = ask(our_stub, *requests)

    assert [id for id, _ in answers if id.startswith("o")] == [f"o{index}" for index in range(20)]
    for index in range(20):
        assert [answer[4] for id, answer in answers if id == f"e{index}"] == [
            [value] for value in range(index % 4)
        ]


def test_clients_may_want_a_status_for_the_error_of_a_model(our_stub: Any) -> None:
    # The real server answers the same, but 2.51 sometimes dies of it.
    with pytest.raises(grpc.RpcError) as ended:
        ask(our_stub, infer("once", "bad", -1), metadata=(("triton_grpc_error", "true"),))
    refused = ask(our_stub, infer("nope", "bad"), metadata=(("triton_grpc_error", "true"),))

    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "negative")
    assert refused == [("bad", ("Request for unknown model: 'nope' is not found", "", "", None, []))]


def test_half_close_waits_for_what_is_open_and_the_end_is_ok(stub: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = infer("once", "slow", 0.25, parameters={"gate": {"string_param": str(gate)}})

    def open_gate(answers: list[Any]) -> None:
        if len(answers) == 2:
            gate.touch()

    answers = ask(stub, slow, infer("each", "e", 1, 2), open_gate=open_gate)

    assert answers == [
        ("e", ("", "each", "1", False, [1])),
        ("e", ("", "each", "1", False, [2])),
        ("slow", ("", "once", "1", True, [0.25])),
    ]
    assert ask(stub) == []


def test_versions_that_are_not_there_cost_one_message_each(stub: Any) -> None:
    answers = ask(stub, infer("once", "a", 0, model_version="7"), infer("once", "b", 0, model_version="x"))

    assert [(id, answer[0]) for id, answer in answers] == [
        ("a", "Request for unknown model: 'once' version 7 is not found"),
        (
            "b",
            "failed to get model version from specified version string 'x' (details: stol), version should "
            "be an integral value > 0",
        ),
    ]


def test_wish_for_an_empty_final_response_changes_nothing_where_the_last_one_has_the_flag(stub: Any) -> None:
    answers = ask(
        stub,
        infer("once", "o", 0, parameters=WANTS_EMPTY_FINAL),
        infer("each", "e", parameters=WANTS_EMPTY_FINAL),
    )

    assert sorted(answers) == [
        ("e", ("", "each", "", True, [])),
        ("o", ("", "once", "1", True, [0])),
    ]


def test_deadline_of_a_stream_is_the_client_s(stub: Any) -> None:
    with pytest.raises(grpc.RpcError) as ended:
        list(stub.ModelStreamInfer(iter([infer("once", "slow", 1)]), timeout=0.2))

    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_unary_call_refuses_a_decoupled_model(stub: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(infer("each", "e", 1), timeout=30)

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert (
        refused.value.details() == "ModelInfer RPC doesn't support models with decoupled transaction policy"
    )
