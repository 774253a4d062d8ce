"""Calls that need a key in their metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2
from tritonpy.errors import InvalidArg
from tritonpy.frontends.grpc.guard import CATEGORY_OF, INFERENCE_SERVICE
from tritonpy.frontends.restriction import CATEGORIES
from tritonpy.options import RestrictedCalls
from tritonpy.protos import rpc_methods

KEY = (("triton-grpc-protocol-admin", "secret"),)
WATCH = "/grpc.health.v1.Health/Watch"  # never ends by itself
MODEL = service_pb2.ModelInferRequest(model_name="echo").SerializeToString()
TEXT = "This protocol is restricted, expecting header 'triton-grpc-protocol-Admin'"


def restrict(*categories: str) -> tuple[RestrictedCalls, ...]:
    return ((categories, "Admin", "secret"),)


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    try:
        answer = call(*arguments, timeout=20, **options)
        if isinstance(answer, grpc.Call):
            list(answer)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "OK"


def test_every_call_has_a_category() -> None:
    names = {INFERENCE_SERVICE + method.name for method in rpc_methods()}

    assert names <= set(CATEGORY_OF)
    assert set(CATEGORY_OF.values()) == set(CATEGORIES)


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_restricted_category_and_no_other_needs_its_key(
    start_harness: Callable[..., Any], category: str
) -> None:
    harness = start_harness(grpc_restricted_protocols=restrict(category))
    refused = set()
    for name in CATEGORY_OF.keys() - {WATCH}:
        call, body = harness.channel.unary_unary(name), [MODEL]
        if name.endswith(("ModelStreamInfer", "ServerReflectionInfo")):
            call, body = harness.channel.stream_stream(name), [iter([]), iter([])]
        if outcome(call, body[0]) == f"UNAVAILABLE: {TEXT}":
            refused.add(name)
            assert TEXT not in outcome(call, body[-1], metadata=KEY)

    assert refused == {name for name in CATEGORY_OF if CATEGORY_OF[name] == category and name != WATCH}


def test_the_health_service_is_restricted_with_the_other_health_calls(
    start_harness: Callable[..., Any],
) -> None:
    harness = start_harness(grpc_restricted_protocols=restrict("health"))
    health = health_pb2_grpc.HealthStub(harness.channel)

    assert outcome(health.Check, health_pb2.HealthCheckRequest()) == f"UNAVAILABLE: {TEXT}"
    assert outcome(health.Watch, health_pb2.HealthCheckRequest()) == f"UNAVAILABLE: {TEXT}"
    assert outcome(health.Check, health_pb2.HealthCheckRequest(), metadata=KEY) == "OK"
    watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=20, metadata=KEY)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


@pytest.mark.parametrize(
    ("metadata", "passes"),
    [
        (KEY, True),
        ((("triton-grpc-protocol-admin", "Secret"),), False),
        ((("triton-grpc-protocol-admin", ""),), False),
        ((("triton-grpc-protocol-other", "secret"),), False),
        ((("admin", "secret"),), False),
        ((*KEY, ("triton-grpc-protocol-admin", "wrong")), True),
        ((("triton-grpc-protocol-admin", "wrong"), *KEY), False),  # as in Triton, the first one counts
    ],
)
def test_the_first_key_must_say_exactly_what_is_expected(
    start_harness: Callable[..., Any],
    make_request: Callable[..., Any],
    metadata: tuple[tuple[str, str], ...],
    passes: bool,
) -> None:
    harness = start_harness(grpc_restricted_protocols=restrict("inference", "metadata"))

    expected = "OK" if passes else f"UNAVAILABLE: {TEXT}"
    assert outcome(harness.stub.ModelInfer, make_request(), metadata=metadata) == expected
    assert outcome(harness.stub.ModelStreamInfer, iter([make_request()]), metadata=metadata) == expected
    assert outcome(harness.stub.ServerMetadata, service_pb2.ServerMetadataRequest(), metadata=metadata) == (
        expected
    )


def test_categories_may_have_keys_of_their_own(start_harness: Callable[..., Any]) -> None:
    mine = ("statistics",), "stat", "1"
    harness = start_harness(grpc_restricted_protocols=(*restrict("health", "trace"), mine))
    request = service_pb2.ModelStatisticsRequest()

    assert outcome(harness.stub.ModelStatistics, request, metadata=KEY).endswith("triton-grpc-protocol-stat'")
    assert outcome(harness.stub.ModelStatistics, request, metadata=(("triton-grpc-protocol-stat", "1"),)) == (
        "OK"
    )


def test_calls_that_are_not_there_stay_unimplemented(start_harness: Callable[..., Any]) -> None:
    harness = start_harness(grpc_restricted_protocols=restrict(*CATEGORIES))

    assert outcome(harness.channel.unary_unary(INFERENCE_SERVICE + "Nope"), b"").startswith("UNIMPLEMENTED")


def test_a_category_that_is_restricted_twice_is_refused_at_the_start(harness: Any) -> None:
    with pytest.raises(InvalidArg, match="category 'health' is restricted twice"):
        harness.new_server(grpc_restricted_protocols=(*restrict("health"), (("health",), "b", "c")))
