"""Our messages live in their own pool, whatever else is imported."""

import subprocess
import sys

import pytest
from google.protobuf import json_format, text_format
from tritonpy import protos
from tritonpy.protos import POOL, DataType, ModelConfig, ModelInferRequest, ModelInferResponse, rpc_methods
from tritonpy.protos.pool import split_descriptor_set

OURS = "from tritonpy.protos import ModelConfig, ModelInferRequest"
THEIRS = "from tritonclient.grpc import model_config_pb2, service_pb2"
EXCHANGE = """
theirs = service_pb2.ModelInferRequest(model_name="m", id="7", raw_input_contents=[b"abc"])
theirs.inputs.add(name="X", datatype="FP32", shape=[1, -1]).parameters["binary_data_size"].int64_param = 4
ours = ModelInferRequest.FromString(theirs.SerializeToString())
assert ours.inputs[0].shape == [1, -1] and ours.raw_input_contents == [b"abc"]
assert ours.inputs[0].parameters["binary_data_size"].int64_param == 4
assert service_pb2.ModelInferRequest.FromString(ours.SerializeToString()) == theirs

config = ModelConfig(name="m", max_batch_size=8, input=[{"name": "X", "dims": [-1, 3]}])
config.dynamic_batching.priority_queue_policy[1].max_queue_size = 3
back = model_config_pb2.ModelConfig.FromString(config.SerializeToString())
assert back.dynamic_batching.priority_queue_policy[1].max_queue_size == 3 and back.input[0].dims == [-1, 3]
print("exchanged")
"""


def run_python(*statements: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(statements)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("imports", [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours-first", "theirs-first"])
def test_tritonclient_may_be_imported_before_or_after_and_bytes_travel_both_ways(
    imports: tuple[str, str],
) -> None:
    pytest.importorskip("tritonclient.grpc")

    assert run_python(*imports, EXCHANGE) == "exchanged\n"


def test_importing_the_messages_imports_neither_grpc_nor_generated_modules() -> None:
    loaded = run_python("import sys, tritonpy.protos", "print(*sorted(sys.modules))").split()

    ours = [name for name in loaded if not name.startswith("google.")]  # its pure-Python form needs its own
    assert "tritonpy.protos" in ours
    assert not [name for name in ours if name.split(".")[0] == "grpc" or name.endswith("_pb2")]


def test_the_messages_are_not_in_the_default_pool() -> None:
    loaded = run_python(
        "import tritonpy.protos",
        "from google.protobuf import descriptor_pool",
        "try: print(descriptor_pool.Default().FindMessageTypeByName('inference.ModelConfig'))",
        "except KeyError: print('absent')",
    )

    assert loaded == "absent\n"


def test_every_message_of_the_descriptors_is_exported() -> None:
    for file_name in ("model_config.proto", "grpc_service.proto"):
        for name, descriptor in POOL.FindFileByName(file_name).message_types_by_name.items():
            assert getattr(protos, name).DESCRIPTOR is descriptor


def test_the_enum_of_element_types_knows_names_and_numbers() -> None:
    assert DataType.TYPE_BF16 == 14
    assert DataType.Name(13) == "TYPE_STRING"
    assert DataType.Value("TYPE_FP32") == 11


def test_text_and_json_formats_work_with_the_private_pool() -> None:
    config = text_format.Parse(
        'name: "m" parameters { key: "a" value { string_value: "b" } }', ModelConfig(), descriptor_pool=POOL
    )

    assert config.parameters["a"].string_value == "b"
    assert json_format.MessageToDict(config, descriptor_pool=POOL) == {
        "name": "m",
        "parameters": {"a": {"stringValue": "b"}},
    }


def test_calls_come_with_their_classes_and_directions() -> None:
    methods = {method.name: method for method in rpc_methods()}

    infer, stream = methods["ModelInfer"], methods["ModelStreamInfer"]
    assert len(methods) == 20
    assert (infer.request, infer.response) == (ModelInferRequest, ModelInferResponse)
    assert (infer.request_streaming, infer.response_streaming) == (False, False)
    assert (stream.request_streaming, stream.response_streaming) == (True, True)


def test_bytes_that_are_no_descriptor_set_are_refused() -> None:
    with pytest.raises(ValueError, match="tag 18 at offset 0"):
        list(split_descriptor_set(b"\x12\x00"))
