"""Requests of sequences: their ids, flags and lengths."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from tritonpy.protos import messages
from tritonpy_bench.request_parts import GrpcParts, HttpParts, Parts
from tritonpy_bench.sources import Repeated, SequencePlan, Sequences, SequenceSource

HTTP = HttpParts(b"POST / HTTP/1.1\r\n", b'{"parameters":{"own":1', b'},"inputs":[]}', b"tensors")
GRPC = GrpcParts(messages.ModelInferRequest(model_name="m").SerializeToString())


def read(request: bytes) -> dict[str, object]:
    """The parameters of a request of either protocol."""
    if request.startswith(b"POST"):
        head, _, body = request.partition(b"\r\n\r\n")
        lengths = dict(line.split(b": ") for line in head.split(b"\r\n")[1:])
        assert int(lengths[b"Content-Length"]) == len(body)
        size = int(lengths[b"Inference-Header-Content-Length"])
        assert body[size:] == b"tensors"
        document = json.loads(body[:size])
        assert document["inputs"] == []
        parameters: dict[str, object] = document["parameters"]
        assert parameters.pop("own") == 1
        return parameters
    assert request[:1] + request[1:5] == b"\0" + (len(request) - 5).to_bytes(4, "big")
    message = messages.ModelInferRequest.FromString(request[5:])
    assert message.model_name == "m"
    return {
        name: getattr(value, str(value.WhichOneof("parameter_choice")))
        for name, value in message.parameters.items()
    }


@pytest.mark.parametrize("parts", [HTTP, GRPC], ids=["http", "grpc"])
def test_sequences_of_several_calls_have_ids_and_flags_of_their_own(parts: Parts) -> None:
    plan = SequencePlan([[parts]], 5, 0.4, range(7, 100, 2), seed=1)
    sequences = Sequences(plan)
    sources = [SequenceSource(sequences) for _ in range(3)]
    sent: dict[object, list[tuple[object, object]]] = defaultdict(list)

    for _ in range(40):
        for source in sources:
            parameters = read(source.next())
            sent[parameters["sequence_id"]].append((parameters["sequence_start"], parameters["sequence_end"]))

    whole = [flags for flags in sent.values() if flags[-1][1]]
    assert [*sent][:3] == [7, 9, 11]
    assert len(whole) > 10
    for flags in whole:
        assert 3 <= len(flags) <= 7
        assert [start for start, _ in flags] == [True] + [False] * (len(flags) - 1)
        assert [end for _, end in flags] == [False] * (len(flags) - 1) + [True]
    assert len({len(flags) for flags in whole}) > 1


def test_a_sequence_has_the_steps_of_its_stream_where_no_length_is_told() -> None:
    one, two = (
        GrpcParts(messages.ModelInferRequest(model_name="m", id=name).SerializeToString()) for name in "ab"
    )
    source = SequenceSource(Sequences(SequencePlan([[one, two], [two]], None, 0.0, range(1, 9), 0)))

    sent = [messages.ModelInferRequest.FromString(source.next()[5:]) for _ in range(6)]

    assert [request.id for request in sent] == ["a", "b", "b", "a", "b", "b"]
    assert [request.parameters["sequence_id"].int64_param for request in sent] == [1, 1, 2, 3, 3, 4]


def test_a_sequence_of_which_a_request_failed_is_left() -> None:
    source = SequenceSource(Sequences(SequencePlan([[GRPC]], 3, 0.0, range(1, 9), 0)))

    first = read(source.next())
    assert source.is_open
    source.abandon()

    assert (first["sequence_id"], read(source.next())["sequence_id"]) == (1, 2)


def test_requests_begin_at_an_offset_and_come_again() -> None:
    source = Repeated([b"a", b"b", b"c"], 2)

    assert [source.next() for _ in range(4)] == [b"c", b"a", b"b", b"c"]
