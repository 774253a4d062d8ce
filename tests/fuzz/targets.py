"""What is fuzzed: one function to a way by which strangers' bytes come in.

Each takes any bytes. What is wrong with them is a TritonError and nothing else; where there are two ways to
read the same bytes, both give the same.

Run by `test_fuzz.py`, or by hand for longer:

    python tests/fuzz/targets.py request --seeds DIR
    python tests/fuzz/targets.py request -max_total_time=3600 DIR
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tritonpy", "tritonpy_abi"], enable_loader_override=False):
    import grpc_connection
    from tritonpy.admission import Admission
    from tritonpy.dataplane import TensorSpec
    from tritonpy.datatypes import DATATYPES
    from tritonpy.errors import ErrorCode, TritonError
    from tritonpy.frontends.grpc import convert, wire
    from tritonpy.frontends.http import compression, generate, infer, raw_request
    from tritonpy.frontends.http.codec import json_body, json_data, large_json
    from tritonpy.frontends.inflation import inflated
    from tritonpy.frontends.outputs import References
    from tritonpy.handles import Backend, Model
    from tritonpy.model.signature import Signature
    from tritonpy.protos import ModelInferRequest
    from tritonpy.request import InferRequest
    from tritonpy.shared_memory.registry import SharedMemoryRegions
    from tritonpy_abi.shim import open_shim
    from tritonpy_abi.strategies.request_blocks import RequestBlocks


REFERENCES = References(SharedMemoryRegions(is_allowed=True))
_NAMES = [name for name in DATATYPES if name != "BF16"]
_TYPES = ["STRING" if name == "BYTES" else name for name in _NAMES]
SIGNATURE = Signature(
    {
        "name": "m",
        "max_batch_size": 4,
        "input": [
            {"name": name, "data_type": f"TYPE_{kind}", "dims": [-1], "optional": True}
            for name, kind in zip(_NAMES, _TYPES, strict=True)
        ],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
    }
)
MOST_INFLATED = 100_000

Outcome = tuple[object, ...]
_CODES = (ErrorCode.INTERNAL, ErrorCode.INVALID_ARG, ErrorCode.NOT_FOUND, ErrorCode.UNSUPPORTED)


def _outcome(read: Callable[[], InferRequest]) -> Outcome:
    """What came of reading a request, so that two ways can be compared."""
    try:
        request = read()
        SIGNATURE.check(request)
    except TritonError as error:
        refused = error
    else:
        return _contents(request)
    assert refused.code in _CODES
    return refused.code, str(refused.message)


def _contents(request: InferRequest) -> Outcome:
    tensors = [(name, x.datatype, x.shape, bytes(x.wire())) for name, x in request.inputs.items()]
    for tensor in request.inputs.values():
        if tensor.datatype not in json_data.BINARY_ONLY:
            json_body.parse_json(json_data.data_json(tensor))
    return request.id, repr(request.parameters), request.requested_outputs, tensors


def fuzz_request(data: bytes) -> None:
    """The JSON of an inference request, and tensors behind it; large ones are read another way."""
    if len(data) < 2:
        return
    body = data[2:]
    header_length = None if data[0] & 1 else int.from_bytes(data[:2]) >> 1

    def small() -> InferRequest:
        return infer.parse_infer_request(body, header_length, "m", "", REFERENCES)[0]

    def large() -> InferRequest:
        text, tail = infer.split_body(body, header_length)
        document = large_json.put_together(large_json.take_apart(text))
        return infer.read_document(document, tail, "m", "", REFERENCES)[0]

    one, other = _outcome(small), _outcome(large)
    assert one == other, (one, other)


def fuzz_raw(data: bytes) -> None:
    """A body that is one tensor."""
    if not data:
        return
    name = list(DATATYPES)[data[0] % len(DATATYPES)]
    is_batched = bool(data[0] & 128)
    shape = [(-1,), (1,), (2, -1), (-1, -1), (), (0, -1)][data[0] % 6]
    spec = TensorSpec("IN", name, (-1, *shape) if is_batched else shape)
    try:
        request, _ = raw_request.parse_raw_request(data[1:], {"IN": spec}, "m", "", is_batched=is_batched)
        request.input("IN").numpy()
    except TritonError:
        pass


def fuzz_compression(data: bytes) -> None:
    """A compressed body."""
    if not data:
        return
    coding = b"gzip" if data[0] & 1 else b"deflate"
    try:
        body = asyncio.run(inflated(data[1:], coding, MOST_INFLATED, "--flag", Admission(0)))
        assert len(body) <= MOST_INFLATED
    except TritonError:
        pass
    compression.accepted_coding(data[1:50])


def fuzz_generate(data: bytes) -> None:
    """The body of a generate request."""
    with contextlib.suppress(TritonError):
        generate.parse_generate_request(data, SIGNATURE.inputs, "m", "")


def fuzz_grpc(data: bytes) -> None:
    """A message, whole and with its tensors cut out."""

    def whole() -> InferRequest:
        return convert.to_infer_request(*convert.parse_infer_request(data), REFERENCES)[0]

    def cut() -> InferRequest:
        split = wire.split_field(data, wire.RAW_INPUT_CONTENTS)
        if split is None:
            return whole()
        try:
            message = ModelInferRequest.FromString(split[0])
        except Exception:
            return whole()
        return convert.to_infer_request(message, split[1], REFERENCES)[0]

    one, other = _outcome(whole), _outcome(cut)
    # protobuf may refuse what the cut has left out, and reads the fields of one message sent twice as one
    if not isinstance(one[0], ErrorCode) and not isinstance(other[0], ErrorCode):
        assert one == other, (one, other)


@functools.cache
def _talk() -> grpc_connection.Talk:
    return grpc_connection.Talk()


def fuzz_connection(data: bytes) -> None:
    """The bytes of a gRPC client's connection: whatever they are, nothing of it is held when it is over."""
    _talk().hear(data)


@functools.cache
def _blocks() -> RequestBlocks:
    return RequestBlocks(open_shim().ffi, Model("m", 1, {}, Path("/models/m"), Backend("identity")))


def fuzz_block(data: bytes) -> None:
    """A request as shared objects see it: texts end where C ends them, and all else is as it came."""
    try:
        request = infer.parse_infer_request(data, None, "m", "", REFERENCES)[0]
        SIGNATURE.check(request)
    except TritonError:
        return
    held = _blocks().fill(request)
    block, text = held[0], open_shim().text
    assert text(block.id) == _in_c(request.id)
    inputs = [block.inputs[index] for index in range(block.input_count)]
    assert [text(each.name) for each in inputs] == [_in_c(name) for name in request.inputs]
    assert [each.byte_size for each in inputs] == [x.byte_size for x in request.inputs.values()]
    shapes = [tuple(each.shape[index] for index in range(each.dim_count)) for each in inputs]
    assert shapes == [x.shape for x in request.inputs.values()]
    outputs = [text(block.outputs[index]) for index in range(block.output_count)]
    assert outputs == [_in_c(name) for name in request.requested_outputs or ()]
    names = [text(block.parameters[index].name) for index in range(block.parameter_count)]
    assert set(names) <= {_in_c(name) for name in request.parameters}


def _in_c(text: str) -> str:
    return text.encode(errors="replace").partition(b"\0")[0].decode(errors="replace")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "request": fuzz_request,
    "raw": fuzz_raw,
    "compression": fuzz_compression,
    "generate": fuzz_generate,
    "grpc": fuzz_grpc,
    "block": fuzz_block,
    "connection": fuzz_connection,
}


def seeds(target: str) -> list[bytes]:
    """What a run begins with."""
    tensors = [
        {"name": "FP32", "datatype": "FP32", "shape": [1, 3], "data": [[1, 2.5, -3e-7]]},
        {"name": "BYTES", "datatype": "BYTES", "shape": [1, 2], "data": ["a\u00e9", "\n"]},
        {"name": "BOOL", "datatype": "BOOL", "shape": [1, 1], "data": [True]},
        {"name": "UINT64", "datatype": "UINT64", "shape": [1, 1], "data": [2**64 - 1]},
    ]
    outputs = [{"name": "OUT", "parameters": {"binary_data": True, "classification": 2}}]
    parameters = {"sequence_id": 1, "sequence_start": True, "priority": 2, "custom": "x", "timeout": 5}
    texts = [json.dumps({"inputs": [tensor]}).encode() for tensor in tensors]
    texts.append(
        json.dumps({"id": "7", "inputs": tensors, "outputs": outputs, "parameters": parameters}).encode()
    )
    texts += [
        text.replace(b"2.5", literal) for text in texts[:1] for literal in (b"NaN", b"-Inf", b"1e400", b"[]")
    ]
    texts.append(texts[1].replace(b"a\\u00e9", b"\xff\xfe"))
    binary = {"name": "INT32", "datatype": "INT32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [binary]}).encode()
    match target:
        case "request":
            return [b"\1\0" + text for text in texts] + [(len(head) << 1).to_bytes(2) + head + bytes(8)]
        case "block":
            return [*texts, texts[-2].replace(b'"7"', b'"7\\u0000"')]
        case "raw":
            return [bytes([kind]) + bytes(16) for kind in range(0, 256, 16)]
        case "compression":
            packed = [
                gzip.compress(texts[0], mtime=0),
                zlib.compress(texts[0]),
                zlib.compress(texts[0])[2:-4],
            ]
            return [bytes([kind]) + body for kind in (0, 1) for body in packed]
        case "generate":
            return [b'{"BYTES":"a","FP32":[1.5,2],"id":"7","parameters":{"x":1,"BOOL":true}}', *texts]
        case "connection":
            return grpc_connection.seeds()
        case _:
            return _grpc_seeds()


def _grpc_seeds() -> list[bytes]:
    raw = ModelInferRequest(model_name="m", id="7", raw_input_contents=[bytes(8)])
    raw.inputs.add(name="INT32", datatype="INT32", shape=[1, 2])
    raw.parameters["priority"].int64_param = 1
    raw.parameters["custom"].string_param = "x"
    raw.outputs.add(name="OUT").parameters["classification"].int64_param = 2
    typed = ModelInferRequest(model_name="m")
    tensor = typed.inputs.add(name="FP32", datatype="FP32", shape=[1, 2])
    tensor.contents.fp32_contents.extend([1, 2])
    strings = typed.inputs.add(name="BYTES", datatype="BYTES", shape=[1, 1])
    strings.contents.bytes_contents.append(b"ab")
    return [raw.SerializeToString(), typed.SerializeToString()]


def main() -> None:
    """Fuzz the target that is named first, or write what a run begins with; the rest goes to libFuzzer."""
    target = sys.argv.pop(1)
    if sys.argv[1] == "--seeds":
        for number, seed in enumerate(seeds(target)):
            Path(sys.argv[2], f"seed{number}").write_bytes(seed)
        return
    atheris.Setup(sys.argv, TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
