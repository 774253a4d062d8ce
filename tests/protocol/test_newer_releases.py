"""What Triton's newer releases refuse that 2.51 does not, in their words, asked of one server."""

from __future__ import annotations

import base64
import json
import logging
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options
from .conftest import CONFIG

LIMIT = 8 << 20
INFER = "/v2/models/echo/infer"
INDEX = "/v2/repository/index"
REGISTER = "/v2/systemsharedmemory/region/r/register"
RESERVED = "triton_python_backend_shm_region_x"
TOO_LONG = "JSON beyond the limit"
TOO_DEEP = r".*JSON nesting depth exceeds maximum allowed limit \(\d+\)"


def tensor(**members: Any) -> bytes:
    return json.dumps(
        {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1], **members}]}
    ).encode()


def wanting(*names: str) -> bytes:
    return tensor()[:-1] + b', "outputs": ' + json.dumps([{"name": name} for name in names]).encode() + b"}"


def region(key: str) -> bytes:
    return json.dumps({"key": key, "byte_size": 8}).encode()


REFUSED: dict[str, tuple[str, bytes, str]] = {
    TOO_LONG: (
        INFER,
        tensor(),
        r"request JSON size of \d+ bytes exceeds the maximum allowed value of \d+ bytes\. Use --http-max",
    ),
    "data that is declared to expand beyond it": (
        INFER,
        tensor(datatype="FP64", shape=[LIMIT // 8 + 1]),
        r"request JSON size of \d+ bytes, as input 'INPUT0' is declared, exceeds the maximum allowed",
    ),
    "data that is nested deeply": (INFER, tensor(data=json.loads("[" * 101 + "]" * 101)), TOO_DEEP),
    "JSON that is nested deeply": (INFER, b"[" * 5000, TOO_DEEP),
    "an index with `ready` of another type": (
        INDEX,
        b'{"ready": "yes"}',
        "Invalid value for 'ready': expected a boolean$",
    ),
    "an index with `ready` that is nested": (
        INDEX,
        b'{"ready": ' + b"[" * 200 + b"]" * 200 + b"}",
        "Invalid value for 'ready': expected a boolean$",
    ),
    "a shape whose bytes are too many to count": (
        INFER,
        tensor(shape=[2**61]),
        r"\[request id: <id_unknown>\] byte size overflow for input 'INPUT0'",
    ),
    "the same output twice": (
        INFER,
        wanting("OUTPUT0", "OUTPUT0"),
        r"\[request id: <id_unknown>\] output 'OUTPUT0' already exists in request$",
    ),
    "a key of shared memory that is none": (
        REGISTER,
        region("/a/b"),
        "cannot register shared memory region 'r' - invalid shm key '/a/b'",
    ),
    "no key of shared memory": (
        REGISTER,
        region(""),
        "cannot register shared memory region 'r' - invalid shm key ''",
    ),
    "a key with the reserved prefix": (
        REGISTER,
        region(RESERVED),
        f"cannot register shared memory region 'r' with key '{RESERVED}' as the key contains the reserved "
        "prefix 'triton_python_backend_shm_region_'",
    ),
    "the same behind slashes": (
        REGISTER,
        region("///" + RESERVED),
        f"cannot register shared memory region 'r' with key '///{RESERVED}' as the key contains the reserved "
        "prefix 'triton_python_backend_shm_region_'",
    ),
    "loading a path": (
        "/v2/repository/models/../load",
        b"",
        "model name must not contain path traversal characters",
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    repository.model("echo", CONFIG)
    for version in (1, 2, 3):
        repository.model("versions", {**CONFIG, "version_policy": {"all": {}}}, version=version)
    options = local_options(
        repository.path,
        allow_client_shm=True,
        http_max_input_byte_size=LIMIT,
        model_control_mode="explicit",
        load_models=("echo",),
        metrics_config=("histogram_latencies=true",),
    )
    with Server(options) as running:
        yield running


def post(server: Server, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.http_port}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read()


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_their_words(server: Server, case: str) -> None:
    path, body, words = REFUSED[case]

    status, answer = post(server, path, b" " * LIMIT + body if case == TOO_LONG else body)

    assert status == 400
    assert re.match(words, json.loads(answer)["error"]), answer


def test_too_many_elements_to_classify(server: Server) -> None:
    count = 1_000_001
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "INPUT0",
                    "datatype": "FP32",
                    "shape": [count],
                    "parameters": {"binary_data_size": 4 * count},
                }
            ],
            "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1}}],
        }
    ).encode()

    status, answer = post(
        server, INFER, head + bytes(4 * count), **{"Inference-Header-Content-Length": str(len(head))}
    )

    assert status == 400
    assert "classification output tensor too large" in json.loads(answer)["error"]


def test_more_chunks_than_there_may_be(server: Server, dial: Callable[..., Any]) -> None:
    client = dial(server.http_port)
    head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"

    client.send(head + b"1\r\n \r\n" * 65_537 + b"0\r\n\r\n")

    answer = client.answer()
    assert (answer.status, answer.error) == (
        400,
        "Chunked request body exceeds maximum of 65536 non-empty chunks. Send fewer or larger HTTP chunks.",
    )


@pytest.mark.parametrize("name", ["", "  "])
def test_loading_nothing_over_grpc(server: Server, name: str) -> None:
    with (
        grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
        pytest.raises(InferenceServerException) as refusal,
    ):
        client.load_model(name)

    assert refusal.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert refusal.value.message() == "Model name cannot be empty. Please enter a valid name to deploy."


def test_the_same_output_twice_over_grpc(server: Server) -> None:
    request = service_pb2.ModelInferRequest(model_name="echo", id="7", raw_input_contents=[bytes(4)])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
    for _ in range(2):
        request.outputs.add(name="OUTPUT0")

    with (
        grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
        pytest.raises(Exception, match="OUTPUT0") as refusal,
    ):
        client._client_stub.ModelInfer(request, timeout=60)

    assert refusal.value.code().name == "INVALID_ARGUMENT"
    assert refusal.value.details() == "[request id: 7] output 'OUTPUT0' already exists in request"


def test_a_file_of_a_load_may_begin_with_a_slash(server: Server) -> None:
    parameters = {
        "config": json.dumps(CONFIG),
        "file:/1/notes.txt": base64.b64encode(b"x").decode(),
    }

    assert post(
        server, "/v2/repository/models/sent/load", json.dumps({"parameters": parameters}).encode()
    ) == (200, b"")


def test_a_load_of_several_versions_is_one_line_of_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert post(server, "/v2/repository/models/versions/load", b"") == (200, b"")

    lines = [text for text in caplog.messages if text.startswith("successfully loaded 'versions'")]
    assert lines == ["successfully loaded 'versions' versions 1, 2, 3"]


def test_first_responses_are_counted_for_every_model(server: Server) -> None:
    assert post(server, INFER, tensor())[0] == 200

    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60) as answer:
        page = answer.read().decode()

    line = r'^nv_inference_first_response_histogram_ms_count{model="echo",version="1"} (\d+)$'
    [count] = re.findall(line, page, re.MULTILINE)
    assert int(count) >= 1
