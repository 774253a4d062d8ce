"""Requests that name regions of shared memory, and their answers: ours, and those of a real server.

Before each case these regions are there, each of 64 bytes: `in` begins with the floats 0 to 15, `out` with
zeros, `text` with the strings "ab", "" and "xyz" of a BYTES tensor.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository

IDENTITY = '''
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers its input."""

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy())]
            )
            for request in requests
        ]
'''

REPEAT = '''
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers its input three times, each time one larger."""

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            for step in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", values + step)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''

STRINGS = b"".join(struct.pack("<I", len(text)) + text for text in (b"ab", b"", b"xyz"))
FLOATS = struct.pack("<16f", *range(16))


def build_models(root: Path) -> None:
    """The models that the cases address, for the Python backend of either server."""
    repository = ModelRepository(root)

    def model(name: str, datatype: str, code: str = IDENTITY, **more: Any) -> None:
        tensor = {"data_type": f"TYPE_{datatype}", "dims": [-1]}
        config = {
            "backend": "python",
            "input": [{"name": "INPUT0", **tensor}],
            "output": [{"name": "OUTPUT0", **tensor}],
            **more,
        }
        repository.python(name, code, config=config)

    model("numbers", "FP32")
    model("halves", "FP16")
    model("strings", "STRING")
    model("repeat", "FP32", REPEAT, model_transaction_policy={"decoupled": True})


@dataclass(frozen=True)
class Case:
    """One request over HTTP.

    Attributes:
        name: of the test.
        method, path: of the request.
        document: its JSON, or its bytes.
        status: of the answer.
        answer: its JSON; None for an empty body. An error ends with "…" where ours goes on to say why.
        written: what `out` begins with afterwards.
    """

    name: str
    path: str
    document: Any = None
    status: int = 200
    answer: Any = None
    written: bytes = bytes(64)
    method: str = "POST"

    @property
    def body(self) -> bytes | None:
        if self.document is None or isinstance(self.document, bytes):
            return self.document
        return json.dumps(self.document).encode()


def infer(
    name: str, tensor: Any, output: Any = None, status: int = 200, answer: Any = None, **more: Any
) -> Case:
    document = {"inputs": [{"name": "INPUT0", **tensor}]}
    if output is not None:
        document["outputs"] = [{"name": "OUTPUT0", "parameters": output}]
    model = more.pop("model", "numbers")
    document.update(more.pop("document", {}))
    if status == 200:
        kind = {"datatype": tensor["datatype"], "shape": tensor["shape"]}
        outputs = [{"name": "OUTPUT0", **kind, **(answer or {})}]
        answer = {"model_name": model, "model_version": "1", "outputs": outputs}
    return Case(name, f"/v2/models/{model}/infer", document, status, answer, **more)


def region(name: Any, byte_size: Any = None, offset: Any = None, **more: Any) -> dict[str, Any]:
    parameters = {"shared_memory_region": name, **more}
    if byte_size is not None:
        parameters["shared_memory_byte_size"] = byte_size
    if offset is not None:
        parameters["shared_memory_offset"] = offset
    return parameters


def fp32(parameters: Any = None, shape: tuple[int, ...] = (4,), **more: Any) -> dict[str, Any]:
    tensor = {"datatype": "FP32", "shape": list(shape), **more}
    return tensor if parameters is None else {**tensor, "parameters": parameters}


def error(text: str) -> dict[str, str]:
    return {"error": text}


DATA = fp32(data=[1, 2, 3, 4])
ONE_TO_FOUR = struct.pack("<4f", 1, 2, 3, 4)
NO_ID = "[request id: <id_unknown>] "
NOT_UNSIGNED = "attempt to access JSON non-unsigned-integer as unsigned-integer"
BAD_OFFSET = "Invalid offset for shared memory region: '{}'"
BAD_SIZE = "Invalid offset + byte size for shared memory region: '{}'"
SOURCES = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But set "
)

SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
HANDLE = {"b64": "eHh4" * 21 + "eA=="}


def register(name: str, document: Any, status: int, text: str, of: str = f"{SYSTEM}/region/new") -> Case:
    return Case(f"register: {name}", f"{of}/register", document, status, error(text))


def register_cuda(name: str, document: Any, status: int, text: str) -> Case:
    return register(f"cuda, {name}", document, status, text, f"{CUDA}/region/new")


INPUTS = [
    infer("an input", fp32(region("in", 16)), answer={"data": [0.0, 1.0, 2.0, 3.0]}),
    infer("an input behind an offset", fp32(region("in", 16, 4)), answer={"data": [1.0, 2.0, 3.0, 4.0]}),
    infer("the end of a region", fp32(region("in", 4, 60), (1,)), answer={"data": [15.0]}),
    infer(
        "strings",
        {"datatype": "BYTES", "shape": [3], "parameters": region("text", len(STRINGS))},
        answer={"data": ["ab", "", "xyz"]},
        model="strings",
    ),
    infer(
        "strings that are cut",
        {"datatype": "BYTES", "shape": [3], "parameters": region("text", len(STRINGS) - 1)},
        None,
        400,
        error(
            "incomplete string data for inference input 'INPUT0', expecting string of length 3 but only 2 "
            "bytes available"
        ),
        model="strings",
    ),
    infer(
        "no such region", fp32(region("no", 4)), None, 404, error("Unable to find shared memory region: 'no'")
    ),
    infer(
        "a region without a name",
        fp32(region("", 4)),
        None,
        404,
        error("Unable to find shared memory region: ''"),
    ),
    infer(
        "a region whose name is no string",
        fp32(region(5, 4)),
        None,
        500,
        error("Unable to parse 'shared_memory_region': attempt to access JSON non-string as string"),
    ),
    infer("an offset behind the end", fp32(region("in", 16, 64)), None, 400, error(BAD_OFFSET.format("in"))),
    infer(
        "an astronomical offset", fp32(region("in", 16, 2**64 - 8)), None, 400, error(BAD_OFFSET.format("in"))
    ),
    infer("more than is there", fp32(region("in", 16, 52)), None, 400, error(BAD_SIZE.format("in"))),
    infer("an astronomical size", fp32(region("in", 2**63)), None, 400, error(BAD_SIZE.format("in"))),
    *(
        infer(
            f"a size of {size} where the shape says 16",
            fp32(region("in", size)),
            None,
            400,
            error(
                f"{NO_ID}input byte size mismatch for input 'INPUT0' for model 'numbers'. Expected 16, got "
                f"{size}"
            ),
        )
        for size in (12, 20)
    ),
    *(
        infer(
            f"an input's {key} of {value!r}",
            fp32({**region("in", 16), key: value}),
            None,
            500,
            error(f"Unable to parse '{key}': {NOT_UNSIGNED}"),
        )
        for key in ("shared_memory_offset", "shared_memory_byte_size")
        for value in (-4, "4", 1.5, None)
    ),
    infer(
        "data and a region",
        fp32(region("in", 16), data=[1, 2, 3, 4]),
        None,
        400,
        error(f"{SOURCES}'data' 'shared_memory_region'"),
    ),
    infer(
        "everything at once",
        fp32(region("in", 16, binary_data_size=16), data=[1, 2, 3, 4]),
        None,
        400,
        error(f"{SOURCES}'data' 'binary_data_size' 'shared_memory_region'"),
    ),
    infer(
        "an offset without a region",
        fp32({"shared_memory_offset": "x"}, data=[1, 2, 3, 4]),
        None,
        500,
        error(f"Unable to parse 'shared_memory_offset': {NOT_UNSIGNED}"),
    ),
]

OUTPUTS = [
    infer("an output", DATA, region("out", 16), written=ONE_TO_FOUR),
    infer("an output in more than it needs", DATA, region("out", 64), written=ONE_TO_FOUR + bytes(48)),
    infer("an output behind an offset", DATA, region("out", 16, 32), written=bytes(32) + ONE_TO_FOUR),
    infer(
        "an output that is not to be binary", DATA, region("out", 16, binary_data=False), written=ONE_TO_FOUR
    ),
    infer(
        "an output where all are to be binary",
        DATA,
        region("out", 16),
        document={"parameters": {"binary_data_output": True}},
        written=ONE_TO_FOUR,
    ),
    infer("input and output", fp32(region("in", 16, 4)), region("out", 16), written=ONE_TO_FOUR),
    infer(
        "strings to a region",
        {"datatype": "BYTES", "shape": [3], "parameters": region("text", len(STRINGS))},
        region("out", 64),
        model="strings",
        written=STRINGS,
    ),
    infer(
        "what cannot travel as JSON",
        {"datatype": "FP16", "shape": [4], "parameters": region("in", 8)},
        region("out", 8),
        model="halves",
        written=FLOATS[:8],
    ),
    infer("an empty output", fp32(shape=(0,), data=[]), region("out", 16)),
    *(
        infer(
            f"an output that does not fit into {size} bytes",
            tensor,
            region("out", size),
            500,
            error(
                f"shared memory size specified with the request for output 'OUTPUT0' ({size} bytes) should "
                f"be at least {needed} bytes to hold the results"
            ),
            model=model,
        )
        for size, needed, model, tensor in (
            (12, 16, "numbers", DATA),
            (8, 17, "strings", {"datatype": "BYTES", "shape": [3], "data": ["ab", "", "xyz"]}),
        )
    ),
    infer(
        "an output in no region",
        DATA,
        region("no", 16),
        404,
        error("Unable to find shared memory region: 'no'"),
    ),
    infer("an output behind the end", DATA, region("out", 16, 64), 400, error(BAD_OFFSET.format("out"))),
    infer("an output over the end", DATA, region("out", 16, 52), 400, error(BAD_SIZE.format("out"))),
    infer(
        "an output in a region without a name",
        DATA,
        region(5, 16),
        500,
        error("Unable to parse 'shared_memory_region': attempt to access JSON non-string as string"),
    ),
    *(
        infer(
            f"an output's {key} of {value!r}",
            DATA,
            {**region("out", 16), key: value},
            500,
            error(f"Unable to parse '{key}': {NOT_UNSIGNED}"),
        )
        for key in ("shared_memory_offset", "shared_memory_byte_size")
        for value in ("16", -1)
    ),
    infer(
        "a region and binary",
        DATA,
        region("out", 16, binary_data=True),
        400,
        error("Output can't set both 'shared_memory_region' and 'binary_data'"),
    ),
    infer(
        "a region and what is no boolean",
        DATA,
        region("out", 16, binary_data="x"),
        500,
        error("Unable to set 'binary_data': attempt to access JSON non-boolean as boolean"),
    ),
    *(
        infer(
            f"a region and a classification of {count!r}",
            DATA,
            region("out", 16, classification=count),
            400,
            error("Output can't set both 'shared_memory_region' and 'classification'"),
        )
        for count in (2, 0, "x")
    ),
    infer(
        "an output that the model does not have",
        DATA,
        status=400,
        answer=error("unexpected inference output 'X' for model 'numbers'"),
        document={"outputs": [{"name": "X", "parameters": region("out", 16)}]},
    ),
]

REGIONS = [
    register("no body", b"", 500, "failed to parse the request JSON buffer: The document is empty. at 0"),
    register("nothing", {}, 400, "Shared memory register request has no 'key' field"),
    register("no object", [], 400, "Shared memory register request has no 'key' field"),
    register("no size", {"key": "/x"}, 400, "Shared memory register request has no 'byte_size' field"),
    register("a key of 5", {"key": 5, "byte_size": 64}, 500, "attempt to access JSON non-string as string"),
    *(
        register(f"{key} of {value!r}", {"key": "/x", "byte_size": 64, key: value}, 500, NOT_UNSIGNED)
        for key in ("byte_size", "offset")
        for value in ("64", -64, 1.5, None)
    ),
    *(
        register(
            f"the key '{key}'",
            {"key": key, "byte_size": 64},
            500,
            f"Unable to open shared memory region: '{key}'…",
        )
        for key in ("/tritonpy_nope", "//tritonpy_nope")
    ),
    register(
        "no region",
        {"key": "/x", "byte_size": 64},
        400,
        "'region name' is necessary to register system shared memory region",
        SYSTEM,
    ),
    register(
        "a region that is there",
        {"key": "/x", "byte_size": 64},
        400,
        "shared memory region 'in' already in manager",
        f"{SYSTEM}/region/in",
    ),
    register_cuda("nothing", {}, 400, "Shared memory register request has no 'raw_handle' field"),
    register_cuda(
        "no handle",
        {"device_id": 0, "byte_size": 4},
        400,
        "Shared memory register request has no 'raw_handle' field",
    ),
    *(
        register_cuda(
            f"the handle {handle!r}",
            {"raw_handle": handle, "device_id": 0, "byte_size": 4},
            500,
            "attempt to access non-existing object member 'b64'",
        )
        for handle in ({}, "x")
    ),
    register_cuda(
        "no device",
        {"raw_handle": HANDLE, "byte_size": 4},
        500,
        "attempt to access non-existing object member 'device_id'",
    ),
    register_cuda(
        "no size",
        {"raw_handle": HANDLE, "device_id": 0},
        500,
        "attempt to access non-existing object member 'byte_size'",
    ),
    register_cuda(
        "a negative device", {"raw_handle": HANDLE, "device_id": -1, "byte_size": 4}, 500, NOT_UNSIGNED
    ),
    *(
        register_cuda(
            f"the bytes '{text}'",
            {"raw_handle": {"b64": text}, "device_id": 0, "byte_size": 4},
            400,
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
        )
        for text in ("!!", "YWJj")
    ),
    register_cuda(
        "a handle of nobody",
        {"raw_handle": HANDLE, "device_id": 0, "byte_size": 4},
        400,
        "failed to register shared memory region: invalid args…",
    ),
    register(
        "cuda, no region", {}, 400, "'region name' is necessary to register cuda shared memory region", CUDA
    ),
    *(
        Case(f"status of no {kind} region", f"{path}/region/no/status", None, 404, error(text), method="GET")
        for kind, path, text in (
            ("system", SYSTEM, "Unable to find system shared memory region: 'no'"),
            ("cuda", CUDA, "Unable to find cuda shared memory region: 'no'"),
        )
    ),
    Case(
        "cuda status of a system region",
        f"{CUDA}/region/in/status",
        None,
        404,
        error("The region named 'in' is registered as system shared memory, not CUDA shared memory"),
        method="GET",
    ),
    Case("cuda status", f"{CUDA}/status", None, 200, [], method="GET"),
    Case("forgetting a region that is not there", f"{SYSTEM}/region/no/unregister"),
    Case("forgetting a system region as cuda region", f"{CUDA}/region/in/unregister"),
    *(
        Case(f"{method} {path}", path, None, status, error(text), method=method)
        for method, path, status, text in (
            ("GET", f"{SYSTEM}/region/in/register", 405, "Method Not Allowed"),
            ("POST", f"{SYSTEM}/status", 405, "Method Not Allowed"),
            ("GET", f"{SYSTEM}/unregister", 405, "Method Not Allowed"),
            ("GET", SYSTEM, 404, "Not Found"),
            ("GET", f"{SYSTEM}/region/in", 404, "Not Found"),
            ("GET", f"{SYSTEM}/region/in/x/status", 404, "Not Found"),
            ("GET", f"{SYSTEM}/status/", 404, "Not Found"),
        )
    ),
]

CASES = [*INPUTS, *OUTPUTS, *REGIONS]
