"""Requests count against the bytes that the server may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tritonpy.errors import NotFound

LIMIT = 100_000


@pytest.fixture
def full(start_harness: Callable[..., Any], make_request: Callable[..., Any]) -> Any:
    """A server that holds one request, and has room for small ones."""
    harness = start_harness(max_inflight_byte_size=LIMIT)
    harness.waiting = harness.stub.ModelInfer.future(make_request("manual", bytes(60_000)), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    return harness


def held(harness: Any) -> int:
    byte_size: int = harness.call(lambda: harness.server.servicer.unary.admission.held)
    return byte_size


def finish(harness: Any) -> None:
    harness.call(lambda: harness.dataplane.requests.pop().fail(NotFound("done")))


def test_a_call_beyond_the_limit_is_refused_and_names_the_option(
    full: Any, make_request: Callable[..., Any]
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        full.stub.ModelInfer(make_request(data=bytes(60_000)), timeout=20)
    small = full.stub.ModelInfer(make_request(id="small"), timeout=20)

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "--max-inflight-bytes is 100000" in refused.value.details()
    assert small.id == "small"
    finish(full)


def test_a_streamed_request_beyond_the_limit_costs_one_message(
    full: Any, make_request: Callable[..., Any]
) -> None:
    requests = [make_request(data=bytes(60_000), id="large"), make_request(id="small")]

    large, small = full.stub.ModelStreamInfer(iter(requests), timeout=20)

    assert "--max-inflight-bytes is 100000" in large.error_message
    assert large.infer_response.id == "large"
    assert (small.error_message, small.infer_response.id) == ("", "small")
    finish(full)


@pytest.mark.parametrize("how", ["answered", "cancelled"])
def test_what_is_over_is_no_longer_held(full: Any, make_request: Callable[..., Any], how: str) -> None:
    during = held(full)
    stream = full.stub.ModelStreamInfer(iter([make_request("manual", bytes(20_000))]), timeout=20)
    full.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    both = held(full)

    if how == "cancelled":
        stream.cancel()
        full.waiting.cancel()
        full.dataplane.wait_for(lambda plane: len(plane.cancelled) == 2)
    finish(full)
    finish(full)
    if how == "answered":
        list(stream)
        full.waiting.exception(20)

    assert during > 60_000
    assert both > during + 20_000
    full.stub.ModelInfer(make_request(data=bytes(99_000)), timeout=20)
    assert held(full) == 0


@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_a_request_counts_until_its_model_is_done_whoever_has_gone_away(
    start_harness: Callable[..., Any], make_request: Callable[..., Any], how: str
) -> None:
    harness = start_harness(max_inflight_byte_size=LIMIT)
    request = make_request("manual", bytes(60_000))
    if how == "cancelled":
        answer = harness.stub.ModelInfer.future(request, timeout=20)
        harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
        answer.cancel()
    else:
        for timeout_s in (0.2, 2, 15):  # a busy machine may need longer than that to take the request
            harness.stub.ModelInfer.future(request, timeout=timeout_s).exception(20)
            if harness.dataplane.requests:
                break
    harness.dataplane.wait_for(lambda plane: len(plane.cancelled) == len(plane.requests) > 0)

    meanwhile = held(harness)
    with pytest.raises(grpc.RpcError, match="--max-inflight-bytes is 100000"):
        harness.stub.ModelInfer(make_request(data=bytes(60_000)), timeout=20)
    finish(harness)

    assert meanwhile == request.ByteSize()
    assert held(harness) == 0


def test_refused_and_broken_requests_are_not_held(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    harness = start_harness(max_inflight_byte_size=LIMIT)

    list(harness.stub.ModelStreamInfer(iter([make_request("nope"), make_request("crash")]), timeout=20))
    for model in ("nope", "crash", "decoupled", "fails"):
        with pytest.raises(grpc.RpcError):
            harness.stub.ModelInfer(make_request(model), timeout=20)
    with pytest.raises(grpc.RpcError):
        harness.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\xff", timeout=20)

    assert held(harness) == 0


@pytest.mark.parametrize(
    ("compression", "code", "words"),
    [
        (grpc.Compression.NoCompression, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"),
        (grpc.Compression.Gzip, grpc.StatusCode.INVALID_ARGUMENT, "value of 100000 bytes"),
    ],
)
def test_no_message_larger_than_the_limit_is_let_in_compressed_or_not(
    start_harness: Callable[..., Any],
    make_request: Callable[..., Any],
    compression: grpc.Compression,
    code: grpc.StatusCode,
    words: str,
) -> None:
    harness = start_harness(max_inflight_byte_size=LIMIT)

    with pytest.raises(grpc.RpcError) as refused:
        harness.stub.ModelInfer(make_request(data=bytes(1_000_000)), timeout=20, compression=compression)
    harness.stub.ModelInfer(make_request(data=bytes(90_000)), timeout=20, compression=compression)

    assert refused.value.code() is code
    assert words in refused.value.details()
