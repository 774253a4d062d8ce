"""GPU memory shared with a server in another process, by tritonclient's own utilities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.repository import ModelRepository

pytestmark = pytest.mark.gpu

CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}


@pytest.fixture
def cuda() -> Any:
    """`tritonclient.utils.cuda_shared_memory`, on a machine with a device."""
    runtime = pytest.importorskip("cuda.bindings.runtime")
    error, count = runtime.cudaGetDeviceCount()
    if int(error) or not count:
        pytest.skip("no NVIDIA device")
    return pytest.importorskip("tritonclient.utils.cuda_shared_memory")


@pytest.fixture
def server(corectl: Callable[..., Any], tmp_path: Path) -> Any:
    ModelRepository(tmp_path).model("echo", CONFIG)
    return corectl(f"--model-repository={tmp_path}", "--allow-client-shm=true")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tensors_go_back_and_forth_in_gpu_memory(cuda: Any, server: Any, protocol: str) -> None:
    module: Any = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
    service = {"http": "HTTPService", "grpc": "GRPCInferenceService"}[protocol]
    values = np.linspace(-1, 1, 100_000, dtype=np.float32)
    given = cuda.create_shared_memory_region("given", values.nbytes, 0)
    wanted = cuda.create_shared_memory_region("wanted", values.nbytes, 0)
    try:
        with module.InferenceServerClient(f"127.0.0.1:{server.ports[service]}") as client:
            for name, handle in (("given", given), ("wanted", wanted)):
                client.register_cuda_shared_memory(name, cuda.get_raw_handle(handle), 0, values.nbytes)
            tensor = module.InferInput("INPUT0", [values.size], "FP32")
            tensor.set_shared_memory("given", values.nbytes)
            output = module.InferRequestedOutput("OUTPUT0")
            output.set_shared_memory("wanted", values.nbytes)
            for step in range(3):
                cuda.set_shared_memory_region(given, [values + step])
                client.infer("echo", [tensor], outputs=[output])
                result = cuda.get_contents_as_numpy(wanted, np.float32, [values.size])
                np.testing.assert_array_equal(result, values + step)
            client.unregister_cuda_shared_memory()
    finally:
        cuda.destroy_shared_memory_region(given)
        cuda.destroy_shared_memory_region(wanted)


def test_more_than_the_handle_holds_is_refused(cuda: Any, server: Any) -> None:
    given = cuda.create_shared_memory_region("given", 4096, 0)
    try:
        url = f"127.0.0.1:{server.ports['HTTPService']}"
        with tritonclient.http.InferenceServerClient(url) as client:
            with pytest.raises(InferenceServerException, match="'given': invalid args"):
                client.register_cuda_shared_memory("given", cuda.get_raw_handle(given), 0, 1 << 40)
            client.register_cuda_shared_memory("given", cuda.get_raw_handle(given), 0, 4096)
    finally:
        cuda.destroy_shared_memory_region(given)
