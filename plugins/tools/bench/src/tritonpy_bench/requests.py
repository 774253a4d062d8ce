"""Requests from the contents of inputs, ready to be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import gcd

import orjson
from tritonpy.cli.http_client import model_path
from tritonpy.protos import messages
from tritonpy.tensor import Tensor

from tritonpy_bench.answers import Expected
from tritonpy_bench.contents import Step, Stream, expected_outputs, join_rows
from tritonpy_bench.errors import BenchError
from tritonpy_bench.load import Load
from tritonpy_bench.request_parts import GrpcParts, HttpParts, Parts, WholeRequest, set_parameter
from tritonpy_bench.shared_memory import Region, Regions
from tritonpy_bench.target import JsonObject, ModelFacts

_MOST_BYTES = 2 << 30  # of all prepared requests together
_JSON_HEADERS = {"Content-Type": "application/json"}


def prepare(
    load: Load, facts: ModelFacts, streams: Sequence[Stream], regions: Regions | None = None
) -> list[Parts]:
    """The requests that a load sends one after the other, again and again.

    Args:
        load: what is sent.
        facts: about the model.
        streams: rows.
        regions: the shared memory in which tensors are put; None to send them.

    Raises:
        BenchError: the model takes no such batch, or rows do not fit together.
    """
    check(load, facts, streams)
    chosen = _in_turn(streams, load.batch_size)
    return _bounded(chosen, lambda rows: request_parts(load, facts, rows, regions))


def expectations(load: Load, streams: Sequence[Stream]) -> list[Sequence[Expected]]:
    """What the answers to the requests of `prepare` have to be; empty if nobody says it of any."""
    if not any(step.expected for stream in streams for step in stream):
        return []
    return [expected_outputs(rows) for rows in _in_turn(streams, load.batch_size)]


def stream_expectations(load: Load, streams: Sequence[Stream]) -> list[list[Sequence[Expected]]]:
    """Likewise of `prepare_streams`."""
    if not any(step.expected for stream in streams for step in stream):
        return []
    return [[expected_outputs([step] * load.batch_size) for step in stream] for stream in streams]


def _in_turn(streams: Sequence[Stream], batch_size: int) -> Iterator[list[Step]]:
    """The rows of each request, until they begin again with the first."""
    steps = [step for stream in streams for step in stream]
    for number in range(len(steps) // gcd(len(steps), batch_size)):
        yield [steps[(number * batch_size + row) % len(steps)] for row in range(batch_size)]


def prepare_streams(
    load: Load, facts: ModelFacts, streams: Sequence[Stream], regions: Regions | None = None
) -> list[list[Parts]]:
    """The requests of sequences, of which each takes a stream; a request has a row, as many times as asked.

    Raises:
        BenchError: as of `prepare`.
    """
    check(load, facts, streams)
    return [
        _bounded(
            ([step] * load.batch_size for step in stream),
            lambda rows: request_parts(load, facts, rows, regions),
        )
        for stream in streams
    ]


def check(load: Load, facts: ModelFacts, streams: Sequence[Stream]) -> None:
    """Refuse what the model would refuse, or what its endpoint cannot do.

    Raises:
        BenchError: with what would do.
    """
    most = max(1, facts.max_batch_size)
    if not 1 <= load.batch_size <= most:
        why = f"at most {most}" if facts.max_batch_size else "1, since the model has no batch dimension"
        raise BenchError(f"batch size {load.batch_size}: model '{facts.name}' takes {why}")
    wanted = "grpc" if load.endpoint == "stream" else "http" if load.is_generate else load.protocol
    if load.protocol != wanted:
        raise BenchError(f"endpoint '{load.endpoint}' is one of {wanted}, not of {load.protocol}")
    if facts.is_decoupled and load.endpoint == "infer":
        raise BenchError(
            f"model '{facts.name}' is decoupled, a request may have any number of responses: measure it over "
            f"gRPC with --streaming, or over HTTP with --endpoint generate_stream"
        )
    if load.shared_memory != "none" and any(step.expected for stream in streams for step in stream):
        raise BenchError(
            "'validation_data' is compared with outputs in responses, and with --shared-memory they lie "
            "elsewhere: leave one of the two out"
        )
    names = [output.name for output in facts.outputs]
    if load.tokens and load.tokens not in names:
        raise BenchError(f"tokens '{load.tokens}': model '{facts.name}' has the outputs {', '.join(names)}")
    if load.is_generate and (facts.is_sequence or load.shared_memory != "none"):
        raise BenchError(f"endpoint '{load.endpoint}' has neither sequences nor shared memory")


def request_parts(
    load: Load, facts: ModelFacts, rows: Sequence[Step], regions: Regions | None = None
) -> Parts:
    """One request."""
    tensors, own = join_rows(rows, facts)
    parameters: dict[str, object] = {**load.parameters, **own}
    if load.is_generate:
        return _generate(load, tensors, parameters)
    inputs = [regions.put(tensor) if regions else None for tensor in tensors]
    outputs = regions.outputs if regions else {}
    make = _http if load.protocol == "http" else _grpc
    return make(load, tensors, parameters, inputs, outputs)


def _bounded(chosen: Iterable[Sequence[Step]], make: Callable[[Sequence[Step]], Parts]) -> list[Parts]:
    requests, total = [], 0
    for rows in chosen:
        requests.append(make(rows))
        total += len(requests[-1].plain())
        if total > _MOST_BYTES:
            raise BenchError(f"input data: all requests together have more than {_MOST_BYTES >> 30} GiB")
    return requests


def _http(
    load: Load,
    tensors: Sequence[Tensor],
    parameters: Mapping[str, object],
    inputs: Sequence[Region | None],
    outputs: Mapping[str, Region],
) -> Parts:
    wires = [b"" if region else bytes(tensor.wire()) for tensor, region in zip(tensors, inputs, strict=True)]
    document: JsonObject = {
        "inputs": [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": tensor.shape,
                "parameters": region.parameters if region else {"binary_data_size": len(wire)},
            }
            for tensor, wire, region in zip(tensors, wires, inputs, strict=True)
        ]
    }
    if outputs:
        document["outputs"] = [
            {"name": name, "parameters": region.parameters} for name, region in outputs.items()
        ]
    before = orjson.dumps({"parameters": {**parameters, "binary_data_output": True}})[:-2]
    rest = b"}," + orjson.dumps(document)[1:]
    path = model_path(load.model, load.version) + "/infer"
    head = _http_head(load, path, {"Content-Type": "application/octet-stream"})
    return HttpParts(head, before, rest, b"".join(wires))


def _http_head(load: Load, path: str, headers: Mapping[str, str]) -> bytes:
    """The head of a POST request, without what tells of lengths."""
    _, _, host = load.url.rpartition("://")
    host, slash, prefix = host.partition("/")
    lines = [f"POST {(slash + prefix).rstrip('/')}{path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in {**headers, **load.headers}.items()]
    return ("\r\n".join(lines) + "\r\n").encode("latin-1")


def _generate(load: Load, tensors: Sequence[Tensor], parameters: Mapping[str, object]) -> Parts:
    document: JsonObject = {"parameters": parameters} if parameters else {}
    for tensor in tensors:
        if tensor.datatype in ("FP16", "BF16"):
            raise BenchError(f"input '{tensor.name}': {tensor.datatype} cannot be written in JSON")
        elements = tensor.numpy().reshape(-1).tolist()
        if tensor.datatype == "BYTES":
            elements = [element.decode(errors="replace") for element in elements]
        document[tensor.name] = elements[0] if len(elements) == 1 else elements
    body = orjson.dumps(document)
    path = f"{model_path(load.model, load.version)}/{load.endpoint}"
    return WholeRequest(
        _http_head(load, path, _JSON_HEADERS) + b"Content-Length: %d\r\n\r\n" % len(body) + body
    )


def _grpc(
    load: Load,
    tensors: Sequence[Tensor],
    parameters: Mapping[str, object],
    inputs: Sequence[Region | None],
    outputs: Mapping[str, Region],
) -> Parts:
    request = messages.ModelInferRequest(model_name=load.model, model_version=load.version)
    if load.endpoint == "stream":  # so that a decoupled model says when it has answered
        parameters = {**parameters, "triton_enable_empty_final_response": True}
    for name, value in parameters.items():
        set_parameter(request.parameters[name], value)
    for tensor, region in zip(tensors, inputs, strict=True):
        entry = request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if region is None:
            request.raw_input_contents.append(bytes(tensor.wire()))
        else:
            for name, value in region.parameters.items():
                set_parameter(entry.parameters[name], value)
    for name, region in outputs.items():
        output = request.outputs.add(name=name)
        for key, value in region.parameters.items():
            set_parameter(output.parameters[key], value)
    return GrpcParts(request.SerializeToString())
