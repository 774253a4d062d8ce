"""Calls of TensorFlow Serving's gRPC clients: the messages that its own client sends, and that client."""

from __future__ import annotations

from importlib.util import find_spec

import grpc
import numpy as np
import pytest
from tritonpy_frontend_tfserving import messages
from tritonpy_frontend_tfserving.tensor_messages import NUMBERS, write_tensor

# What `tensorflow-serving-api` 2.21 sends.
PREDICT = (
    "0a1c0a057363616c65120208011a0f73657276696e675f64656661756c7412230a0178121e08011208120208021202080222100000"
    "803f000000400000404000008040"
)
PREDICT_STRINGS = "0a090a07737472696e677312180a017312130807120812020801120208024202c3a44201621a0174"
PREDICT_LABEL = "0a0f0a057363616c652206737461626c6512170a017812120801120812020803120208022a040000a040"


@pytest.fixture(scope="module")
def channel(server):
    _, address = server.runtime.frontends.by_name["tfserving"].addresses
    with grpc.insecure_channel(f"{address.host}:{address.port}") as opened:
        yield opened


@pytest.fixture(scope="module")
def call(channel):
    """Call a method; `request` is a message or its bytes."""

    def send(method, request, answer, service="PredictionService"):
        ask = channel.unary_unary(
            f"/tensorflow.serving.{service}/{method}",
            request_serializer=lambda sent: sent if isinstance(sent, bytes) else sent.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return ask(request, timeout=30)

    return send


@pytest.fixture
def predict(call):
    """Ask a model; inputs are arrays by name, or messages. Returns outputs by name, and the message."""

    def send(name, *, version=0, label="", signature="", outputs=(), **inputs):
        request = messages.PredictRequest(output_filter=outputs)
        request.model_spec.name, request.model_spec.signature_name = name, signature
        request.model_spec.version_label = label
        if version:
            request.model_spec.version.value = version
        for key, array in inputs.items():
            entry = request.inputs.add(key=key).value
            if isinstance(array, np.ndarray):
                datatype = {"O": "BYTES", "float32": "FP32", "int64": "INT64"}
                write_tensor(array, datatype.get(array.dtype.name, datatype.get(array.dtype.kind)), entry)
            else:
                entry.CopyFrom(array)
        return call("Predict", request, messages.PredictResponse)

    return send


def sizes(message):
    return [dim.size for dim in message.tensor_shape.dim]


def test_messages_of_the_real_client_are_answered(call):
    (scaled,) = call("Predict", bytes.fromhex(PREDICT), messages.PredictResponse).outputs
    (same,) = call("Predict", bytes.fromhex(PREDICT_STRINGS), messages.PredictResponse).outputs
    answer = call("Predict", bytes.fromhex(PREDICT_LABEL), messages.PredictResponse)

    assert (scaled.key, scaled.value.dtype, sizes(scaled.value)) == ("y", 1, [2, 2])
    assert list(scaled.value.float_val) == [2, 4, 6, 8]  # version 1
    assert (same.key, list(same.value.string_val)) == ("t", ["ä".encode(), b"b"])
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("scale", 1)
    assert list(answer.outputs[0].value.float_val) == [10] * 6  # one value stands for all


def test_rows_beyond_a_batch_come_back_as_one_answer(predict):
    x = np.arange(22, dtype="f4").reshape(11, 2)

    (output,) = predict("scale", x=x).outputs

    assert sizes(output.value) == [11, 2]
    assert list(output.value.float_val) == (x * 3).reshape(-1).tolist()


def test_outputs_are_chosen_by_the_filter(predict):
    given = {"a": np.ones((2, 2), "f4"), "b": np.array([3, 4])}

    everything = {entry.key: entry.value for entry in predict("two", **given).outputs}
    chosen = predict("two", outputs=["d"], **given).outputs

    assert sorted(everything) == ["c", "d"]
    assert (sizes(everything["d"]), list(everything["d"].int64_val)) == ([2], [-3, -4])
    assert [entry.key for entry in chosen] == ["d"]


ELEMENTS = {
    "bool": ("bool_val", [True, False]),
    "uint8": ("int_val", [0, 255]),
    "uint16": ("int_val", [0, 65535]),
    "uint32": ("uint32_val", [0, 2**32 - 1]),
    "uint64": ("uint64_val", [0, 2**64 - 1]),
    "int8": ("int_val", [-128, 127]),
    "int16": ("int_val", [-32768, 32767]),
    "int32": ("int_val", [-(2**31), 2**31 - 1]),
    "int64": ("int64_val", [-(2**63), 2**63 - 1]),
    "float16": ("half_val", [0x3C00, 0xC000]),
    "float": ("float_val", [0.5, -2]),
    "double": ("double_val", [0.1, -2]),
}
DATATYPES = {"bool": "BOOL", "float16": "FP16", "float": "FP32", "double": "FP64"}


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_come_and_go_one_by_one_and_as_they_are_in_memory(predict, name):
    field, elements = ELEMENTS[name]
    number = NUMBERS[DATATYPES.get(name, name.upper())]
    numpy_type = {"float": "f4", "double": "f8", "float16": "u2"}.get(name, name)
    one_by_one = messages.Tensor(dtype=number, **{field: elements})
    in_memory = messages.Tensor(dtype=number, tensor_content=np.array(elements, numpy_type).tobytes())
    for message in (one_by_one, in_memory):
        message.tensor_shape.dim.add(size=2)

        (output,) = predict(f"of_{name}", x=message).outputs

        assert output.value.dtype == number
        assert list(getattr(output.value, field)) == elements


def test_bytes_of_any_kind_come_and_go(predict):
    (output,) = predict("raw", INPUT0=np.array([[b"\xff\0", b""]], object)).outputs

    assert list(output.value.string_val) == [b"\xff\0", b""]


def spec_of(size, **fields):
    message = messages.Tensor(**fields)
    for dim in size:
        message.tensor_shape.dim.add(size=dim)
    return message


REFUSALS = [
    ("nope", {}, "NOT_FOUND", "Servable not found for request: Latest(nope)"),
    ("scale", {"version": 9}, "NOT_FOUND", "Servable not found for request: Specific(scale, 9)"),
    ("scale", {"label": "no"}, "INVALID_ARGUMENT", "Unrecognized servable version label: no"),
    ("scale", {"signature": "no"}, "INVALID_ARGUMENT", 'Serving signature name: "no" not found'),
    (
        "scale",
        {"z": np.ones((1, 2), "f4")},
        "INVALID_ARGUMENT",
        "input tensor alias not found in signature: z. ",
    ),
    ("scale", {}, "INVALID_ARGUMENT", "input"),
    ("scale", {"outputs": ["q"], "x": np.ones((1, 2), "f4")}, "INVALID_ARGUMENT", "q"),
    ("scale", {"x": np.ones((1, 2), "i8")}, "INVALID_ARGUMENT", "got a tensor of type INT64, expected FP32"),
    ("scale", {"x": spec_of([1, 2], dtype=8)}, "INVALID_ARGUMENT", "type DataType 8, expected FP32"),
    (
        "scale",
        {"x": spec_of([1, 2], dtype=1, tensor_content=b"123")},
        "INVALID_ARGUMENT",
        "tensor_content has 3 bytes, expected 8 for shape [1, 2]",
    ),
    (
        "scale",
        {"x": spec_of([1, 2], dtype=1, float_val=[1, 2, 3])},
        "INVALID_ARGUMENT",
        "got 3 elements, expected 2",
    ),
    ("scale", {"x": spec_of([-1, 2], dtype=1)}, "INVALID_ARGUMENT", "expected sizes from 0 on"),
    (
        "scale",
        {"x": spec_of([2**40, 2], dtype=1, float_val=[1])},
        "INVALID_ARGUMENT",
        "has more than 100000 bytes",
    ),
    (
        "of_int8",
        {"x": spec_of([1], dtype=6, int_val=[300])},
        "INVALID_ARGUMENT",
        "300 out of bounds for int8",
    ),
    (
        "strings",
        {"s": spec_of([5000, 2], dtype=7, string_val=[b"a" * 50])},
        "INVALID_ARGUMENT",
        "10000 strings have more than 100000 bytes",
    ),
    ("strings", {"s": spec_of([1, 2], dtype=7)}, "INVALID_ARGUMENT", "got 0 elements, expected 2"),
]


@pytest.mark.parametrize(("name", "given", "code", "words"), REFUSALS)
def test_what_is_wrong_ends_the_call_with_the_reason(predict, name, given, code, words):
    with pytest.raises(grpc.RpcError) as caught:
        predict(name, **given)

    assert caught.value.code().name == code
    assert words in caught.value.details()


@pytest.mark.parametrize(
    ("service", "method", "request_", "code", "words"),
    [
        ("PredictionService", "Predict", b"\xff", "INVALID_ARGUMENT", "the message is no PredictRequest"),
        ("PredictionService", "Classify", b"", "UNIMPLEMENTED", "the call takes tf.Example records"),
        ("PredictionService", "Regress", b"", "UNIMPLEMENTED", "the call takes tf.Example records"),
        ("PredictionService", "MultiInference", b"", "UNIMPLEMENTED", "the call takes tf.Example records"),
        (
            "ModelService",
            "HandleReloadConfigRequest",
            b"",
            "UNIMPLEMENTED",
            "a configuration of TensorFlow Serv",
        ),
        ("PredictionService", "GetModelMetadata", b"", "INVALID_ARGUMENT", "expected ['signature_def']"),
        ("PredictionService", "Predict", b"\x0a" * 200000, "RESOURCE_EXHAUSTED", "larger than max"),
    ],
)
def test_calls_without_an_answer_are_refused(call, service, method, request_, code, words):
    with pytest.raises(grpc.RpcError) as caught:
        call(method, request_, messages.PredictResponse, service)

    assert caught.value.code().name == code
    assert words in caught.value.details()


def test_status_tells_states_of_versions(call):
    request = messages.GetModelStatusRequest()
    request.model_spec.name = "scale"
    rows = call(
        "GetModelStatus", request, messages.GetModelStatusResponse, "ModelService"
    ).model_version_status
    request.model_spec.name = "broken"
    (broken,) = call(
        "GetModelStatus", request, messages.GetModelStatusResponse, "ModelService"
    ).model_version_status

    assert sorted((row.version, row.state, row.status.error_code) for row in rows) == [(1, 30, 0), (2, 30, 0)]
    assert (broken.state, broken.status.error_code) == (50, 2)
    assert "failed to load" in broken.status.error_message


def test_no_bytes_are_held_when_everything_is_answered(server, predict):
    predict("scale", x=np.ones((50, 2), "f4"))

    assert server.runtime.frontends.by_name["tfserving"].admission.held == 0


@pytest.fixture(scope="module")
def api():
    if find_spec("tensorflow") is None or find_spec("tensorflow_serving") is None:
        pytest.skip("tensorflow-serving-api is not installed: pip install tensorflow-serving-api")
    from tensorflow_serving.apis import (
        get_model_metadata_pb2,
        get_model_status_pb2,
        model_service_pb2_grpc,
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    class Api:
        metadata, status, predict = get_model_metadata_pb2, get_model_status_pb2, predict_pb2
        models, predictions = model_service_pb2_grpc, prediction_service_pb2_grpc

    return Api


class TestRealClient:
    """`tensorflow-serving-api`, whose messages are TensorFlow's."""

    def test_it_gets_predictions(self, api, channel):
        import tensorflow as tf

        request = api.predict.PredictRequest()
        request.model_spec.name = "two"
        request.inputs["a"].CopyFrom(tf.make_tensor_proto(np.array([[1, 2], [3, 4]], "f4")))
        request.inputs["b"].CopyFrom(tf.make_tensor_proto([5, 6], dtype=tf.int64))

        response = api.predictions.PredictionServiceStub(channel).Predict(request, timeout=30)

        assert tf.make_ndarray(response.outputs["c"]).tolist() == [[-1, -2], [-3, -4]]
        assert tf.make_ndarray(response.outputs["d"]).tolist() == [-5, -6]
        assert list(response.outputs["c"].float_val) == [-1, -2, -3, -4]
        assert response.model_spec.version.value == 1

    def test_it_gets_metadata(self, api, channel):
        request = api.metadata.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = "two"

        response = api.predictions.PredictionServiceStub(channel).GetModelMetadata(request, timeout=30)

        definitions = api.metadata.SignatureDefMap()
        assert response.metadata["signature_def"].Unpack(definitions)
        signature = definitions.signature_def["serving_default"]
        shape = [dim.size for dim in signature.inputs["a"].tensor_shape.dim]
        assert (signature.inputs["a"].dtype, shape) == (1, [-1, 2])
        assert signature.outputs["d"].dtype == 9
        assert signature.method_name == "tensorflow/serving/predict"

    def test_it_gets_the_status(self, api, channel):
        request = api.status.GetModelStatusRequest()
        request.model_spec.name = "scale"

        response = api.models.ModelServiceStub(channel).GetModelStatus(request, timeout=30)

        assert {row.version: row.State.Name(row.state) for row in response.model_version_status} == {
            1: "AVAILABLE",
            2: "AVAILABLE",
        }
