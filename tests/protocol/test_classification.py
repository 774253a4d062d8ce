"""Classification over both protocols: what ours answers, and, in the parity run, that a real server does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options

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

NUMPY = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


def build_models(root: Path) -> None:
    repository = ModelRepository(root)

    def model(name: str, datatype: str, max_batch_size: int = 0, labels: bytes = b"") -> None:
        tensor = {"data_type": f"TYPE_{datatype}", "dims": [-1]}
        output: dict[str, Any] = {"name": "OUTPUT0", **tensor}
        if labels:
            output["label_filename"] = "classes.txt"
        repository.python(
            name,
            IDENTITY,
            config={
                "backend": "python",
                "max_batch_size": max_batch_size,
                "input": [{"name": "INPUT0", **tensor}],
                "output": [output],
            },
        )
        if labels:
            (root / name / "classes.txt").write_bytes(labels)

    for datatype in NUMPY:
        model(datatype, datatype)
    model("labelled", "FP32", labels=b"cat\nbig dog\n\n  lead\ncrlf\r\nlast")
    model("batched", "FP32", 4, labels=b"cat\ndog\n")


@dataclass(frozen=True)
class Case:
    """One output of which the largest elements are wanted.

    Attributes:
        model: which one; its name says its datatype, or it has labels and takes FP32.
        elements: what it answers before they are classified.
        count: how many are wanted.
        classes: what comes, or the error.
    """

    model: str
    elements: Any
    count: Any
    classes: Any

    def __str__(self) -> str:
        return f"{self.count!r} of {np.asarray(self.elements).tolist()} of {self.model}"

    @property
    def array(self) -> Any:
        return np.array(self.elements).astype(NUMPY.get(self.model, np.float32))

    @property
    def datatype(self) -> str:
        return self.model if self.model in NUMPY else "FP32"


def unsupported(datatype: str) -> str:
    return f"class result not available for output due to unsupported type '{datatype}'"


CASES = [
    Case("FP32", [1, 3, 2], 2, ["3.000000:1", "2.000000:2"]),
    Case("FP32", [1, 3, 2], 100, ["3.000000:1", "2.000000:2", "1.000000:0"]),
    Case("FP32", [1, 3, 2], 2**31, ["3.000000:1", "2.000000:2", "1.000000:0"]),
    Case("FP32", [7], 1, ["7.000000:0"]),
    Case(
        "labelled",
        [6, 5, 4, 3, 2, 1, 0],
        7,
        [
            "6.000000:0:cat",
            "5.000000:1:big dog",
            "4.000000:2",
            "3.000000:3:  lead",
            "2.000000:4:crlf\r",
            "1.000000:5:last",
            "0.000000:6",
        ],
    ),
    Case(
        "batched",
        [[1, 2, 3], [6, 5, 4]],
        2,
        [["3.000000:2", "2.000000:1:dog"], ["6.000000:0:cat", "5.000000:1:dog"]],
    ),
    Case("batched", [[7, 6, 5]], 9, [["7.000000:0:cat", "6.000000:1:dog", "5.000000:2"]]),
    *(
        Case(name, [1, 0, 100, 250, 3], 3, ["250:3", "100:2", "3:4"])
        for name in NUMPY
        if "INT" in name and name != "INT8"
    ),
    Case("INT8", [1, 0, 100, -6, 3], 3, ["100:2", "3:4", "1:0"]),
    Case("FP64", [1, 0, 100, 250, 3], 3, ["250.000000:3", "100.000000:2", "3.000000:4"]),
    Case(
        "UINT64",
        np.array([2**64 - 1, 2**63, 5], np.uint64),
        3,
        ["18446744073709551615:0", "9223372036854775808:1", "5:2"],
    ),
    Case("INT64", [-(2**63), 2**63 - 1, 5], 3, ["9223372036854775807:1", "5:2", "-9223372036854775808:0"]),
    Case(
        "FP32",
        [1, np.inf, -np.inf, 1e20, 1e-9],
        5,
        ["inf:1", "100000002004087734272.000000:3", "1.000000:0", "0.000000:4", "-inf:2"],
    ),
    Case("FP64", [1 / 3, -1e-300, 2 / 3 * 1e7], 3, ["6666666.666667:2", "0.333333:0", "-0.000000:1"]),
    Case("FP32", [1 / 3, 16777217, 0.1], 3, ["16777216.000000:1", "0.333333:0", "0.100000:2"]),
    Case(
        "FP32",
        [1, 3, 3, 1, 3, 2],
        6,
        ["3.000000:1", "3.000000:2", "3.000000:4", "2.000000:5", "1.000000:0", "1.000000:3"],
    ),
    Case("FP32", [0.0, -0.0, 0.0], 3, ["0.000000:0", "-0.000000:1", "0.000000:2"]),
    Case("INT32", [7] * 16, 3, ["7:0", "7:1", "7:2"]),
    *(Case(name, [1, 0, 1], 1, unsupported(name)) for name in ("BOOL", "FP16")),
]


class Port:
    """Both protocols of one server."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", ports["http"], timeout=30)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{ports['grpc']}")
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        self._connection.close()
        self._channel.close()

    def http(self, case: Case, **parameters: Any) -> tuple[int, Any, bytes]:
        """The status, the JSON and the bytes that follow it."""
        array = case.array
        document = {
            "inputs": [
                {
                    "name": "INPUT0",
                    "datatype": case.datatype,
                    "shape": list(array.shape),
                    "parameters": {"binary_data_size": array.nbytes},
                }
            ],
            "outputs": [{"name": "OUTPUT0", "parameters": {"classification": case.count, **parameters}}],
        }
        head = json.dumps(document).encode()
        self._connection.request(
            "POST",
            f"/v2/models/{case.model}/infer",
            head + array.tobytes(),
            {"Inference-Header-Content-Length": str(len(head))},
        )
        response = self._connection.getresponse()
        body = response.read()
        length = int(response.getheader("Inference-Header-Content-Length") or len(body))
        return response.status, json.loads(body[:length]), body[length:]

    def grpc(self, case: Case, count: Any = None) -> Any:
        """The response, or the error."""
        message = service_pb2.ModelInferRequest(model_name=case.model)
        array = case.array
        message.inputs.add(name="INPUT0", datatype=case.datatype, shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
        parameter = count or service_pb2.InferParameter(int64_param=case.count)
        message.outputs.add(name="OUTPUT0").parameters["classification"].CopyFrom(parameter)
        try:
            return self._stub.ModelInfer(message, timeout=30)
        except grpc.RpcError as error:
            return error


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    build_models(root)
    return root


@pytest.fixture(scope="module")
def ours(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    more = ModelRepository(tmp_path_factory.mktemp("more"))
    for datatype in ("BF16", "STRING"):
        tensor = {"data_type": f"TYPE_{datatype}", "dims": [-1]}
        more.model(
            datatype,
            {
                "backend": "identity",
                "input": [{"name": "INPUT0", **tensor}],
                "output": [{"name": "OUTPUT0", **tensor}],
            },
        )
    options = local_options(models, more.path, allow_metrics=False)
    with Server(options) as server:
        port = Port({"http": server.http_port, "grpc": server.grpc_port})
        yield port
        port.close()


@pytest.fixture(scope="module")
def real(models: Path, real_triton: Callable[..., dict[str, int]]) -> Iterator[Port]:
    port = Port(real_triton(models))
    yield port
    port.close()


def check_http(port: Port, case: Case) -> None:
    status, answer, _ = port.http(case)

    if isinstance(case.classes, str):
        assert (status, answer) == (400, {"error": case.classes})
        return
    classes = np.array(case.classes, object)
    output = {
        "name": "OUTPUT0",
        "datatype": "BYTES",
        "shape": list(classes.shape),
        "data": classes.reshape(-1).tolist(),
    }
    assert status == 200
    assert answer == {"model_name": case.model, "model_version": "1", "outputs": [output]}


def check_grpc(port: Port, case: Case) -> None:
    answer = port.grpc(case)

    if isinstance(case.classes, str):
        assert (answer.code(), answer.details()) == (grpc.StatusCode.INVALID_ARGUMENT, case.classes)
        return
    classes = np.array(case.classes, object)
    (output,) = answer.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("OUTPUT0", "BYTES", list(classes.shape))
    (content,) = answer.raw_output_contents
    found = [element.decode() for element in deserialize_bytes_tensor(content)]
    assert found == classes.reshape(-1).tolist()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_largest_elements_are_answered_over_http(ours: Port, case: Case) -> None:
    check_http(ours, case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_largest_elements_are_answered_over_grpc(ours: Port, case: Case) -> None:
    check_grpc(ours, case)


@pytest.mark.parity
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_real_server_answers_the_same(real: Port, case: Case) -> None:
    check_http(real, case)
    check_grpc(real, case)


WRONG_COUNTS = [-1, "2", 1.5, True, None, 2**64]
NOT_UNSIGNED = (
    "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer"
)
WRONG_PARAMETERS = [
    ({"int64_param": 0}, "invalid value for 'classification' parameter, expected >= 0"),
    ({"int64_param": -1}, "invalid value for 'classification' parameter, expected >= 0"),
    ({"string_param": "2"}, "invalid value type for 'classification' parameter, expected int64_param"),
    ({"bool_param": True}, "invalid value type for 'classification' parameter, expected int64_param"),
]


def check_wrong_counts(port: Port) -> None:
    for count in WRONG_COUNTS:
        assert port.http(Case("FP32", [1, 2], count, None))[:2] == (500, {"error": NOT_UNSIGNED})
    for parameter, text in WRONG_PARAMETERS:
        answer = port.grpc(Case("FP32", [1, 2], None, None), service_pb2.InferParameter(**parameter))
        assert (answer.code(), answer.details()) == (grpc.StatusCode.INVALID_ARGUMENT, text)


def check_forms(port: Port) -> None:
    case = Case("labelled", [1, 3, 2], 2, None)
    status, answer, behind = port.http(case, binary_data=True)
    assert (status, answer["outputs"][0]["parameters"]) == (200, {"binary_data_size": len(behind)})
    assert [bytes(element) for element in deserialize_bytes_tensor(behind)] == [
        b"3.000000:1:big dog",
        b"2.000000:2",
    ]
    assert port.http(case, binary_data=False)[1]["outputs"][0]["data"] == ["3.000000:1:big dog", "2.000000:2"]

    status, answer, _ = port.http(Case("FP32", [1, 3], 0, None))  # as good as not asked for
    assert (status, answer["outputs"][0]["data"]) == (200, [1.0, 3.0])


def test_a_count_that_is_none_is_refused(ours: Port) -> None:
    check_wrong_counts(ours)


def test_classes_travel_as_json_or_binary(ours: Port) -> None:
    check_forms(ours)


@pytest.mark.parity
def test_a_real_server_refuses_and_writes_the_same(real: Port) -> None:
    check_wrong_counts(real)
    check_forms(real)


@pytest.mark.parametrize(
    ("model", "datatype", "body"),
    [("STRING", "BYTES", {"data": ["a", "b"]}), ("BF16", "BF16", None)],
)
def test_what_ends_older_servers_is_refused(ours: Port, model: str, datatype: str, body: Any) -> None:
    document: dict[str, Any] = {
        "inputs": [{"name": "INPUT0", "datatype": datatype, "shape": [2], **(body or {})}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1}}],
    }
    tail = b""
    if body is None:
        document["inputs"][0]["parameters"] = {"binary_data_size": 4}
        tail = bytes(4)
    head = json.dumps(document).encode()
    ours._connection.request(
        "POST", f"/v2/models/{model}/infer", head + tail, {"Inference-Header-Content-Length": str(len(head))}
    )
    response = ours._connection.getresponse()

    assert json.loads(response.read()) == {"error": unsupported(datatype)}
    assert response.status == 400


def test_an_output_without_elements_has_no_classes(ours: Port) -> None:
    check_http(ours, Case("FP32", [], 2, []))
    check_grpc(ours, Case("FP32", [], 2, []))


def test_an_output_with_too_many_elements_is_refused(ours: Port) -> None:
    status, answer, _ = ours.http(Case("UINT8", np.zeros(1_000_001), 1, None))

    assert status == 400
    assert answer["error"].endswith("has 1000001 elements, expected at most 1000000")


def test_streamed_responses_are_classified(ours: Port) -> None:
    message = service_pb2.ModelInferRequest(model_name="labelled", id="7")
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
    message.raw_input_contents.append(np.array([1, 2], np.float32).tobytes())
    message.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 1

    answers = [
        answer.infer_response for answer in ours._stub.ModelStreamInfer(iter([message] * 3), timeout=30)
    ]

    assert [answer.raw_output_contents[0] for answer in answers] == [
        b"\x12\0\0\0" + b"2.000000:1:big dog"
    ] * 3


def test_a_model_that_is_loaded_anew_brings_its_labels(serve: Callable[..., Server], tmp_path: Path) -> None:
    build_models(tmp_path)
    server = serve(tmp_path, model_control_mode="explicit", load_models=("labelled",))
    port = Port({"http": server.http_port, "grpc": server.grpc_port})
    case = Case("labelled", [1, 2], 1, ["2.000000:1:big dog"])
    check_http(port, case)
    (tmp_path / "labelled" / "classes.txt").write_bytes(b"a\nb\n")

    port._connection.request("POST", "/v2/repository/models/labelled/load", b"")
    response = port._connection.getresponse()
    assert (response.status, response.read()) == (200, b"")

    check_http(port, Case("labelled", [1, 2], 1, ["2.000000:1:b"]))
    port.close()


def test_a_model_whose_label_file_is_missing_is_not_loaded(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    build_models(tmp_path)
    (tmp_path / "labelled" / "classes.txt").unlink()
    server = serve(tmp_path, model_control_mode="explicit", load_models=())
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request("POST", "/v2/repository/models/labelled/load", b"")
    response = connection.getresponse()
    error = json.loads(response.read())["error"]
    connection.close()

    assert (
        f"Internal: failed to open text file for read {tmp_path}/labelled/classes.txt: No such file" in error
    )
