"""One server for all tests, with models of another backend, and its clients."""

from __future__ import annotations

import http.client
import json

import pytest
from onnx import parser
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
DOUBLE = "net (float[N,2] x) => (float[N,2] y) { two = Constant<value = float {2.0}>() y = Mul(x, two) }"
TRIPLE = DOUBLE.replace("2.0", "3.0")
MODELS = {
    "two": "net (float[N,2] a, int64[N] b) => (float[N,2] c, int64[N] d) { c = Neg(a) d = Neg(b) }",
    "strings": "net (string[N,2] s) => (string[N,2] t) { t = Identity(s) }",
    "image": "net (string[N] image_bytes) => (string[N] same_bytes) { same_bytes = Identity(image_bytes) }",
    "log": "net (float[N,1] x) => (float[N,1] y) { y = Log(x) }",
    "fixed": "net (float[1,3] x) => (float[1,3] y) { y = Neg(x) }",
    "sum": "net (float[K] x) => (float[1] total) { total = ReduceSum(x) }",
    "uneven": "net (float[N,2] x) => (float[N,2] y, float[1,2] s) "
    "{ axes = Constant<value = int64[1] {0}>() y = Neg(x) s = ReduceSum(x, axes) }",
}
TYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
TYPES += ["float16", "float", "double"]


def onnx(text):
    return parser.parse_model(HEADER + text).SerializeToString()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    for name, text in MODELS.items():
        repository.onnx(name, onnx(text))
    for name in TYPES:
        repository.onnx(f"of_{name}", onnx(f"net ({name}[N] x) => ({name}[N] y) {{ y = Identity(x) }}"))
    config = {
        "backend": "onnxruntime",
        "max_batch_size": 4,
        "version_policy": {"all": {}},
        "parameters": {"TRITONPY_VERSION_LABELS": {"string_value": "stable:1, canary:2,gone:7"}},
    }
    repository.onnx("scale", onnx(DOUBLE), config)
    repository.onnx("scale", onnx(TRIPLE), version=2)
    repository.onnx("signed", onnx(DOUBLE), {"parameters": {"TF_SIGNATURE_DEF": {"string_value": "special"}}})
    for name, datatype in (("raw", "TYPE_STRING"), ("brain", "TYPE_BF16")):
        both = {
            key: [{"name": f"{key.upper()}0", "data_type": datatype, "dims": [2]}]
            for key in ("input", "output")
        }
        repository.model(name, {"backend": "identity", "max_batch_size": 2} | both)
    repository.model("broken", None, {"model.onnx": b"not a model"})
    options = ServerOptions(
        (str(repository.path),),
        exit_on_error=False,
        allow_http=False,
        allow_grpc=False,
        allow_metrics=False,
        frontend_config=(
            ("tfserving", "port", "0"),
            ("tfserving", "grpc-port", "0"),
            ("tfserving", "address", "127.0.0.1"),
            ("tfserving", "max-body-bytes", "100000"),
        ),
    )
    with Server(options) as started:
        yield started


@pytest.fixture(scope="session")
def call(server):
    """Send a request; returns the status and the document that came."""
    address, _ = server.runtime.frontends.by_name["tfserving"].addresses

    def send(path, document=None, *, method=None, **headers):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
        try:
            given = None if document is None else body
            connection.request(method or ("GET" if document is None else "POST"), path, given, headers)
            answer = connection.getresponse()
            assert answer.headers["content-type"] == "application/json"
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    return send
