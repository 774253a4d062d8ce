"""Metrics that a backend in C makes, on the pages of ours and of a real server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from urllib.request import urlopen

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import OURS_AND_REAL, serving
from .conftest import Compiled

TENSORS = {
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
}
MODELS = {"process": {}, "thread": {"parameters": {"TRITONPY_ISOLATION": {"string_value": "thread"}}}}


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def ports(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, int]]:
    root = tmp_path_factory.mktemp(request.param)
    (root / "backends/counting").mkdir(parents=True)
    shutil.copy(compiled("backends/counting.c", "-pthread"), root / "backends/counting/libtriton_counting.so")
    models = ModelRepository(root / "models")
    for name, config in MODELS.items():
        models.model(name, {"backend": "counting", **TENSORS, **config})
    with serving(
        request.param,
        request,
        models.path,
        f"--backend-directory={root / 'backends'}",
        "--model-control-mode=explicit",
        backend_directory=str(root / "backends"),
        model_control_mode="explicit",
    ) as found:
        yield found


@pytest.fixture
def client(ports: dict[str, int]) -> Iterator[httpclient.InferenceServerClient]:
    with httpclient.InferenceServerClient(f"127.0.0.1:{ports['http']}", concurrency=4) as made:
        yield made


def counted(ports: dict[str, int], model: str) -> set[str]:
    page: str = urlopen(f"http://127.0.0.1:{ports['metrics']}/metrics").read().decode()
    return {line for line in page.splitlines() if f'{{of="{model}"' in line}


def ask(client: httpclient.InferenceServerClient, model: str, size: int) -> None:
    given = httpclient.InferInput("INPUT0", [1, size], "INT32")
    given.set_data_from_numpy(np.zeros((1, size), np.int32))
    client.infer(model, [given])


@pytest.mark.parametrize("model", MODELS)
def test_instances_count_together_until_they_are_unloaded(
    request: pytest.FixtureRequest,
    ports: dict[str, int],
    client: httpclient.InferenceServerClient,
    model: str,
) -> None:
    def are(*expected: str) -> None:
        until(lambda: counted(ports, model) == set(expected), lambda: f"{counted(ports, model)}")

    nothing = ["counted_requests", "counted_later", "counted_size"]
    client.load_model(model)
    are(
        *(f'{name}{{of="{model}"}} 0' for name in nothing),
        f'counted_instances{{of="{model}"}} 2',
        f'counted_batches_bucket{{of="{model}",le="1"}} 0',
        f'counted_batches_bucket{{of="{model}",le="4"}} 0',
        f'counted_batches_bucket{{of="{model}",le="+Inf"}} 0',
        f'counted_batches_count{{of="{model}"}} 0',
        f'counted_batches_sum{{of="{model}"}} 0',
    )

    for size in (5, 6, 7):
        ask(client, model, size)

    are(
        f'counted_requests{{of="{model}"}} 3',
        f'counted_later{{of="{model}"}} 1.5',
        f'counted_size{{of="{model}"}} 28',
        f'counted_instances{{of="{model}"}} 2',
        f'counted_batches_bucket{{of="{model}",le="1"}} 3',
        f'counted_batches_bucket{{of="{model}",le="4"}} 3',
        f'counted_batches_bucket{{of="{model}",le="+Inf"}} 3',
        f'counted_batches_count{{of="{model}"}} 3',
        f'counted_batches_sum{{of="{model}"}} 3',
    )

    if "real" not in request.node.callspec.id:  # which hangs by chance when metrics are deleted
        client.unload_model(model)
        are()
