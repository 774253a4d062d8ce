"""One HTTP inference, driven by hand: no socket, no process, and a model that the test answers for."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from tritonpy.admission import Admission
from tritonpy.dataplane import TensorSpec
from tritonpy.errors import Cancelled, InvalidArg, NotFound, TritonError, Unavailable, Unsupported
from tritonpy.frontends.http.codec.json_body import MOST_LAX_HERE
from tritonpy.frontends.http.codec.large_json import LARGE
from tritonpy.frontends.http.connection.message import HttpRequest
from tritonpy.frontends.http.inference import Inference
from tritonpy.frontends.services import FrontendServices
from tritonpy.options import ServerOptions
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse
from tritonpy.shared_memory.registry import SharedMemoryRegions

from .by_hand import Codec, Connection

ARRAY = np.arange(4, dtype=np.float32)
TENSOR: dict[str, Any] = {"name": "IN", "datatype": "FP32", "shape": [4]}
BINARY = json.dumps(
    {
        "inputs": [{**TENSOR, "parameters": {"binary_data_size": 16}}],
        "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
    }
).encode()
BINARY_LENGTH = {b"inference-header-content-length": b"%d" % len(BINARY)}
JSON = json.dumps({"inputs": [{**TENSOR, "data": ARRAY.tolist()}]}).encode()
LARGE_JSON = JSON + b" " * LARGE


class Model:
    """Takes requests, and leaves the answers to the test; satisfies `ServedModel`."""

    name = "m"
    version = 1
    config: ClassVar[dict[str, Any]] = {}
    max_batch_size = 0
    labels: ClassVar[Mapping[str, Any]] = {"OUT": (b"zero", b"one")}
    inputs: ClassVar = {"IN": TensorSpec("IN", "FP32", (-1,))}
    outputs: ClassVar = {"OUT": TensorSpec("OUT", "FP32", (-1,))}

    def __init__(self, *, is_decoupled: bool = False, refusal: TritonError | None = None) -> None:
        self.is_decoupled = is_decoupled
        self.refusal = refusal
        self.requests: list[InferRequest] = []

    def infer(self, request: InferRequest, sink: ResponseSink) -> None:
        if self.refusal is not None:
            raise self.refusal
        request.ticket.sink = sink
        self.requests.append(request)

    def answer(self, final: bool = True) -> None:
        (request,) = self.requests
        request.deliver(InferResponse().add("OUT", request.input("IN").numpy()), final)


class Side:
    """What is on either side of an inference: clients, and models by name."""

    def __init__(self, model: Model | None = None) -> None:
        self.model = model or Model()
        self.codec = Codec()
        self.admission = Admission(0)
        services = FrontendServices(self.admission, SharedMemoryRegions(is_allowed=True))
        dataplane: Any = self  # as much of one as is asked for
        codec: Any = self.codec
        self.inference = Inference(dataplane, services, ServerOptions(()).http_max_input_byte_size, codec)

    def find(self, name: str, version: str = "") -> Model:
        if name != "m":
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        return self.model

    def post(
        self, body: bytes, headers: Mapping[bytes, bytes] | None = None, name: str = "m"
    ) -> tuple[Connection, asyncio.Task[None] | None]:
        """Send a request; what of it goes on as a task."""
        request = HttpRequest(b"POST", "/", dict(headers or {}), body, True)
        connection = Connection(request)
        rest = self.inference.infer(request, connection, (name, ""))
        return connection, asyncio.ensure_future(rest) if rest is not None else None  # type: ignore[arg-type]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_binary_request_is_answered_in_binary_within_the_turns_of_its_model() -> None:
    side = Side()
    connection, rest = side.post(BINARY + ARRAY.tobytes(), BINARY_LENGTH)
    assert rest is None
    assert connection.answer_count == 0

    side.model.answer()

    size = int(connection.headers[b"Inference-Header-Content-Length"])
    assert (connection.status, connection.headers[b"Content-Type"]) == (200, b"application/octet-stream")
    assert json.loads(connection.body[:size])["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert connection.body[size:] == ARRAY.tobytes()


async def test_a_body_without_json_is_the_only_input() -> None:
    side = Side()
    side.post(ARRAY.tobytes(), {b"inference-header-content-length": b"0"})

    assert side.model.requests[0].input("IN").numpy().tolist() == ARRAY.tolist()


@pytest.mark.parametrize(
    ("model", "name", "headers", "expected"),
    [
        (Model(), "other", {}, NotFound),
        (Model(is_decoupled=True), "m", {}, Unsupported),
        (Model(refusal=InvalidArg("no")), "m", {}, InvalidArg),
        (Model(), "m", {b"inference-header-content-length": b"-1"}, InvalidArg),
        (Model(), "m", {b"inference-header-content-length": b"1000"}, InvalidArg),
    ],
)
async def test_what_is_refused_is_raised_and_nothing_is_written(
    model: Model, name: str, headers: Mapping[bytes, bytes], expected: type[TritonError]
) -> None:
    side = Side(model)

    with pytest.raises(expected):
        side.post(JSON, headers, name)

    assert model.requests == []


async def test_a_coding_that_is_not_understood_is_answered_with_those_that_are() -> None:
    side = Side()

    connection, rest = side.post(JSON, {b"content-encoding": b"br"})

    assert rest is None
    assert (connection.status, connection.headers[b"Accept-Encoding"]) == (501, b"gzip, deflate")
    assert side.model.requests == []


async def test_inflated_bytes_are_held_until_the_model_answers() -> None:
    side = Side()
    connection, rest = side.post(gzip.compress(JSON), {b"content-encoding": b"gzip"})
    assert rest is not None
    await rest
    assert side.admission.held == len(JSON)

    side.model.answer(final=False)
    side.model.answer()  # is not counted, or written, once more

    assert side.admission.held == 0
    assert (connection.status, connection.answer_count) == (200, 1)


@pytest.mark.parametrize("body", [JSON, b"{"], ids=["refused by the model", "no JSON"])
async def test_inflated_bytes_of_a_refused_request_are_held_no_longer(body: bytes) -> None:
    side = Side(Model(refusal=Unavailable("full")))
    _, rest = side.post(gzip.compress(body), {b"content-encoding": b"gzip"})
    assert rest is not None

    with pytest.raises(TritonError):
        await rest

    assert side.admission.held == 0


async def test_large_json_is_given_to_the_model_that_is_there_when_it_has_been_read() -> None:
    side = Side()
    connection, rest = side.post(LARGE_JSON)
    assert rest is not None
    await turns()
    before, side.model = side.model, Model()
    side.codec.go.set()
    await rest

    assert before.requests == []
    side.model.answer()
    assert json.loads(connection.body)["outputs"][0]["data"] == ARRAY.tolist()


async def test_large_json_whose_model_became_decoupled_meanwhile_is_refused() -> None:
    side = Side()
    _, rest = side.post(LARGE_JSON)
    assert rest is not None
    await turns()
    side.model = Model(is_decoupled=True)
    side.codec.go.set()

    with pytest.raises(Unsupported):
        await rest


async def test_json_that_only_a_slow_parser_takes_is_read_elsewhere_unless_it_is_short() -> None:
    side = Side()
    lax = JSON.replace(b"3.0", b"NaN")
    _, rest = side.post(lax)
    assert (rest, side.codec.read_count) == (None, 0)

    _, rest = side.post(lax + b" " * MOST_LAX_HERE)
    side.codec.go.set()
    assert rest is not None
    await rest

    values = [request.input("IN").numpy().tolist()[:3] for request in side.model.requests]
    assert values == [[0.0, 1.0, 2.0]] * 2
    assert side.codec.read_count == 1


async def test_a_client_that_leaves_while_its_json_is_read_asks_no_model() -> None:
    side = Side()
    connection, rest = side.post(LARGE_JSON)
    assert rest is not None
    await turns()

    connection.leave()

    with pytest.raises(Cancelled):
        await rest
    assert side.model.requests == []


async def test_a_client_that_leaves_has_its_request_cancelled() -> None:
    side = Side()
    connection, _ = side.post(JSON)

    connection.leave()

    assert side.model.requests[0].is_cancelled()
    side.model.answer()
    assert connection.kept.written == b""


async def test_a_connection_does_not_keep_a_request_alive_that_its_model_has_dropped() -> None:
    side = Side()
    connection, _ = side.post(JSON)
    gc.disable()
    try:
        posted: list[InferResponse | None] = []

        class Outbox:
            def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
                posted.append(response)
                request.deliver(response, final)

        side.model.requests[0].ticket.outbox = Outbox()
        side.model.requests.clear()
    finally:
        gc.enable()

    assert len(posted) == 1
    assert (connection.status, connection.answer_count) == (500, 1)


@pytest.mark.parametrize(
    ("response", "status", "words"),
    [
        (None, 500, "[request id: <id_unknown>] the model sent no response"),
        (InferResponse(error=Unavailable("busy")), 503, "busy"),
        (InferResponse().add("OUT", np.zeros(1, np.float16)), 400, "sending FP16 data via JSON"),
    ],
)
async def test_what_is_no_answer_is_an_error(response: InferResponse | None, status: int, words: str) -> None:
    side = Side()
    connection, _ = side.post(JSON)

    side.model.requests[0].deliver(response)

    assert connection.status == status
    assert words in json.loads(connection.body)["error"]


async def test_a_model_that_answers_twice_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    side = Side()
    connection, _ = side.post(JSON)

    side.model.answer(final=False)
    side.model.answer()

    assert connection.answer_count == 1
    assert caplog.messages == ["[request id: <id_unknown>] expected a single response, got another one"]


async def test_classes_have_the_labels_of_the_model_that_answers() -> None:
    side = Side()
    wish = {"name": "OUT", "parameters": {"classification": 1}}
    body = json.dumps({"inputs": [{**TENSOR, "shape": [2], "data": [0, 1]}], "outputs": [wish]}).encode()
    connection, _ = side.post(body)

    side.model.answer()

    assert json.loads(connection.body)["outputs"][0]["data"] == ["1.000000:1:one"]


async def test_a_response_that_cannot_be_written_is_an_error() -> None:
    side = Side()
    connection, _ = side.post(JSON)
    broken: Any = InferResponse()
    broken.outputs = [object()]

    side.model.requests[0].deliver(broken)

    assert connection.status == 500
    assert "the response cannot be written: AttributeError" in json.loads(connection.body)["error"]
