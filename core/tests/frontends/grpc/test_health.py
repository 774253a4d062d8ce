"""The standard health service, as probes and load balancers ask it."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2
from tritonpy.errors import NotFound
from tritonpy_sdk.testing import until

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def health(harness: Any) -> health_pb2_grpc.HealthStub:
    return health_pb2_grpc.HealthStub(harness.channel)


def check(health: health_pb2_grpc.HealthStub, service: str = "") -> int:
    status: int = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=20).status
    return status


@pytest.mark.parametrize("service", ["", "inference.GRPCInferenceService", "echo", "nope"])
def test_every_service_is_as_healthy_as_the_server_is_ready(
    harness: Any, health: health_pb2_grpc.HealthStub, service: str
) -> None:
    ready = check(health, service)
    harness.dataplane.is_up = False
    unready = check(health, service)

    assert (ready, unready) == (SERVING, NOT_SERVING)


def test_watch_says_what_is_and_then_what_changes(harness: Any, health: health_pb2_grpc.HealthStub) -> None:
    watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=20)
    seen = [next(watch).status]
    for is_up in (False, True):
        harness.dataplane.is_up = is_up
        seen.append(next(watch).status)

    assert seen == [SERVING, NOT_SERVING, SERVING]


def test_watcher_that_goes_away_costs_nothing_more(harness: Any, health: health_pb2_grpc.HealthStub) -> None:
    before = harness.call(asyncio.all_tasks)
    watches = [health.Watch(health_pb2.HealthCheckRequest(), timeout=20) for _ in range(10)]
    for watch in watches:
        next(watch)
    during = harness.call(asyncio.all_tasks) - before

    for watch in watches:
        watch.cancel()

    until(lambda: len(harness.call(asyncio.all_tasks)) <= len(before))
    assert len(during) >= 10


def test_watch_says_that_the_server_stops_and_then_ends(
    harness: Any, health: health_pb2_grpc.HealthStub, make_request: Any
) -> None:
    answer = harness.stub.ModelInfer.future(make_request("manual"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=20)
    first = next(watch).status
    harness.dataplane.is_up = False  # as the data plane of a stopping server says

    stopped = asyncio.run_coroutine_threadsafe(harness.server.stop(20), harness.loop)
    second = next(watch).status
    checked = check(health)
    harness.call(lambda: harness.dataplane.requests.pop().fail(NotFound("late")))

    with pytest.raises(grpc.RpcError) as ended:
        next(watch)
    assert (first, second, checked) == (SERVING, NOT_SERVING, NOT_SERVING)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    stopped.result(20)
    answer.exception(20)


def test_a_watcher_does_not_hold_up_the_end(
    harness: Any, health: health_pb2_grpc.HealthStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonpy.frontends.grpc.grpcio.server._LAST_BYTES_S", 3600)
    watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=20)
    next(watch)
    harness.dataplane.is_up = False

    harness.run(asyncio.wait_for(harness.server.stop(3600), 20))

    assert next(watch).status == NOT_SERVING


def test_bytes_that_are_no_message_are_refused(harness: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        harness.channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x7f", timeout=20)

    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert harness.stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=20).live
