"""Answers as clients read them, however they were made."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.frontends.http.answer import AnswerWriter
from tritonpy.frontends.http.connection.message import HttpRequest
from tritonpy.frontends.http.encoder import GAP, Encoded, ResponseEncoder
from tritonpy.frontends.http.infer import ALL_BINARY
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor

from .by_hand import Codec, Connection

SIZES = st.sampled_from([0, 1, 100, 20_000, 70_000])
INFLATE = {None: bytes, b"gzip": gzip.decompress, b"deflate": zlib.decompress}


async def sent(
    encoded: Encoded, coding: bytes | None = None, *, leaves: bool = False, keep_alive: bool = True
) -> Connection:
    codec = Codec()
    writer = AnswerWriter(codec)  # type: ignore[arg-type]  # as much of one as is asked for
    connection = Connection(HttpRequest(b"POST", "/", {}, b"", keep_alive))
    writer.send(connection, InferRequest("m", {}), encoded, coding)
    codec.go.set()
    if leaves:
        connection.leave()
    async with asyncio.timeout(20):
        while writer._tasks:
            await asyncio.wait(writer._tasks)
    return connection


@given(
    json_size=SIZES,
    wire_sizes=st.lists(SIZES, max_size=3),
    missing_count=st.integers(0, 2),
    coding=st.sampled_from(list(INFLATE)),
    status=st.sampled_from([200, 503]),
)
def test_a_client_reads_what_was_encoded(
    json_size: int, wire_sizes: list[int], missing_count: int, coding: bytes | None, status: int
) -> None:
    missing = [Tensor.from_numpy(str(number), np.arange(3)) for number in range(missing_count)]
    document = b"[" + b"".join(GAP + b"," for _ in missing) + b'"' + b"x" * json_size + b'"]'
    wires = [bytes([number]) * size for number, size in enumerate(wire_sizes)]
    encoded = Encoded(document, wires, sum(wire_sizes), missing)
    encoded.status, encoded.headers = status, (b"X-More: 7\r\n",)

    connection = asyncio.run(sent(encoded, coding))

    body = INFLATE[coding](connection.body)
    headers = connection.headers
    header_length = int(headers.pop(b"Inference-Header-Content-Length", len(body)))
    assert (connection.status, connection.answer_count) == (status, 1)
    assert json.loads(body[:header_length]) == [[0, 1, 2]] * missing_count + ["x" * json_size]
    assert body[header_length:] == b"".join(wires)
    is_binary = header_length != len(body)
    assert headers[b"Content-Type"] == (b"application/octet-stream" if is_binary else b"application/json")
    assert headers.get(b"Content-Encoding") == coding
    assert headers[b"X-More"] == b"7"


@given(
    element_counts=st.lists(st.sampled_from([0, 1, 100, 20_000]), min_size=1, max_size=3),
    coding=st.sampled_from(list(INFLATE)),
    keep_alive=st.booleans(),
)
def test_what_is_remembered_of_a_response_is_written_as_if_it_were_not(
    element_counts: list[int], coding: bytes | None, keep_alive: bool
) -> None:
    encoder = ResponseEncoder()
    outputs = [Tensor.from_numpy(f"O{i}", np.full(n, i, np.uint8)) for i, n in enumerate(element_counts)]
    request = InferRequest("m", {}, model_version="1")
    encoder.encode(request, InferResponse(outputs), ALL_BINARY)
    remembered = encoder.encode(request, InferResponse(outputs), ALL_BINARY)
    afresh = Encoded(remembered.header, [tensor.wire() for tensor in outputs], sum(element_counts))

    quick = asyncio.run(sent(remembered, coding, keep_alive=keep_alive))
    slow = asyncio.run(sent(afresh, coding, keep_alive=keep_alive))

    assert remembered.opening
    assert quick.kept.written == slow.kept.written
    assert (b"Connection" in quick.headers) is not keep_alive
    assert json.loads(remembered.header)["outputs"][0]["parameters"]["binary_data_size"] == element_counts[0]


def answers() -> st.SearchStrategy[tuple[InferRequest, list[tuple[str, np.ndarray[Any, Any]]], Any]]:
    """A request, names and values of outputs, and parameters of the response; of each few, so they recur."""
    requests = st.builds(
        lambda model, version, id: InferRequest(model, {}, model_version=version, id=id),
        model=st.sampled_from(["m", "m1"]),
        version=st.sampled_from(["1", "11"]),
        id=st.sampled_from(["", "", "", "7"]),
    )
    values = st.builds(
        lambda shape, datatype: np.ones(shape, datatype),
        shape=st.sampled_from([(1,), (4,), (2, 2), (1, 4)]),
        datatype=st.sampled_from([np.float32, np.uint32]),
    )
    outputs = st.lists(st.tuples(st.sampled_from(["O", "P"]), values), min_size=1, max_size=2)
    return st.tuples(requests, outputs, st.sampled_from([None, None, None, {"k": 1}, {"k": True}]))


@given(st.lists(answers(), min_size=4, max_size=16), st.sampled_from([1, 512]))
def test_no_response_is_written_with_what_is_remembered_of_another(sequence: Any, most: int) -> None:
    encoder = ResponseEncoder()
    encoder.MOST_REMEMBERED = most
    for request, outputs, parameters in sequence * 2:
        response = InferResponse([Tensor.from_numpy(*output) for output in outputs], parameters=parameters)

        encoded = encoder.encode(request, response, ALL_BINARY)
        fresh = ResponseEncoder().encode(request, response, ALL_BINARY)

        assert (encoded.header, encoded.wire_size, encoded.opening) == (
            fresh.header,
            fresh.wire_size,
            fresh.opening,
        )
        head = json.loads(encoded.header)
        assert (head["model_name"], head["model_version"]) == (request.model_name, request.model_version)
        assert (head.get("id", ""), head.get("parameters")) == (request.id, parameters)
        assert [(each["name"], each["shape"]) for each in head["outputs"]] == [
            (name, list(value.shape)) for name, value in outputs
        ]
        assert len(encoder._remembered) <= most


@pytest.mark.parametrize("coding", [None, b"gzip"])
async def test_a_client_that_has_left_is_written_nothing(coding: bytes | None) -> None:
    missing = [Tensor.from_numpy("a", np.arange(3))]

    connection = await sent(Encoded(b"[" + GAP + b"]", missing=missing), coding, leaves=True)

    assert connection.kept.written == b""


async def test_json_that_cannot_be_written_is_an_error_in_its_place() -> None:
    missing: list[Any] = [Tensor.from_numpy("a", np.zeros(3, np.float16))]

    connection = await sent(Encoded(b"[" + GAP + b"]", missing=missing))

    assert connection.status == 400
    assert json.loads(connection.body)["error"].startswith("sending FP16 data via JSON is not supported")
