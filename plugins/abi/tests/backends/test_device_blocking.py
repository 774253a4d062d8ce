"""The execution policy DEVICE_BLOCKING: instances on one GPU take turns, others execute side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tritonpy.plugin import InferRequest, ModelInstance, Tensor
from tritonpy_abi.backends import open_backend
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import BackendDriver

from ..conftest import Compiled

CONFIG = {
    "backend": "SharedBackend",
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
}


@pytest.mark.parametrize(
    ("places", "patience_ms", "seen"),
    [
        ((("KIND_GPU", 0), ("KIND_GPU", 0)), 50, 1),
        ((("KIND_GPU", 0), ("KIND_GPU", 1)), 20_000, 2),
        ((("KIND_CPU", 0), ("KIND_CPU", 0)), 20_000, 2),
        ((("KIND_MODEL", 0), ("KIND_GPU", 0)), 20_000, 2),
    ],
)
def test_instances_on_one_gpu_take_turns(
    library: Path,
    compiled: Compiled,
    tmp_path: Path,
    places: tuple[tuple[str, int], ...],
    patience_ms: int,
    seen: int,
) -> None:
    ModelRepository(tmp_path).model("m", CONFIG)
    driver = BackendDriver(open_backend(compiled("backends/meeting.c", "-pthread")), tmp_path)
    with driver.load("m") as model, ThreadPoolExecutor(len(places)) as threads:
        backend = driver.bound
        assert backend.instance_initialize is not None
        assert backend.instance_finalize is not None
        instances = [
            ModelInstance(f"m_{number}", number, kind, device, model.handle)
            for number, (kind, device) in enumerate(places)
        ]
        for instance in instances:
            backend.instance_initialize(instance)

        def execute(instance: ModelInstance) -> int:
            given = Tensor.from_numpy("INPUT0", np.array([patience_ms], np.int32))
            assert backend.execute is not None
            (response,) = backend.execute(instance, [InferRequest("m", {"INPUT0": given})])
            return int(response.outputs[0].numpy()[0])

        assert list(threads.map(execute, instances)) == [seen] * len(places)
        for instance in instances:
            backend.instance_finalize(instance)
