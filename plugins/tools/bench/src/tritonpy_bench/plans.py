"""Plans of clients from a load."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy_bench.answers import Expected, Reader
from tritonpy_bench.client import Plan, place_of
from tritonpy_bench.contents import Stream
from tritonpy_bench.errors import BenchError
from tritonpy_bench.load import Load
from tritonpy_bench.paces import Concurrency, Pace, PeriodicConcurrency, split_pace
from tritonpy_bench.requests import expectations, prepare, prepare_streams, stream_expectations
from tritonpy_bench.shared_memory import ALIGNMENT, Regions
from tritonpy_bench.sources import SequencePlan
from tritonpy_bench.target import ModelFacts

_LENGTH = 20  # of sequences of made-up data


def make_plans(
    load: Load,
    facts: ModelFacts,
    streams: Sequence[Stream],
    regions: Regions | None,
    request_limit: int,
    processes: int,
) -> list[Plan]:
    """The plans of clients that make a load together.

    Args:
        load: the load.
        facts: about its model.
        streams: rows that are sent.
        regions: shared memory for tensors; None to send them.
        request_limit: requests in all; 0 for no limit.
        processes: clients at most.

    Raises:
        BenchError: the model does not take what is sent.
    """
    # A client without a request would have no limit.
    paces = split_pace(load.pace, min(processes, request_limit or processes))
    count = len(paces)
    requests: list[bytes] = []
    expected: list[Sequence[Expected]] = []
    sequences: list[SequencePlan | None] = [None] * count
    if facts.is_sequence:
        sequences = [*_sequences(load, facts, streams, regions, count)]
    else:
        requests = [parts.plain() for parts in prepare(load, facts, streams, regions)]
        expected = expectations(load, streams)
    reader = None
    if load.tokens or any(step.expected for stream in streams for step in stream):
        reader = Reader({output.name: output for output in facts.outputs}, load.is_generate)
    metadata = [(name.lower(), value) for name, value in load.headers.items()]
    return [
        Plan(
            load.protocol,
            load.endpoint,
            place_of(load),
            requests,
            number * len(requests) // count,
            sequences[number],
            max(1, load.sequences.count // count + (number < load.sequences.count % count)),
            pace,
            request_limit // count + (number < request_limit % count),
            load.timeout_s,
            metadata,
            expected,
            load.tokens,
            reader,
        )
        for number, pace in enumerate(paces)
    ]


def shared_byte_size(load: Load, facts: ModelFacts, streams: Sequence[Stream]) -> int:
    """Room for the inputs of all prepared requests in shared memory, with what lies between them."""
    rows = [content for stream in streams for step in stream for content in step.contents]
    # Each row is in as many requests as a request has rows, at most.
    return load.batch_size * sum(len(content.wire) + ALIGNMENT for content in rows)


def _sequences(
    load: Load, facts: ModelFacts, streams: Sequence[Stream], regions: Regions | None, clients: int
) -> list[SequencePlan]:
    shape = load.sequences
    at_once = _at_once(load.pace, shape.count)
    if shape.id_count < at_once:
        raise BenchError(f"{shape.id_count} correlation ids are too few for {at_once} sequences at a time")
    is_made_up = load.inputs.source in ("random", "zero")
    length = _LENGTH if shape.length is None and is_made_up else shape.length
    prepared = prepare_streams(load, facts, streams, regions)
    expected = stream_expectations(load, streams)
    end = shape.first_id + shape.id_count
    return [
        SequencePlan(
            prepared,
            length,
            shape.variation if length is not None else 0.0,
            range(shape.first_id + number, end, clients),
            load.inputs.seed + number,
            expected,
        )
        for number in range(clients)
    ]


def _at_once(pace: Pace, count: int) -> int:
    match pace:
        case Concurrency():
            return pace.requests
        case PeriodicConcurrency():
            return pace.end
        case _:
            return count
