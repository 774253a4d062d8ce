"""Compressed messages: what they become is bounded and counted, and costs nobody else anything."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from tritonclient.grpc import service_pb2
from tritonpy.admission import Admission
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.frontends.grpc.compression import COMPRESSED, MessageInflation, inflate_here
from tritonpy.frontends.grpc.wire import field_head
from tritonpy.protos import ServerReflectionRequest, rpc_methods

LIMIT = 1 << 20
BOTH = [grpc.Compression.Gzip, grpc.Compression.Deflate]


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, lambda data: zlib.compress(data, 9)])
async def test_what_was_compressed_comes_out_and_is_counted_meanwhile(pack: Callable[..., bytes]) -> None:
    admission = Admission(0)
    data = bytes(range(256)) * 4096

    body = pack(data)

    assert body.startswith(COMPRESSED)
    assert await MessageInflation(LIMIT, admission).inflate(body) == data
    assert admission.held == 0


async def test_a_bomb_is_refused_before_it_has_cost_its_memory() -> None:
    admission = Admission(0)
    bomb = gzip.compress(bytes(256 << 20), 1)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArg, match=r"value of 1048576 bytes\. Use --grpc-max-inflated-size to"):
            await MessageInflation(LIMIT, admission).inflate(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 3 * LIMIT
    assert admission.held == 0


async def test_what_comes_out_is_let_in_only_where_there_is_room() -> None:
    admission = Admission(2 * LIMIT)
    admission.hold(2 * LIMIT)
    with pytest.raises(Unavailable, match="--max-inflight-bytes is 2097152"):
        await MessageInflation(LIMIT, admission).inflate(gzip.compress(bytes(LIMIT)))

    assert admission.held == 2 * LIMIT


async def test_little_that_becomes_much_to_parse_is_refused() -> None:
    inflation = MessageInflation(1 << 30, Admission(0))
    tensor = field_head(7, 8 << 20) + bytes(8 << 20)
    contents = field_head(5, 8 << 20) + bytes(8 << 20)

    assert await inflation.inflate(gzip.compress(tensor)) == tensor
    with pytest.raises(InvalidArg, match="of the request's message are no raw_input_contents"):
        await inflation.inflate(gzip.compress(contents))


async def test_one_message_may_not_become_more_than_all_may_hold() -> None:
    with pytest.raises(InvalidArg, match="value of 1000 bytes"):
        await MessageInflation(LIMIT, Admission(1000)).inflate(gzip.compress(bytes(2000)))


def test_no_request_begins_as_compressed_data_does() -> None:
    fields: list[FieldDescriptor] = [
        field
        for message in (*(method.request for method in rpc_methods()), ServerReflectionRequest)
        for field in message.DESCRIPTOR.fields
    ]

    for begin in COMPRESSED:
        number, wire_type = begin[0] >> 3, begin[0] & 7
        assert wire_type == 7 or all(field.number != number for field in fields)


def test_what_can_only_be_small_is_refused_where_it_is_not() -> None:
    assert inflate_here(zlib.compress(b"abc")) == b"abc"
    with pytest.raises(InvalidArg, match="65536 bytes"):
        inflate_here(zlib.compress(bytes(1 << 20)))


@pytest.mark.parametrize("compression", BOTH)
def test_every_kind_of_call_takes_compressed_messages(
    harness: Any, make_request: Callable[..., Any], compression: grpc.Compression
) -> None:
    data = bytes(range(256)) * 1000
    one = harness.stub.ModelInfer(make_request(data=data), timeout=20, compression=compression)
    [streamed] = harness.stub.ModelStreamInfer(
        iter([make_request(data=data)]), timeout=20, compression=compression
    )
    long_name = "x" * 10_000  # short messages are left as they are
    metadata = harness.stub.ModelMetadata(
        service_pb2.ModelMetadataRequest(name=long_name), timeout=20, compression=compression
    )
    reflect = harness.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    question = ServerReflectionRequest(list_services="", host=long_name).SerializeToString()
    [answer] = reflect(iter([question]), timeout=20, compression=compression)

    assert one.raw_output_contents[0] == data
    assert streamed.infer_response.raw_output_contents[0] == data
    assert metadata.name == long_name
    assert b"inference.GRPCInferenceService" in answer


@pytest.mark.parametrize("compression", BOTH)
def test_a_message_that_becomes_too_large_ends_its_call(
    start_harness: Callable[..., Any], make_request: Callable[..., Any], compression: grpc.Compression
) -> None:
    harness = start_harness(grpc_max_inflated_byte_size=100_000)
    requests = iter([make_request(), make_request(data=bytes(200_000))])

    with pytest.raises(grpc.RpcError) as refused:
        harness.stub.ModelInfer(make_request(data=bytes(200_000)), timeout=20, compression=compression)
    streamed = harness.stub.ModelStreamInfer(requests, timeout=20, compression=compression)
    first = next(streamed)
    with pytest.raises(grpc.RpcError) as ended:
        next(streamed)
    plain = harness.stub.ModelInfer(make_request(data=bytes(200_000)), timeout=20)

    assert first.error_message == ""
    assert plain.raw_output_contents[0] == bytes(200_000)
    for error in (refused.value, ended.value):
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "--grpc-max-inflated-size" in error.details()
