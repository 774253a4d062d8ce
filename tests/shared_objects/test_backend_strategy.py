"""A backend in C whose library has a batching strategy, too: it is asked where a model names it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonpy_sdk.repository import ModelRepository

from ..servers import OURS_AND_REAL, serving
from .conftest import Compiled

CONFIG: dict[str, Any] = {
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
}
PATIENT = {"preferred_batch_size": [6], "max_queue_delay_microseconds": 60_000_000}
"""Waits for six requests."""
SOON = {"max_queue_delay_microseconds": 1_500_000}
"""Waits for more than a strategy lets in, and leaves without what does not come."""
ISOLATIONS = ("process", "thread")
WITH_FAULTS = ("refused", "crash", "partial")


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def client(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpclient.InferenceServerClient]:
    root = tmp_path_factory.mktemp(request.param)
    models = ModelRepository(root / "models")
    for name, flags in {"pairs": (), "partial": ("-DPARTIAL",)}.items():
        (root / "backends" / name).mkdir(parents=True)
        library = root / "backends" / name / f"libtriton_{name}.so"
        shutil.copy(compiled("backends/pairs.c", *flags), library)

    def add(name: str, isolation: str, backend: str = "pairs", *, is_named: bool = True) -> None:
        path = str(root / "backends" / backend / f"libtriton_{backend}.so")
        named = {"TRITON_BATCH_STRATEGY_PATH": {"string_value": path}} if is_named else {}
        parameters = {"TRITONPY_ISOLATION": {"string_value": isolation}, **named}
        batching = {"dynamic_batching": SOON if is_named else PATIENT, "parameters": parameters}
        models.model(f"{name}_{isolation}", {"backend": backend, **CONFIG, **batching})

    for isolation in ISOLATIONS:
        add("unnamed", isolation, is_named=False)
        add("unnamed_partial", isolation, "partial", is_named=False)
        add("named", isolation)
        if request.param == "ours":  # the real server aborts or hangs with them
            for fault in WITH_FAULTS:
                add(fault, isolation, "partial" if fault == "partial" else "pairs")
    server = serving(
        request.param,
        request,
        models.path,
        f"--backend-directory={root / 'backends'}",
        "--exit-on-error=false",
        backend_directory=str(root / "backends"),
        exit_on_error=False,
    )
    with (
        server as ports,
        httpclient.InferenceServerClient(f"127.0.0.1:{ports['http']}", concurrency=6) as made,
    ):
        yield made


def batch_sizes(client: httpclient.InferenceServerClient, model: str) -> list[int]:
    """The sizes of the batches that six requests are executed in, told to each."""
    given = httpclient.InferInput("INPUT0", [1, 2], "INT32")
    given.set_data_from_numpy(np.zeros((1, 2), np.int32))
    pending = [client.async_infer(model, [given]) for _ in range(6)]
    answers = [each.get_result().as_numpy("OUTPUT0") for each in pending]
    return [int(answer[0][0]) for answer in answers if answer is not None]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(("model", "size"), [("unnamed", 6), ("unnamed_partial", 6), ("named", 2)])
def test_the_strategy_of_a_backends_library_is_asked_where_it_is_named(
    client: httpclient.InferenceServerClient, model: str, size: int, isolation: str
) -> None:
    assert batch_sizes(client, f"{model}_{isolation}") == [size] * 6


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("refused", "the strategy was told to refuse"),
        ("crash", "SIGABRT in TRITONBACKEND_ModelBatcherInitialize"),
        ("partial", "does not define all required custom batching functions for model"),
    ],
)
def test_a_strategy_with_a_fault_fails_its_model(
    request: pytest.FixtureRequest,
    client: httpclient.InferenceServerClient,
    model: str,
    reason: str,
    isolation: str,
) -> None:
    if "real" in request.node.callspec.id:
        pytest.skip("the real server aborts, or never returns")
    index = {entry["name"]: entry.get("reason", "") for entry in client.get_model_repository_index()}

    assert reason in index[f"{model}_{isolation}"]
