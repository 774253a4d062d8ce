"""What becomes of requests that wait while every instance is busy, on our server and on a real one."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.testing import DEADLINE_S

from ..servers import OURS_AND_REAL
from .asker import Asker, askers

# A policy keeps a real server from preparing batches ahead, before the instance is free.
POLICY = {"default_queue_policy": {"max_queue_size": 100}}
TWO = {"instance_group": [{"kind": "KIND_CPU", "count": 2}]}

LONG_DELAY_S = 5

CASES: dict[str, dict[str, Any]] = {
    "one_instance": {"max_batch_size": 8, "dynamic_batching": POLICY},
    "two_instances": {"max_batch_size": 2, "dynamic_batching": POLICY, **TWO},
    "in_order": {"max_batch_size": 1, "dynamic_batching": {**POLICY, "preserve_ordering": True}, **TWO},
    "as_done": {"max_batch_size": 1, "dynamic_batching": POLICY, **TWO},
    "long_delay": {
        "max_batch_size": 8,
        "dynamic_batching": {**POLICY, "max_queue_delay_microseconds": LONG_DELAY_S * 1_000_000},
    },
    "shorter_delay": {
        "max_batch_size": 8,
        "dynamic_batching": {**POLICY, "max_queue_delay_microseconds": LONG_DELAY_S * 500_000},
    },
    "overtaken": {
        "max_batch_size": 2,
        "dynamic_batching": {
            "priority_levels": 2,
            "default_priority_level": 2,
            "max_queue_delay_microseconds": 60_000_000,
        },
    },
    "lone": {"max_batch_size": 8, "dynamic_batching": {"max_queue_delay_microseconds": 300_000}},
    "cancelled": {"max_batch_size": 8, "dynamic_batching": POLICY},
    "hung_up": {"max_batch_size": 8, "dynamic_batching": POLICY},
    "in_order_cancelled": {"max_batch_size": 1, "dynamic_batching": {**POLICY, "preserve_ordering": True}},
    "types": {"max_batch_size": 8, "dynamic_batching": {}},
}

FIELDS = {str: "string_param", bool: "bool_param", int: "int64_param", float: "double_param"}


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def asker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Asker]]:
    root = tmp_path_factory.mktemp(request.param)
    with askers(request, root, CASES) as make:
        yield make


def message(model: Asker, number: int, **parameters: Any) -> Any:
    request = service_pb2.ModelInferRequest(model_name=model.name)
    request.inputs.add(name="X", datatype="INT32", shape=[1, 1])
    request.raw_input_contents.append(np.int32(number).tobytes())
    for name, value in parameters.items():
        field = FIELDS[type(value)]
        setattr(request.parameters[name], field, value)
    return request


def test_a_batch_is_what_waits_when_an_instance_becomes_free(asker: Callable[..., Asker]) -> None:
    model = asker("one_instance")
    for _ in range(5):
        model.ask()

    model.release()

    assert model.batches == [[0], [1, 2, 3, 4, 5]]


def test_two_instances_take_a_batch_each(asker: Callable[..., Asker]) -> None:
    model = asker("two_instances")

    model.ask(waits=False).result(DEADLINE_S)  # by the other instance
    model.open_gate()
    model.first.result(DEADLINE_S)

    assert model.executed == [0, 1]


def test_answers_that_are_kept_in_order_wait_for_earlier_ones(asker: Callable[..., Asker]) -> None:
    model = asker("in_order")
    later = [model.ask(waits=False) for _ in range(3)]
    model.until(lambda: sorted(model.executed) == [0, 1, 2, 3])
    time.sleep(0.1)  # they have been executed, and would have come by now

    held = [answer.done() for answer in (model.first, *later)]
    model.open_gate()

    assert held == [False] * 4
    assert [answer.result(DEADLINE_S)[0] for answer in later] == [200] * 3


def test_other_answers_come_when_they_are_done(asker: Callable[..., Asker]) -> None:
    model = asker("as_done")
    later = [model.ask(waits=False) for _ in range(3)]

    assert [answer.result(DEADLINE_S)[0] for answer in later] == [200] * 3
    assert not model.first.done()
    model.open_gate()


def test_a_lone_request_waits_for_the_delay(asker: Callable[..., Asker]) -> None:
    model = asker("lone", is_busy=False)
    began = time.monotonic()

    model.ask(waits=False).result(DEADLINE_S)

    assert time.monotonic() - began >= 0.3


@pytest.mark.stress  # it takes long, and a test of the policy says the same of virtual time
def test_a_delay_is_measured_from_when_the_oldest_request_came(asker: Callable[..., Asker]) -> None:
    model, other = asker("long_delay"), asker("shorter_delay", is_busy=False)
    model.ask()
    model.ask()
    time.sleep(LONG_DELAY_S + 0.1)

    model.open_gate()
    other.ask(waits=False).result(DEADLINE_S)

    assert model.batches == [[0], [1, 2]]  # they would come later than the other if their delay began now


def test_a_higher_level_overtakes_a_batch_that_waits_for_company(asker: Callable[..., Asker]) -> None:
    model = asker("overtaken", is_busy=False)
    low = model.ask(priority=2)
    high = model.ask(waits=False, priority=1)  # fills the batch, which leaves without the delay

    assert [low.result(DEADLINE_S)[0], high.result(DEADLINE_S)[0]] == [200, 200]
    assert model.batches == [[2, 1]]


def test_a_call_that_is_cancelled_is_never_executed(asker: Callable[..., Asker]) -> None:
    model = asker("cancelled")
    model.ask()
    with grpc.insecure_channel(f"127.0.0.1:{model.ports['grpc']}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ModelInfer.future(message(model, 2), timeout=DEADLINE_S)
        model.enter()
        call.cancel()
        model.leave(waits=not model.is_real)  # that one looks when it makes the next batch
        if model.is_real:  # nothing tells when it has heard of it
            stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=DEADLINE_S)
            time.sleep(1)

        assert model.release() == [1]
    assert call.cancelled()
    model.until(lambda: model.failures == 1)


def test_an_http_client_that_hangs_up_leaves_the_queue(asker: Callable[..., Asker]) -> None:
    model = asker("hung_up")
    if model.is_real:
        pytest.skip("it does not notice HTTP clients that hang up")
    model.ask()
    body = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [2]}]}
    connection = http.client.HTTPConnection("127.0.0.1", model.ports["http"], timeout=DEADLINE_S)
    connection.request("POST", "/v2/models/hung_up/infer", json.dumps(body))
    model.enter()
    connection.close()
    model.leave()

    assert model.release() == [1]
    assert model.failures == 1


def test_a_request_that_leaves_the_queue_holds_up_nobody_who_is_kept_in_order(
    asker: Callable[..., Asker],
) -> None:
    model = asker("in_order_cancelled")
    with grpc.insecure_channel(f"127.0.0.1:{model.ports['grpc']}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ModelInfer.future(message(model, 1), timeout=DEADLINE_S)
        model.enter()
        call.cancel()
        model.leave(waits=not model.is_real)
        behind = stub.ModelInfer.future(message(model, 2), timeout=DEADLINE_S)
        time.sleep(0.2)  # until it waits
        model.open_gate()

        assert behind.result().raw_output_contents[0] == np.int32(2).tobytes()


@pytest.mark.parametrize("name", ["priority", "timeout"])
@pytest.mark.parametrize("value", ["1", "high", True, -1, 1.5, 2**70, None, [1]], ids=str)
def test_what_is_no_number_is_refused_over_http(asker: Callable[..., Asker], name: str, value: Any) -> None:
    model = asker("types", is_busy=False)

    assert model.answer({name: value}) == (
        500,
        f"Unable to parse '{name}': attempt to access JSON non-unsigned-integer as unsigned-integer",
    )


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        *(("priority", value, "int64_param or uint64_param") for value in ("1", True, 1.5)),
        *(("timeout", value, "int64_param") for value in ("1", True, 1.5)),
        ("priority", -1, ""),
    ],
    ids=str,
)
def test_what_is_no_number_is_refused_over_grpc(
    asker: Callable[..., Asker], name: str, value: Any, error: str
) -> None:
    model = asker("types", is_busy=False)
    with grpc.insecure_channel(f"127.0.0.1:{model.ports['grpc']}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(message(model, 1, **{name: value}), timeout=DEADLINE_S)

    expected = f"invalid value type for '{name}' parameter, expected {error}."
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == (
        expected if error else "invalid value for 'priority', expected value >= 0."
    )
