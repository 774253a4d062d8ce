"""Regions of shared memory over both protocols: with tritonclient's utilities, and beside a real server."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, shared_memory
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository


def _load_cases() -> ModuleType:
    path = Path(__file__).with_name("region_cases.py")
    spec = importlib.util.spec_from_file_location("region_cases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


cases = _load_cases()

GATE = """
import os, time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            gate = request.request_id()
            with open(gate + ".reached", "w"):
                pass
            deadline = time.monotonic() + 20
            while not os.path.exists(gate) and time.monotonic() < deadline:
                time.sleep(0.005)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())]))
        return responses
"""

CALLER = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            assert tensor.is_cpu()
            call = pb_utils.InferenceRequest(
                model_name="numbers", requested_output_names=["OUTPUT0"], inputs=[tensor]
            )
            answer = call.exec()
            assert not answer.has_error(), answer.error().message()
            values = pb_utils.get_output_tensor_by_name(answer, "OUTPUT0").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", values * 2)]))
        return responses
"""


PAIRS = {
    "backend": "python",
    "max_batch_size": 2,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1024]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1024]}],
    "dynamic_batching": {"preferred_batch_size": [2], "max_queue_delay_microseconds": 20_000_000},
}


class Memory:
    """A shared memory object of 64 bytes, with another name for every test."""

    def __init__(self, content: bytes = b"", byte_size: int = 64) -> None:
        self.key = f"/tritonpy_test_{uuid.uuid4().hex}"
        self.path = Path("/dev/shm") / self.key[1:]
        self.path.write_bytes(content.ljust(byte_size, b"\0"))

    @property
    def content(self) -> bytes:
        return self.path.read_bytes()

    def cut(self, byte_size: int) -> None:
        os.truncate(self.path, byte_size)


@pytest.fixture
def memory() -> Iterator[Callable[..., Memory]]:
    """Make shared memory objects, which are deleted when the test is over."""
    with ExitStack() as stack:

        def make(content: bytes = b"", byte_size: int = 64) -> Memory:
            made = Memory(content, byte_size)
            stack.callback(made.path.unlink, missing_ok=True)
            return made

        yield make


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    cases.build_models(root)
    return root


@pytest.fixture(scope="module")
def our_server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    more = ModelRepository(tmp_path_factory.mktemp("more"))
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    config = {
        "backend": "python",
        "input": [{"name": "INPUT0", **tensor}],
        "output": [{"name": "OUTPUT0", **tensor}],
    }
    more.python("gate", GATE, config=config)
    more.python("caller", CALLER, config=config)
    more.python("pairs", cases.IDENTITY, config=PAIRS)
    more.model("plain", {**config, "backend": "identity"})
    options = ServerOptions(
        (str(models), str(more.path)),
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        http_port=0,
        grpc_port=0,
        allow_metrics=False,
        allow_client_shm=True,
    )
    with Server(options) as server:
        yield server


@pytest.fixture(scope="module")
def ours(our_server: Server) -> dict[str, int]:
    return {"http": our_server.http_port, "grpc": our_server.grpc_port}


@pytest.fixture(scope="module")
def real(models: Path, real_triton: Callable[..., dict[str, int]]) -> dict[str, int]:
    return real_triton(models)


class Http:
    """Plain requests to one port."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        body = json.dumps(body).encode() if isinstance(body, dict | list) else body
        self.connection.request(method, path, body)
        response = self.connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None

    def register(self, name: str, memory: Memory, byte_size: int = 64) -> None:
        body = {"key": memory.key, "byte_size": byte_size}
        assert self.ask("POST", f"{cases.SYSTEM}/region/{name}/register", body) == (200, None)


@pytest.fixture
def http_of() -> Iterator[Callable[[int], Http]]:
    """Make `Http`; afterwards every region is forgotten."""
    with ExitStack() as stack:

        def make(port: int) -> Http:
            made = Http(port)
            stack.callback(made.connection.close)
            stack.callback(made.ask, "POST", f"{cases.SYSTEM}/unregister")
            return made

        yield make


# The tables


def check_http(client: Http, case: Any, memory: Callable[..., Memory]) -> None:
    made = {"in": memory(cases.FLOATS), "out": memory(), "text": memory(cases.STRINGS)}
    for name, region in made.items():
        client.register(name, region)

    status, answer = client.ask(case.method, case.path, case.body)

    if status != 200 and case.answer["error"].endswith("…"):
        assert answer["error"].startswith(case.answer["error"][:-1])
    else:
        assert answer == case.answer
    assert status == case.status
    assert made["out"].content == case.written.ljust(64, b"\0")


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_http_answers_as_triton_does(
    ours: dict[str, int], http_of: Callable[[int], Http], memory: Callable[..., Memory], case: Any
) -> None:
    check_http(http_of(ours["http"]), case, memory)


@pytest.mark.parity
@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_a_real_server_answers_the_same_over_http(
    real: dict[str, int], http_of: Callable[[int], Http], memory: Callable[..., Memory], case: Any
) -> None:
    check_http(http_of(real["http"]), case, memory)


def parameter(value: Any) -> dict[str, Any]:
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param"}
    return {kinds[type(value)]: value}


@dataclass(frozen=True)
class GrpcCase:
    """One request over gRPC.

    Attributes:
        name: of the test.
        input, output: the parameters of the tensor.
        raw: the contents of the input.
        typed: typed contents of the input.
        status: of the answer.
        text: of the error, or the `raw_output_contents`.
        written: what `out` begins with afterwards.
    """

    name: str
    input: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    typed: tuple[float, ...] = ()
    status: grpc.StatusCode = grpc.StatusCode.OK
    text: Any = b""
    written: bytes = bytes(64)

    @property
    def request(self) -> service_pb2.ModelInferRequest:
        message = service_pb2.ModelInferRequest(model_name="numbers", id="7")
        for name, parameters, tensors in (
            ("INPUT0", self.input, message.inputs),
            ("OUTPUT0", self.output, message.outputs),
        ):
            tensor = tensors.add(name=name)
            for key, value in parameters.items():
                tensor.parameters[key].CopyFrom(service_pb2.InferParameter(**parameter(value)))
        message.inputs[0].datatype = "FP32"
        message.inputs[0].shape.append(4)
        if self.raw is not None:
            message.raw_input_contents.append(self.raw)
        if self.typed:
            message.inputs[0].contents.fp32_contents.extend(self.typed)
        return message


INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
OF = {"INPUT0": "in", "OUTPUT0": "out"}
ONE_TO_FOUR = cases.ONE_TO_FOUR
ZERO_TO_THREE = cases.FLOATS[:16]


def of_either(
    name: str, parameters: dict[str, Any], text: str, status: grpc.StatusCode = INVALID
) -> Iterator[GrpcCase]:
    """The same for an input and for an output; `{}` in the text is the tensor, `{region}` the region."""
    for tensor, region in OF.items():
        known = {key: region if value == "in" else value for key, value in parameters.items()}
        at = {"input": known} if tensor == "INPUT0" else {"output": known, "raw": ONE_TO_FOUR}
        yield GrpcCase(f"{name} ({tensor})", **at, status=status, text=text.format(tensor, region=region))


REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"
IN, OUT = {REGION: "in", SIZE: 16}, {REGION: "out", SIZE: 16}
GRPC_CASES = [
    GrpcCase("an input", IN, text=ZERO_TO_THREE),
    GrpcCase("an input behind an offset", {**IN, OFFSET: 4}, text=cases.FLOATS[4:20]),
    GrpcCase("an input and raw contents that nobody needs", IN, raw=ONE_TO_FOUR, text=ZERO_TO_THREE),
    GrpcCase("an output", output=OUT, raw=ONE_TO_FOUR, written=ONE_TO_FOUR),
    GrpcCase(
        "an output and binary_data", output={**OUT, "binary_data": True}, raw=ONE_TO_FOUR, written=ONE_TO_FOUR
    ),
    GrpcCase("input and output", IN, {**OUT, OFFSET: 32}, written=bytes(32) + ZERO_TO_THREE),
    *of_either(
        "no size",
        {REGION: "in"},
        f"'{SIZE}' must be specified along with '{REGION}' parameter for tensor '{{}}'",
    ),
    *of_either(
        "a size that is text",
        {REGION: "in", SIZE: "1"},
        f"invalid value type for '{SIZE}' parameter for tensor '{{}}', expected int64_param.",
    ),
    *of_either(
        "a size that is true",
        {REGION: "in", SIZE: True},
        f"invalid value type for '{SIZE}' parameter for tensor '{{}}', expected int64_param.",
    ),
    *of_either(
        "an offset that is text",
        {**IN, OFFSET: "1"},
        f"invalid value type for '{OFFSET}' parameter for tensor '{{}}', expected int64_param.",
    ),
    *of_either(
        "a region that is a number",
        {REGION: 1, SIZE: 16},
        f"invalid value type for '{REGION}' parameter for tensor '{{}}', expected string_param.",
    ),
    *of_either(
        "a size without a region",
        {SIZE: 16},
        f"'{SIZE}' can not be specified without '{REGION}' parameter for tensor '{{}}'",
    ),
    *of_either(
        "an offset without a region",
        {OFFSET: 16},
        f"'{OFFSET}' can not be specified without '{REGION}' parameter for tensor '{{}}'",
    ),
    *of_either("a negative offset", {**IN, OFFSET: -1}, cases.BAD_OFFSET.format("{region}")),
    *of_either("an offset behind the end", {**IN, OFFSET: 64}, cases.BAD_OFFSET.format("{region}")),
    *of_either("over the end", {**IN, OFFSET: 52}, cases.BAD_SIZE.format("{region}")),
    *of_either("a negative size", {REGION: "in", SIZE: -1}, cases.BAD_SIZE.format("{region}")),
    *of_either(
        "no such region", {REGION: "no", SIZE: 16}, "Unable to find shared memory region: 'no'", NOT_FOUND
    ),
    GrpcCase(
        "a size that is not the shape's",
        {REGION: "in", SIZE: 12},
        status=INVALID,
        text="[request id: 7] input byte size mismatch for input 'INPUT0' for model 'numbers'. Expected 16, "
        "got 12",
    ),
    GrpcCase(
        "a region and typed contents",
        IN,
        typed=(1, 2, 3, 4),
        status=INVALID,
        text="unexpected 'content' provided when using shared memory for input tensor 'INPUT0' for model "
        "'numbers'",
    ),
    GrpcCase(
        "an output that does not fit",
        output={REGION: "out", SIZE: 12},
        raw=ONE_TO_FOUR,
        status=grpc.StatusCode.INTERNAL,
        text="shared memory size specified with the request for output 'OUTPUT0' (12 bytes) should be at "
        "least 16 bytes to hold the results",
    ),
    GrpcCase(
        "a region and a classification",
        output={**OUT, "classification": 2},
        raw=ONE_TO_FOUR,
        status=INVALID,
        text="output can't set both 'shared_memory_region' and 'classification'",
    ),
]


@pytest.fixture
def stub_of() -> Iterator[Callable[[int], service_pb2_grpc.GRPCInferenceServiceStub]]:
    with ExitStack() as stack:

        def make(port: int) -> service_pb2_grpc.GRPCInferenceServiceStub:
            channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
            return service_pb2_grpc.GRPCInferenceServiceStub(channel)

        yield make


def check_grpc(client: Http, stub: Any, case: GrpcCase, memory: Callable[..., Memory]) -> None:
    made = {"in": memory(cases.FLOATS), "out": memory()}
    for name, region in made.items():
        client.register(name, region)

    try:
        answer = stub.ModelInfer(case.request, timeout=30)
        status: Any = grpc.StatusCode.OK
        text: Any = b"".join(answer.raw_output_contents)
        assert len(answer.raw_output_contents) == len(answer.outputs) == 1
        assert not answer.outputs[0].parameters
    except grpc.RpcError as error:
        status, text = error.code(), error.details()  # type: ignore[attr-defined]

    assert (status, text) == (case.status, case.text)
    assert made["out"].content == case.written.ljust(64, b"\0")


@pytest.mark.parametrize("case", GRPC_CASES, ids=lambda case: case.name)
def test_grpc_answers_as_triton_does(
    ours: dict[str, int], http_of: Any, stub_of: Any, memory: Callable[..., Memory], case: GrpcCase
) -> None:
    check_grpc(http_of(ours["http"]), stub_of(ours["grpc"]), case, memory)


@pytest.mark.parity
@pytest.mark.parametrize("case", GRPC_CASES, ids=lambda case: case.name)
def test_a_real_server_answers_the_same_over_grpc(
    real: dict[str, int], http_of: Any, stub_of: Any, memory: Callable[..., Memory], case: GrpcCase
) -> None:
    check_grpc(http_of(real["http"]), stub_of(real["grpc"]), case, memory)


# What newer servers accept


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_empty_tensor_needs_no_bytes_in_a_region(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory], client_of: Any, protocol: str
) -> None:
    http_of(ours["http"]).register("in", memory())
    module, client = client_of(protocol, ours)
    tensor = module.InferInput("INPUT0", [0], "FP32")
    tensor.set_shared_memory("in", 0)
    wanted = module.InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory("in", 0)

    answer = client.infer("numbers", [tensor], outputs=[wanted])

    assert shape_of(answer) == [0]


def test_one_object_may_be_registered_under_two_names(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory]
) -> None:
    client = http_of(ours["http"])
    shared = memory(cases.FLOATS)
    for name in ("one", "two"):
        client.register(name, shared)

    _, answer = client.ask("GET", f"{cases.SYSTEM}/status")

    assert [region["name"] for region in answer] == ["one", "two"]


# tritonclient and its utilities


@pytest.fixture
def client_of() -> Iterator[Callable[[str, dict[str, int]], tuple[Any, Any]]]:
    """The module and a client of tritonclient for a protocol."""
    with ExitStack() as stack:

        def make(protocol: str, ports: dict[str, int]) -> tuple[Any, Any]:
            module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
            client = stack.enter_context(module.InferenceServerClient(f"127.0.0.1:{ports[protocol]}"))
            stack.callback(client.unregister_system_shared_memory)
            return module, client

        yield make


class ClientRegion:
    """A region made with `tritonclient.utils.shared_memory`."""

    def __init__(self, name: str, byte_size: int) -> None:
        self.name, self.byte_size = name, byte_size
        self.key = f"/tritonpy_test_{uuid.uuid4().hex}"
        self.handle = shared_memory.create_shared_memory_region(name, self.key, byte_size)

    def register(self, client: Any) -> None:
        client.register_system_shared_memory(self.name, self.key, self.byte_size)

    def set(self, values: Any) -> None:
        shared_memory.set_shared_memory_region(self.handle, [values])

    def get(self, datatype: Any, shape: list[int]) -> Any:
        return shared_memory.get_contents_as_numpy(self.handle, datatype, shape)


@pytest.fixture
def region() -> Iterator[Callable[[str, int], ClientRegion]]:
    """Make regions as a client does; they are destroyed when the test is over."""
    made: list[ClientRegion] = []

    def make(name: str, byte_size: int) -> ClientRegion:
        made.append(ClientRegion(name, byte_size))
        return made[-1]

    yield make
    for region in made:
        shared_memory.destroy_shared_memory_region(region.handle)


def shape_of(answer: Any) -> list[int]:
    output = answer.get_output("OUTPUT0")
    return list(output["shape"] if isinstance(output, dict) else output.shape)


def status_of(client: Any) -> dict[str, int]:
    """The sizes of all regions, by name, whatever the protocol calls them."""
    status = client.get_system_shared_memory_status()
    if isinstance(status, list):
        return {entry["name"]: entry["byte_size"] for entry in status}
    return {name: entry.byte_size for name, entry in status.regions.items()}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("model", ["numbers", "plain", "caller"])
def test_tensors_go_back_and_forth_in_the_clients_regions(
    ours: dict[str, int], client_of: Any, region: Any, protocol: str, model: str
) -> None:
    module, client = client_of(protocol, ours)
    values = np.linspace(-1, 1, 100_000, dtype=np.float32)
    given, wanted = region("given", values.nbytes), region("wanted", values.nbytes)
    given.set(values)
    given.register(client)
    wanted.register(client)
    assert status_of(client) == {"given": values.nbytes, "wanted": values.nbytes}
    tensor = module.InferInput("INPUT0", [values.size], "FP32")
    tensor.set_shared_memory("given", values.nbytes)
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("wanted", values.nbytes)

    for step in range(3):  # the same request again, on other data
        given.set(values + step)
        answer = client.infer(model, [tensor], outputs=[output])

        assert shape_of(answer) == [values.size]
        result = wanted.get(np.float32, [values.size])
        factor = 2 if model == "caller" else 1
        np.testing.assert_array_equal(result, (values + step) * factor)

    client.unregister_system_shared_memory("given")
    assert list(status_of(client)) == ["wanted"]
    client.unregister_system_shared_memory()
    assert status_of(client) == {}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_strings_go_back_and_forth_in_the_clients_regions(
    ours: dict[str, int], client_of: Any, region: Any, protocol: str
) -> None:
    module, client = client_of(protocol, ours)
    strings = np.array(["a", "", "ünï", "\0"], dtype=object)
    packed = serialize_byte_tensor(strings)
    byte_size = len(packed.item())
    given, wanted = region("given", byte_size), region("wanted", byte_size)
    given.set(packed)
    given.register(client)
    wanted.register(client)
    tensor = module.InferInput("INPUT0", [4], "BYTES")
    tensor.set_shared_memory("given", byte_size)
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("wanted", byte_size)

    client.infer("strings", [tensor], outputs=[output])

    result = wanted.get(np.object_, [4])
    assert [element.decode() for element in result] == strings.tolist()
    client.unregister_system_shared_memory()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_region_is_registered_once(
    ours: dict[str, int], client_of: Any, region: Any, protocol: str
) -> None:
    _, client = client_of(protocol, ours)
    given = region("given", 64)
    given.register(client)

    with pytest.raises(InferenceServerException, match="shared memory region 'given' already in manager"):
        given.register(client)

    client.unregister_system_shared_memory()


def test_streamed_responses_are_in_the_region_when_they_arrive(
    ours: dict[str, int], client_of: Any, region: Any
) -> None:
    module, client = client_of("grpc", ours)
    given, wanted = region("given", 16), region("wanted", 16)
    given.set(np.array([1, 2, 3, 4], np.float32))
    given.register(client)
    wanted.register(client)
    tensor = module.InferInput("INPUT0", [4], "FP32")
    tensor.set_shared_memory("given", 16)
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("wanted", 16)
    seen: list[Any] = []
    arrived = threading.Semaphore(0)

    def on_response(result: Any, error: Any) -> None:
        values = wanted.get(np.float32, [4]).tolist()
        seen.append(error or (values, list(result.get_response().outputs[0].shape)))
        arrived.release()

    client.start_stream(on_response)
    client.async_stream_infer("numbers", [tensor], outputs=[output])
    assert arrived.acquire(timeout=20)
    client.async_stream_infer("repeat", [tensor], outputs=[output])
    for _ in range(3):
        assert arrived.acquire(timeout=20)
    client.stop_stream()
    client.unregister_system_shared_memory()

    assert seen[0] == ([1, 2, 3, 4], [4])
    assert [shape for _, shape in seen] == [[4]] * 4
    # Responses of one request share the region: the last one stands there in the end.
    assert seen[-1][0] == [3, 4, 5, 6]


# What clients do to their memory meanwhile


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.005)


def test_a_region_that_is_unregistered_meanwhile_still_takes_its_output(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory], tmp_path: Path
) -> None:
    client, other = http_of(ours["http"]), http_of(ours["http"])
    given, wanted = memory(cases.FLOATS), memory()
    client.register("given", given)
    client.register("wanted", wanted)
    gate = tmp_path / "gate"
    body = {
        "id": str(gate),
        "inputs": [{"name": "INPUT0", **cases.fp32(cases.region("given", 16))}],
        "outputs": [{"name": "OUTPUT0", "parameters": cases.region("wanted", 16)}],
    }
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(client.ask("POST", "/v2/models/gate/infer", body))
    )
    asking.start()
    wait_until((tmp_path / "gate.reached").exists, "the model runs")

    assert other.ask("POST", f"{cases.SYSTEM}/unregister") == (200, None)
    assert other.ask("GET", f"{cases.SYSTEM}/status") == (200, [])
    gate.touch()
    asking.join(30)

    assert answers[0][0] == 200
    assert wanted.content[:16] == ZERO_TO_THREE
    other.register("wanted", wanted)  # the name was free at once


def test_memory_that_its_client_cut_costs_an_error_and_not_the_server(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory]
) -> None:
    client = http_of(ours["http"])
    size = 1 << 20
    given, wanted = memory(byte_size=size), memory(byte_size=size)
    client.register("given", given, size)
    client.register("wanted", wanted, size)
    tensor = {"name": "INPUT0", **cases.fp32(cases.region("given", size), (size // 4,))}
    output = {"name": "OUTPUT0", "parameters": cases.region("wanted", size)}

    wanted.cut(4096)
    status, answer = client.ask("POST", "/v2/models/plain/infer", {"inputs": [tensor], "outputs": [output]})
    assert status == 400
    assert f"'{wanted.key}' has been cut to 4096 bytes since it was registered" in answer["error"]

    given.cut(0)
    for model in ("plain", "numbers"):
        status, answer = client.ask(
            "POST",
            f"/v2/models/{model}/infer",
            {"inputs": [tensor], "parameters": {"binary_data_output": True}},
        )
        assert (status, "has been cut to 0 bytes" in answer["error"]) == (400, True)

    assert client.ask("GET", "/v2/health/live") == (200, None)


def test_memory_that_is_cut_while_its_request_runs_costs_an_error(
    ours: dict[str, int], http_of: Any, memory: Callable[..., Memory], tmp_path: Path
) -> None:
    client = http_of(ours["http"])
    wanted = memory(byte_size=8192)
    client.register("wanted", wanted, 8192)
    gate = tmp_path / "gate"
    body = {
        "id": str(gate),
        "inputs": [{"name": "INPUT0", **cases.DATA}],
        "outputs": [{"name": "OUTPUT0", "parameters": cases.region("wanted", 16, 4096)}],
    }
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(client.ask("POST", "/v2/models/gate/infer", body))
    )
    asking.start()
    wait_until((tmp_path / "gate.reached").exists, "the model runs")

    wanted.cut(4096)
    gate.touch()
    asking.join(30)

    assert answers[0][0] == 400
    assert "has been cut to 4096 bytes since it was registered, 4112 are needed" in answers[0][1]["error"]


def test_the_server_never_deletes_what_belongs_to_a_client(
    serve: Callable[..., Server], models: Path, http_of: Any, memory: Callable[..., Memory]
) -> None:
    shared = memory(cases.FLOATS)
    server = serve(models, allow_client_shm=True)
    client = Http(server.http_port)
    client.register("given", shared)
    client.register("kept", shared)
    client.ask("POST", f"{cases.SYSTEM}/region/given/unregister")
    client.connection.close()
    server.stop()

    assert shared.content == cases.FLOATS


def test_who_shares_a_batch_with_memory_that_was_cut_does_not_notice(
    ours: dict[str, int], our_server: Server, http_of: Any, memory: Callable[..., Memory]
) -> None:
    first, second = http_of(ours["http"]), http_of(ours["http"])
    given = memory(byte_size=4096)
    first.register("given", given, 4096)
    answers: list[Any] = []

    def infer(client: Any, tensor: Any) -> Any:
        body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1024], **tensor}]}
        return client.ask("POST", "/v2/models/pairs/infer", body)

    waiting = threading.Thread(
        target=lambda: answers.append(infer(first, {"parameters": cases.region("given", 4096)}))
    )
    waiting.start()
    stats = our_server.runtime.registry.find("pairs", "").stats
    wait_until(lambda: stats.pending_count == 1, "the first request waits for a second one")
    given.cut(0)

    status, answer = infer(second, {"data": [7.0] * 1024})
    waiting.join(30)

    assert (status, answer["outputs"][0]["data"]) == (200, [7.0] * 1024)
    assert answers[0][0] == 400
    assert "has been cut to 0 bytes since it was registered" in answers[0][1]["error"]


# The switch


@pytest.fixture(scope="module")
def closed(models: Path) -> Iterator[dict[str, int]]:
    """A server that was not told to let clients share memory."""
    options = ServerOptions(
        (str(models),),
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        http_port=0,
        grpc_port=0,
        allow_metrics=False,
    )
    with Server(options) as server:
        yield {"http": server.http_port, "grpc": server.grpc_port}


@pytest.mark.parametrize(
    "path",
    [
        *(f"{kind}/region/x/register" for kind in (cases.SYSTEM, cases.CUDA)),
        *(f"{kind}/region/x/unregister" for kind in (cases.SYSTEM, cases.CUDA)),
        *(f"{kind}/unregister" for kind in (cases.SYSTEM, cases.CUDA)),
    ],
)
def test_clients_are_told_which_option_lets_them_share_memory(closed: dict[str, int], path: str) -> None:
    client = Http(closed["http"])
    status, answer = client.ask("POST", path, b"{}")
    client.connection.close()

    assert status == 501
    assert "--allow-client-shm=true" in answer["error"]


def test_status_and_inference_work_without_shared_memory(closed: dict[str, int]) -> None:
    client = Http(closed["http"])
    infer = {"inputs": [{"name": "INPUT0", **cases.fp32(cases.region("in", 16))}]}

    assert client.ask("GET", f"{cases.SYSTEM}/status") == (200, [])
    assert client.ask("GET", f"{cases.CUDA}/status") == (200, [])
    assert client.ask("POST", "/v2/models/numbers/infer", infer)[0] == 404
    client.connection.close()


def test_grpc_calls_are_unimplemented_without_the_option(closed: dict[str, int], stub_of: Any) -> None:
    stub = stub_of(closed["grpc"])
    for name in ("SystemSharedMemory", "CudaSharedMemory"):
        for action in ("Register", "Unregister"):
            with pytest.raises(grpc.RpcError) as caught:
                getattr(stub, f"{name}{action}")(getattr(service_pb2, f"{name}{action}Request")(name="x"))
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
            assert "--allow-client-shm=true" in caught.value.details()
        status = getattr(stub, f"{name}Status")(getattr(service_pb2, f"{name}StatusRequest")())
        assert not status.regions


def test_the_extensions_are_listed(ours: dict[str, int], http_of: Any) -> None:
    _, metadata = http_of(ours["http"]).ask("GET", "/v2")

    assert {"classification", "system_shared_memory", "cuda_shared_memory"} <= set(metadata["extensions"])
