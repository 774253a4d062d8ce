"""Metadata that becomes parameters of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tritonpy.errors import InvalidArg


def test_metadata_that_the_pattern_finds_becomes_parameters(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    harness = start_harness(grpc_header_forward_pattern="X-|^tag$")
    metadata = (("x-one", "1"), ("my-x-two", "z"), ("tag", "t"), ("tags", "no"), ("other", "no"))

    harness.stub.ModelInfer(make_request(), timeout=20, metadata=metadata)

    assert harness.dataplane.seen.parameters == {"x-one": "1", "my-x-two": "z", "tag": "t"}


def test_the_last_of_equal_keys_counts_and_wins_over_the_message(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    harness = start_harness(grpc_header_forward_pattern="^x$")
    request = make_request(parameters={"x": {"string_param": "message"}, "y": {"int64_param": 5}})

    harness.stub.ModelInfer(request, timeout=20, metadata=(("x", "first"), ("x", "last")))

    assert harness.dataplane.seen.parameters == {"x": "last", "y": 5}


def test_binary_metadata_is_left_out(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    harness = start_harness(grpc_header_forward_pattern="^x")

    harness.stub.ModelInfer(make_request(), timeout=20, metadata=(("x-bin", b"\0\xff"), ("x", "text")))

    assert harness.dataplane.seen.parameters == {"x": "text"}


def test_every_request_of_a_stream_gets_the_metadata(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    harness = start_harness(grpc_header_forward_pattern="^x$")
    requests = [make_request("manual"), make_request("manual", parameters={"y": {"bool_param": True}})]

    stream = harness.stub.ModelStreamInfer(iter(requests), timeout=20, metadata=(("x", "1"),))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    stream.cancel()

    assert [request.parameters for request in harness.dataplane.requests] == [
        {"x": "1"},
        {"y": True, "x": "1"},
    ]


@pytest.mark.parametrize("key", ["sequence_id", "priority", "timeout", "headers", "triton_grpc_error"])
def test_metadata_must_not_say_what_a_parameter_of_the_server_means(
    start_harness: Callable[..., Any], make_request: Callable[..., Any], key: str
) -> None:
    harness = start_harness(grpc_header_forward_pattern=".")
    text = f"Header '{key}' is reserved for Triton usage and cannot be forwarded."

    with pytest.raises(grpc.RpcError) as refused:
        harness.stub.ModelInfer(make_request(), timeout=20, metadata=((key, "1"),))
    [streamed] = harness.stub.ModelStreamInfer(
        iter([make_request(id="i")]), timeout=20, metadata=((key, "1"),)
    )

    assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, text)
    assert (streamed.error_message, streamed.infer_response.id) == (text, "i")


def test_without_a_pattern_nothing_is_forwarded(harness: Any, make_request: Callable[..., Any]) -> None:
    harness.stub.ModelInfer(make_request(), timeout=20, metadata=(("sequence_id", "1"), ("x", "1")))

    assert harness.dataplane.seen.parameters == {}


def test_a_pattern_that_is_none_is_refused_at_the_start(harness: Any) -> None:
    with pytest.raises(InvalidArg, match="--grpc-header-forward-pattern: '\\(' is not a regular expression"):
        harness.new_server(grpc_header_forward_pattern="(")
