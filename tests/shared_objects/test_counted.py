"""Statistics of requests and responses by what a backend in C sends and reports; on ours and a real one."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import OURS_AND_REAL, serving
from .conftest import Compiled

TENSOR = {"data_type": "TYPE_INT32", "dims": [-1]}
MODEL = {
    "backend": "timing",
    "input": [{"name": "INPUT0", **TENSOR}],
    "output": [{"name": "OUTPUT0", **TENSOR}],
}
DECOUPLED = {**MODEL, "model_transaction_policy": {"decoupled": True}}


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def served(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, int], Path]]:
    """The ports of a server, and the directory that it writes traces to."""
    root = tmp_path_factory.mktemp(request.param)
    (root / "backends/timing").mkdir(parents=True)
    shutil.copy(compiled("backends/timing.c"), root / "backends/timing/libtriton_timing.so")
    models = ModelRepository(root / "models")
    here = {"TRITONPY_ISOLATION": {"string_value": "thread"}}
    for name, config in {"once": MODEL, "streams": DECOUPLED}.items():
        models.model(name, config)
        models.model(f"{name}_here", {**config, "parameters": here})
    backends = str(root / "backends")
    traces = root / "traces"
    traces.mkdir()
    words = [
        ("triton", "file", str(traces / "trace")),
        ("triton", "log-frequency", "1"),
        ("", "rate", "1"),
        ("", "level", "OFF"),
    ]
    flags = [f"--trace-config={mode}{mode and ','}{key}={value}" for mode, key, value in words]
    with serving(
        request.param,
        request,
        models.path,
        f"--backend-directory={backends}",
        *flags,
        backend_directory=backends,
        trace_config=tuple(words),
    ) as found:
        yield found, traces


def tensor(number: int) -> grpcclient.InferInput:
    given = grpcclient.InferInput("INPUT0", [1], "INT32")
    given.set_data_from_numpy(np.array([number], np.int32))
    return given


def statistics(ports: dict[str, int], model: str) -> dict[str, Any]:
    with urlopen(f"http://127.0.0.1:{ports['http']}/v2/models/{model}/stats") as answer:
        found: dict[str, Any] = json.load(answer)["model_stats"][0]
    return found


def counts(ports: dict[str, int], model: str) -> dict[str, int]:
    """Requests and executions, with the nanoseconds of inference that were reported."""
    stats = statistics(ports, model)
    requests = stats["inference_stats"]
    with urlopen(f"http://127.0.0.1:{ports['metrics']}/metrics") as page:
        failures = re.search(
            rf'nv_inference_request_failure{{model="{model}",reason="BACKEND",version="1"}} (\d+)',
            page.read().decode(),
        )
    return {
        "rows": stats.get("inference_count", 0),
        "executions": stats.get("execution_count", 0),
        "successes": requests["success"]["count"],
        "failures": requests["fail"]["count"],
        "queued": requests["queue"]["count"],
        "inference_ns": requests["compute_infer"]["ns"],
        "failures on the page": int(failures[1]) if failures else 0,
    }


SUCCESS = {"rows": 1, "executions": 1, "successes": 1, "queued": 1, "inference_ns": 20_000}
FAILURE = {"executions": 1, "failures": 1, "failures on the page": 1}


@pytest.mark.parametrize(
    ("do", "counted"),
    [("", SUCCESS), ("e", SUCCESS), ("ef", FAILURE), ("f", FAILURE)],
    ids=["success", "an error", "an error that is reported", "a failure without an error"],
)
@pytest.mark.parametrize("model", ["once", "streams"])
def test_a_request_counts_as_what_its_backend_reports(
    client: grpcclient.InferenceServerClient,
    ports: dict[str, int],
    where: str,
    model: str,
    do: str,
    counted: dict[str, int],
) -> None:
    name = model + where
    before = counts(ports, name)
    ended: list[object] = []
    given = {"do": do or "-"}
    if model == "streams":
        client.start_stream(lambda result, error: ended.append(error or result))
        client.async_stream_infer(name, [tensor(1)], parameters=given, enable_empty_final_response=True)
        until(lambda: len(ended) == 2 + ("e" in do), lambda: "all responses are there")
        client.stop_stream()
    elif "e" in do:
        with pytest.raises(InferenceServerException, match="told to"):
            client.infer(name, [tensor(1)], parameters=given)
    else:
        client.infer(name, [tensor(1)], parameters=given)

    expected = {key: value + counted.get(key, 0) for key, value in before.items()}
    until(lambda: counts(ports, name) == expected, lambda: f"{counts(ports, name)} is {expected}")


def test_a_backend_adds_its_steps_to_the_trace_of_a_request(
    client: grpcclient.InferenceServerClient, served: tuple[dict[str, int], Path], where: str
) -> None:
    model, id = f"once{where}", f"traced{where}"
    client.infer(model, [tensor(1)], parameters={"do": "-"}, request_id="untraced")
    client.update_trace_settings(model, {"trace_level": ["TIMESTAMPS"]})
    client.infer(model, [tensor(1)], parameters={"do": "-"}, request_id=id)
    client.update_trace_settings(model, {"trace_level": ["OFF"]})

    def entries() -> list[dict[str, Any]]:
        files = [json.loads(text) for file in served[1].iterdir() if (text := file.read_text()).endswith("]")]
        return next((file for file in files if any(entry.get("request_id") == id for entry in file)), [])

    until(entries, lambda: f"a trace of '{id}' is written")
    stamps = {stamp["name"]: stamp["ns"] for entry in entries() for stamp in entry.get("timestamps", ())}
    (number,) = {entry["id"] for entry in entries()}
    about = f"ABOUT {number} 0 {model} 1 {id} "
    assert stamps.keys() > {"COMPUTE_START", "BACKEND_START", about}
    assert stamps["QUEUE_START"] < stamps["BACKEND_START"] <= stamps[about] < stamps["REQUEST_END"]


def test_responses_are_counted_by_their_kind(
    client: grpcclient.InferenceServerClient, ports: dict[str, int], where: str
) -> None:
    def kinds(index: int) -> dict[str, int]:
        found = statistics(ports, f"streams{where}")["response_stats"].get(str(index), {})
        kinds = ("success", "fail", "empty_response", "cancel")
        return {kind: found[kind]["count"] if found else 0 for kind in kinds}

    before = [kinds(index) for index in range(5)]
    ended: list[object] = []
    client.start_stream(lambda result, error: ended.append(error or result))
    client.async_stream_infer(
        f"streams{where}", [tensor(1)], parameters={"do": "EeCF"}, enable_empty_final_response=True
    )
    until(lambda: len(ended) == 5, lambda: "all responses are there")
    client.stop_stream()

    sent = ("success", "empty_response", "fail", "cancel", "empty_response")
    expected = [{**counted, kind: counted[kind] + 1} for kind, counted in zip(sent, before, strict=True)]
    until(lambda: [kinds(index) for index in range(5)] == expected, lambda: f"{expected} are counted")
