"""The metrics page, beside that of a real server which was asked the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from .conftest import ALL_METRICS, TENSORS, Counted

OURS_ONLY = {"nv_model_load_duration_secs", "nv_inference_first_response_histogram_ms"}  # newer than 2.51
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?|Nan|\+Inf")
# Of a model that failed; the real server counts a failed request of an ensemble twice.
EXACT = (
    "nv_inference_request_success",
    "nv_inference_request_failure",
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_pending_request_count",
    "nv_cache_num_hits_per_model",
    "nv_cache_num_misses_per_model",
    "nv_cache_num_entries",
    "nv_cache_num_hits",
    "nv_cache_num_lookups",
    "nv_cache_num_misses",
    "nv_cache_num_evictions",
    "nv_inference_request_summary_us_count",
    "nv_inference_queue_summary_us_count",
    "nv_inference_compute_input_summary_us_count",
    "nv_inference_compute_infer_summary_us_count",
    "nv_inference_compute_output_summary_us_count",
    "nv_cache_hit_summary_per_model_count",
    "nv_cache_miss_summary_per_model_count",
)


def families(page: str) -> dict[str, tuple[str, str]]:
    """Help and kind by name, in the order of the page."""
    found = re.findall(r"^# HELP (\S+) (.*)\n# TYPE \1 (\S+)$", page, re.MULTILINE)
    return {name: (text, kind) for name, text, kind in found}


def samples(page: str) -> dict[str, str]:
    """Values by name and labels."""
    return dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))


def dashboard_names() -> set[str]:
    """What the dashboard asks for and a Triton server could have."""
    path = Path(__file__).parents[2] / "docs/grafana/tritonpy.json"
    return set(re.findall(r"\b(nv_\w+)", path.read_text()))


def newer() -> set[str]:
    """What only newer servers have, or such with a GPU."""
    return {name for name in dashboard_names() if name.startswith((*OURS_ONLY, "nv_gpu_", "nv_energy_"))}


def settled(server: Counted, **counts: str) -> str:
    """The page once the machine has been looked at, and so many requests are counted in the end."""
    wanted = {f'nv_inference_count{{model="{model}",version="1"}}': count for model, count in counts.items()}

    def page() -> str:
        text = server.page()
        found = samples(text)
        return text if "nv_cpu_utilization" in found and wanted.items() <= found.items() else ""

    return until(page, lambda: server.page())


@pytest.fixture(scope="module")
def page(ours: Counted) -> str:
    ours.ask_all()
    return settled(ours, stream="1", chain="1")


def test_every_number_of_the_page_is_one(page: str) -> None:
    assert [value for value in samples(page).values() if not NUMBER.fullmatch(value)] == []


def test_every_line_is_there_once(page: str) -> None:
    names = [line.rsplit(" ", 1)[0] for line in page.splitlines() if not line.startswith("#")]

    assert len(names) == len(set(names))


def test_what_was_asked_is_counted(page: str) -> None:
    found = samples(page)
    plain = '_line="a\\\\b",_team="vis\\"ion",model="plain",'

    assert found[f'nv_inference_request_success{{{plain}version="1"}}'] == "5"
    assert found[f'nv_inference_request_failure{{{plain}reason="BACKEND",version="1"}}'] == "1"
    assert found[f'nv_inference_count{{{plain}version="1"}}'] == "8"
    assert found['nv_inference_exec_count{model="chain",version="1"}'] == "1"
    assert found['nv_cache_num_hits_per_model{model="cached",version="1"}'] == "2"
    assert found['nv_inference_first_response_histogram_ms_count{model="stream",version="1"}'] == "1"
    assert (
        found['nv_inference_first_response_histogram_ms_bucket{model="stream",version="1",le="+Inf"}'] == "1"
    )
    assert found['nv_inference_request_summary_us_count{model="chain",version="1"}'] == "1"
    assert found[f'tritonpy_batch_closed_total{{{plain}reason="queue empty",version="1"}}'] == "6"
    assert found['tritonpy_batch_closed_total{model="cached",reason="single",version="1"}'] == "1"
    assert 'nv_inference_request_summary_us_count{model="cached",version="1"}' not in found
    assert 0 <= float(found["nv_cpu_utilization"]) <= 1


def test_a_model_that_does_not_batch_has_quantiles_of_what_it_took(page: str) -> None:
    found = samples(page)
    name = 'nv_inference_request_summary_us{model="chain",version="1",quantile="0.99"}'

    total = float(found['nv_inference_request_duration_us{model="chain",version="1"}'])
    assert total * 0.99 <= float(found[name]) <= total


@pytest.mark.parity
def test_the_page_is_that_of_the_real_server(
    page: str, repository: Path, real_triton: Callable[..., dict[str, int]]
) -> None:
    flags = [f"--metrics-config={setting}" for setting in ALL_METRICS]
    ports = real_triton(repository, *flags, "--metrics-interval-ms=20", "--cache-config=local,size=1000000")
    theirs = Counted(ports["http"], ports["metrics"])
    theirs.ask_all()
    their_page = settled(theirs, stream="1", chain="1")

    ours_of, theirs_of = families(page), families(their_page)
    own = {name for name in ours_of if name.startswith("tritonpy_")} | OURS_ONLY
    assert set(theirs_of) - set(ours_of) == set()
    assert set(ours_of) - set(theirs_of) == own
    shared = [name for name in ours_of if name in theirs_of]
    assert shared == [name for name in theirs_of if name in ours_of]
    assert {name: ours_of[name] for name in shared} == {name: theirs_of[name] for name in shared}
    ours_are, theirs_are = (
        {line: value for line, value in samples(text).items() if re.match(r"\w+", line)[0].startswith("nv_")}  # type: ignore[index]
        for text in (page, their_page)
    )
    assert {line for line in ours_are if not line.startswith(tuple(OURS_ONLY))} == set(theirs_are)
    for name in dashboard_names() - newer():
        assert re.search(rf"^{name}[{{ ]", their_page, re.MULTILINE), f"the dashboard asks for {name}"
    exact = {line for line in theirs_are if re.split("[{ ]", line)[0] in EXACT}

    def different() -> dict[str, tuple[str, str]]:
        theirs_now = samples(theirs.page())
        return {
            line: (ours_are[line], theirs_now[line]) for line in exact if ours_are[line] != theirs_now[line]
        }

    until(lambda: not different(), different)  # the real server looks at its cache now and then


class Gate:
    """A model that is at a request until it is let go, and requests that wait for it."""

    def __init__(self, server: Counted, folder: Path, pool: ThreadPoolExecutor) -> None:
        self._server, self._folder, self._pool = server, folder, pool

    def waiting(self) -> list[int]:
        """The gauge after each of eight requests, and when all are answered."""
        line = 'nv_inference_pending_request_count{model="gate",version="1"}'
        answers, seen = [self._pool.submit(self._server.infer, "gate", 1)], []
        self._until(lambda: (self._folder / "begun").exists())
        for count in range(1, 9):
            answers.append(self._pool.submit(self._server.infer, "gate", 1))
            self._until(lambda count=count: samples(self._server.page())[line] == str(count))  # type: ignore[misc]
            seen.append(count)
        (self._folder / "open").touch()
        assert [answer.result(20) for answer in answers] == [200] * 9
        self._until(lambda: samples(self._server.page())[line] == "0")
        return [*seen, 0]

    @staticmethod
    def _until(holds: Callable[[], bool]) -> None:
        until(holds)


GATE = """
import json
import pathlib
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = pathlib.Path(json.loads(args["model_config"])["parameters"]["folder"]["string_value"])

    def execute(self, requests):
        (self.folder / "begun").touch()
        while not (self.folder / "open").exists():
            time.sleep(0.001)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""
# With a limit the real server leaves requests in the queue until an instance is idle.
QUEUE = {"default_queue_policy": {"max_queue_size": 100}}


def gate_repository(path: Path) -> Path:
    config = {**TENSORS, "dynamic_batching": QUEUE, "parameters": {"folder": {"string_value": str(path)}}}
    return ModelRepository(path / "models").python("gate", GATE, config).parent


def test_the_gauge_follows_what_waits(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(gate_repository(tmp_path))
    with ThreadPoolExecutor(10) as pool:
        counted = Counted(server.http_port, server.metrics_port)
        assert Gate(counted, tmp_path, pool).waiting() == [*range(1, 9), 0]


@pytest.mark.parity
def test_the_gauge_of_the_real_server_follows_the_same(
    real_triton: Callable[..., dict[str, int]], tmp_path: Path
) -> None:
    ports = real_triton(gate_repository(tmp_path))
    with ThreadPoolExecutor(10) as pool:
        counted = Counted(ports["http"], ports["metrics"])
        assert Gate(counted, tmp_path, pool).waiting() == [*range(1, 9), 0]


@pytest.mark.parity
def test_without_durations_ours_goes_on_to_count_and_the_real_server_stops(
    serve: Callable[..., Server], repository: Path, real_triton: Callable[..., dict[str, int]]
) -> None:
    server = serve(repository, metrics_config=("counter_latencies=false",))
    ports = real_triton(repository, "--metrics-config=counter_latencies=false")
    pages = {}
    for name, asked in (
        ("ours", Counted(server.http_port, server.metrics_port)),
        ("theirs", Counted(ports["http"], ports["metrics"])),
    ):
        assert asked.infer("stream", 1, call="generate_stream") == 200
        pages[name] = settled(asked, **({"stream": "1"} if name == "ours" else {}))
        assert "duration_us" not in pages[name]

    ours_of, theirs_of = (families(pages[name]) for name in ("ours", "theirs"))
    own = {name for name in ours_of if name.startswith(("tritonpy_", *OURS_ONLY))}
    assert {name: ours_of[name] for name in ours_of if name not in own} == theirs_of
    line = 'nv_inference_request_success{model="stream",version="1"}'
    assert {name: samples(text)[line] for name, text in pages.items()} == {"ours": "1", "theirs": "0"}
