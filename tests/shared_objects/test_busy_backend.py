"""A backend in C++ whose own threads answer, on a real tritonserver and on ours: the same file."""

from __future__ import annotations

import re
import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess, until

from .conftest import Compiled
from .curious_models import BATCHING, ON_THREADS, TENSORS, Asked, asked, tensor
from .curious_side import Call, Side, by_subject

pytestmark = pytest.mark.parity

STREAMING = {**TENSORS, "model_transaction_policy": {"decoupled": True}}
MODELS: dict[str, dict[str, Any]] = {
    "one": {**BATCHING, "dynamic_batching": {"max_queue_delay_microseconds": 500}},
    "one_threaded": {**BATCHING, "parameters": ON_THREADS},
    "many": STREAMING,
    "many_threaded": {**STREAMING, "parameters": ON_THREADS},
}
SINGLE, STREAMED = ("one", "one_threaded"), ("many", "many_threaded")
TOGETHER = 60
"""Requests that are sent at once, to each model that answers once."""


def single() -> Iterator[Asked]:
    for model in SINGLE:
        for do in ("", "one", "1", "x", "99999999999", "-1"):
            yield asked(model, do)


def streamed() -> Iterator[Asked]:
    for model in STREAMED:
        for do in ("", "none", "three", "7", "x", "-1"):
            yield asked(model, do, tensor(2))


class Told(NamedTuple):
    """What one server told, and the calls of the backend there."""

    http: list[Any]
    grpc: list[Any]
    stream: list[Any]
    together: list[Any]
    counts: dict[str, Any]
    page: list[str]
    page_after: list[str]
    calls: list[Call]


def tell(side: Side, ports: Mapping[str, int]) -> Told:
    def page() -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['metrics']}/metrics") as answer:
            return sorted(re.findall(r"^.*\bbusy_.*$", answer.read().decode(), re.M))

    http = [side.infer(request) for request in single()]
    grpc = side.infer_all(single())
    stream = side.infer_all(streamed(), in_stream=True)
    rows = [asked(model, "", tensor(1, 1, data=[row])) for model in SINGLE for row in range(TOGETHER)]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(side.infer, rows))
    counts = {}
    for model, (statistics,) in side.statistics(MODELS).items():
        phases = statistics["inference_stats"]
        counts[model] = phases["success"]["count"], phases["fail"]["count"], statistics["inference_count"]
    before = page()
    side.unload_all(MODELS)
    until(lambda: not [line for line in page() if line[0] != "#"], page)
    return Told(http, grpc, stream, together, counts, before, page(), side.calls())


def prepared(root: Path, library: Path) -> list[str]:
    models = ModelRepository(root / "models")
    for name, config in MODELS.items():
        models.model(name, {"backend": "busy", **config})
    (root / "backends/busy").mkdir(parents=True)
    shutil.copy(library, root / "backends/busy/libtriton_busy.so")
    flags = ["--model-control-mode=explicit", "--load-model=*"]
    return [*flags, f"--backend-directory={root / 'backends'}"]


@pytest.fixture(scope="module")
def library(compiled: Compiled) -> Path:
    return compiled("backends/busy.cc", "-pthread")


@pytest.fixture(scope="module")
def real(library: Path, tmp_path_factory: pytest.TempPathFactory, real_triton: Any) -> Told:
    root = tmp_path_factory.mktemp("real")
    flags = prepared(root, library)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKEND_NOTES", str(root / "notes"))
        ports = real_triton(root / "models", *flags)
    told = tell(Side(root, ports), ports)
    real_triton.end(ports)
    return told


@pytest.fixture(scope="module")
def ours(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    root = tmp_path_factory.mktemp("ours")
    flags = prepared(root, library)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKEND_NOTES", str(root / "notes"))
        server = ServerProcess(f"--model-repository={root / 'models'}", *flags)
    with server:
        ports = {"http": server.http_port, "grpc": server.grpc_port, "metrics": server.metrics_port}
        return tell(Side(root, ports), ports)


@pytest.mark.parametrize("which", ["http", "grpc", "stream", "together"])
def test_clients_get_the_same(real: Told, ours: Told, which: str) -> None:
    assert getattr(ours, which) == getattr(real, which)


def test_requests_of_many_clients_are_answered_each_with_its_own(ours: Told) -> None:
    rows = [answer["outputs"][0]["data"] for _, answer in ours.together]

    assert rows == [[row] for row in range(TOGETHER)] * len(SINGLE)


def test_the_same_is_counted(real: Told, ours: Told) -> None:
    assert ours.counts == real.counts


def test_its_metrics_are_on_the_page_until_its_models_go(real: Told, ours: Told) -> None:
    assert ours.page == real.page
    assert ours.page_after == [] or all(line.startswith("#") for line in ours.page_after)


def test_it_is_called_in_the_same_order_and_hears_the_same(real: Told, ours: Told) -> None:
    theirs = by_subject(real.calls)
    own = by_subject(ours.calls)
    assert own.keys() == theirs.keys()
    for subject, processes in own.items():
        expected = begun_and_ended(theirs[subject][0])
        for calls in processes:
            assert begun_and_ended(calls) == expected, subject


def begun_and_ended(calls: list[Call]) -> list[tuple[str, list[str]]]:
    """Without executions: how many requests go together is not determined.

    And without the backend's end, which is that of a server, or of a worker.
    """
    kept = [call for call in calls if "Execute" not in call.function and call.function != "Finalize"]
    return [(call.function, call.heard) for call in kept]
