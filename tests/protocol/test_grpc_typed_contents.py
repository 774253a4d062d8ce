"""Typed contents of every kind reach the model as Triton puts them there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.repository import ModelRepository

from ..servers import TRANSPORTS_AND_REAL

IDENTITY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(f"OUT_{tensor.name()}", tensor.as_numpy()) for tensor in request.inputs()]
            )
            for request in requests
        ]
"""

# What stands in which field, and what the model gives back: integers keep their low bits.
CASES: dict[str, tuple[str, list[Any], bytes]] = {
    "BOOL": ("bool_contents", [True, False], b"\1\0"),
    "INT8": ("int_contents", [200, -1], np.array([-56, -1], "<i1").tobytes()),
    "INT16": ("int_contents", [70000, -2], np.array([4464, -2], "<i2").tobytes()),
    "INT32": ("int_contents", [-(2**31), 5], np.array([-(2**31), 5], "<i4").tobytes()),
    "INT64": ("int64_contents", [-(2**63), 5], np.array([-(2**63), 5], "<i8").tobytes()),
    "UINT8": ("uint_contents", [300, 1], b"\x2c\1"),
    "UINT16": ("uint_contents", [70000, 1], np.array([4464, 1], "<u2").tobytes()),
    "UINT32": ("uint_contents", [2**32 - 1, 1], np.array([2**32 - 1, 1], "<u4").tobytes()),
    "UINT64": ("uint64_contents", [2**64 - 1, 1], np.array([2**64 - 1, 1], "<u8").tobytes()),
    "FP32": ("fp32_contents", [float("inf"), 0.1], np.array([np.inf, 0.1], "<f4").tobytes()),
    "FP64": ("fp64_contents", [1e300, 0.1], np.array([1e300, 0.1], "<f8").tobytes()),
    "BYTES": ("bytes_contents", [b"\0\xff", b""], b"\2\0\0\0\0\xff\0\0\0\0"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    types = {name: "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}" for name in CASES}
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    repository.python(
        "all_types",
        IDENTITY,
        config={
            "input": [{"name": name, "data_type": types[name], "dims": [-1]} for name in CASES],
            "output": [{"name": f"OUT_{name}", "data_type": types[name], "dims": [-1]} for name in CASES],
        },
    )
    return repository.path


@pytest.fixture(params=TRANSPORTS_AND_REAL)
def stub(request: pytest.FixtureRequest, models: Path, served: Callable[..., Any]) -> Iterator[Any]:
    """What is tested with this is said of both servers."""
    if request.param == "real":
        port = request.getfixturevalue("real_triton")(models)["grpc"]
    else:
        transport = f"--grpc-transport={request.param}"
        port = served(f"--model-repository={models}", transport).ports["GRPCInferenceService"]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def test_every_field_holds_what_triton_lets_it_hold(stub: Any) -> None:
    request = service_pb2.ModelInferRequest(model_name="all_types")
    for name, (field, values, _) in CASES.items():
        request.inputs.add(name=name, datatype=name, shape=[2], contents={field: values})

    response = stub.ModelInfer(request, timeout=30)
    [streamed] = stub.ModelStreamInfer(iter([request]), timeout=30)

    expected = {f"OUT_{name}": (name, wire) for name, (*_, wire) in CASES.items()}
    for answer in (response, streamed.infer_response):
        outputs = zip(answer.outputs, answer.raw_output_contents, strict=True)
        assert {output.name: (output.datatype, raw) for output, raw in outputs} == expected
