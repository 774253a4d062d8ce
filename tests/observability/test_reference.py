"""What the pages say about metrics is what a server with everything on exports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tritonpy.devices.device import Device, DeviceSample
from tritonpy.metrics.server import ServerMetrics
from tritonpy.metrics.settings import read_settings
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import local_options
from .conftest import ALL_METRICS, CONFIGS, STREAM, TENSORS, Counted

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference/metrics.md").read_text()
DASHBOARD = json.loads((DOCS / "grafana/tritonpy.json").read_text())
ROWS = re.findall(r"^\| `(\w+)` \| (\w+) \|(.*?)\|", REFERENCE, re.MULTILINE)

# Ends its process when it is asked for the first time.
FRAGILE = """
import os
import pathlib
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.mark = pathlib.Path(args["model_repository"]) / "ended"

    def execute(self, requests):
        if not self.mark.exists():
            self.mark.touch()
            os._exit(3)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""

# What comes to the page when a worker has been started anew, and the machine has been looked at.
SOONER_OR_LATER = ("\ntritonpy_worker_restarts_total{", "\nnv_cpu_utilization ", "\nnv_gpu_utilization{")


class OneCard:
    """A stand-in GPU; satisfies `DeviceFinder`."""

    def find(self) -> list[Device]:
        return [Device(0, "Test GPU", "GPU-a", (8, 6), 100, 100, "0000:3b:00.0")]

    def used_memory_byte_size(self, device: Device) -> int:
        return 0

    def sample(self, device: Device) -> DeviceSample:
        return DeviceSample(0.5, 100, 10, 50.0, 250.0, 1000.0)


@pytest.fixture(scope="module")
def page(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a server with everything on, when everything has happened."""
    more = ModelRepository(tmp_path_factory.mktemp("more"))
    on_the_card = {"instance_group": [{"kind": "KIND_GPU", "gpus": [0], "count": 2}]}
    more.python("fragile", FRAGILE, {**TENSORS, **on_the_card})
    options = local_options(
        repository,
        more.path,
        allow_grpc=False,
        metrics_config=ALL_METRICS,
        metrics_interval_ms=20,
        cache_config=(("local", "size", "1000000"),),
    )
    with Server(options, gpu_finder=OneCard()) as server:
        counted = Counted(server.http_port, server.metrics_port)
        counted.ask_all()
        assert counted.infer("fragile", 1) == 500
        until(lambda: all(line in counted.page() for line in SOONER_OR_LATER), counted.page)
        yield counted.page()


def families(page: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))


def test_the_reference_lists_every_family_with_its_kind_and_no_other(page: str) -> None:
    registry = CollectorRegistry()
    ServerMetrics(registry)  # those that count what a good server never does
    counted = {f"{metric.name}_total": "counter" for metric in registry.collect() if metric.type == "counter"}
    errors = {"tritonpy_cache_errors_total": "counter"}

    assert {name: kind for name, kind, _ in ROWS} == families(page) | counted | errors
    assert len(ROWS) == len({name for name, _, _ in ROWS})


def test_models_on_one_gpu_are_labelled_with_it(page: str) -> None:
    labelled = set(re.findall(r'^nv_inference_count{.*gpu_uuid="GPU-a",model="(\w+)"', page, re.MULTILINE))

    assert labelled == {"fragile", "plain", "cached", "stream"}  # all but the ensemble, which is nowhere


def test_the_reference_names_the_labels(page: str) -> None:
    everywhere = {"model", "version", "_team", "_line", "gpu_uuid", "namespace"}
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", page, re.MULTILINE):
        family = re.sub(r"_(bucket|count|sum)$", "", name)
        family = family if family in families(page) else name
        found.setdefault(family, set()).update(re.findall(r'(\w+)="', labels))

    listed = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in ROWS}
    gpu = {name for name in found if name.startswith(("nv_gpu", "nv_energy"))}
    for name, labels in found.items():
        expected = labels - everywhere | ({"gpu_uuid"} if name in gpu else set())
        assert listed[name] == expected, name


def test_a_model_has_the_buckets_that_the_reference_shows(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    [control] = re.findall(r"```protobuf\n(.*?)```", REFERENCE, re.DOTALL)
    models = ModelRepository(tmp_path)
    directory = models.python("stream", STREAM, CONFIGS["stream"])
    config = directory / "config.pbtxt"
    config.write_text(f"{config.read_text()}\n{control}")
    server = serve(tmp_path, metrics_config=("histogram_latencies=true",))
    counted = Counted(server.http_port, server.metrics_port)

    assert counted.infer("stream", 1, call="generate_stream") == 200

    line = r'^nv_inference_first_response_histogram_ms_bucket{model="stream",version="1",le="(.*)"} \d+$'
    assert re.findall(line, counted.page(), re.MULTILINE) == ["1", "2.5", "10", "50", "+Inf"]


def test_the_pages_show_settings_that_there_are() -> None:
    pages = REFERENCE + (DOCS / "how-to/metrics-and-logs.md").read_text()
    settings = re.findall(r"--metrics-config=([^\s`]+)", pages)

    read = read_settings(settings)

    assert len(settings) >= 6
    assert read.quantiles == (0.5, 0.99)


def expressions(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        if isinstance(document.get("expr"), str):
            yield document["expr"]
        for value in document.values():
            yield from expressions(value)
    elif isinstance(document, list):
        for value in document:
            yield from expressions(value)


def metric_names(expression: str) -> set[str]:
    """The metrics of a PromQL expression: its words that are neither functions nor labels nor keywords."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)  # what is in quotes is no name
    text = re.sub(r"\{[^}]*\}", "", text)  # label matchers
    text = re.sub(r"\[[^\]]*\]", "", text)  # ranges
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    words = re.findall(r"(?<![\w.:])([a-zA-Z_:][\w:]*)\b(?!\s*\()", text)
    keywords = {"and", "or", "unless", "bool", "offset", "sum", "max", "min", "avg", "count", "inf", "nan"}
    return set(words) - keywords


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('sum by (model, reason) (rate(a_total{model=~"$model", x="b{c}"}[5m])) / 2', {"a_total"}),
        ("histogram_quantile(0.95, sum by (le) (rate(h_bucket[$__rate_interval])))", {"h_bucket"}),
        ("max(a) without (instance) / on (model) group_left (x) b:c offset 5m", {"a", "b:c"}),
        ('label_replace(up, "dst", "$1", "src", "(.*)") unless absent(down) or 1e3', {"up", "down"}),
    ],
)
def test_names_are_found_in_expressions(expression: str, names: set[str]) -> None:
    assert {name for name in metric_names(expression) if not re.fullmatch(r"\d.*|m", name)} == names


def exported(page: str) -> set[str]:
    """Every name that a line begins with."""
    return {re.split(r"[{ ]", line)[0] for line in page.splitlines() if line and not line.startswith("#")}


def test_the_dashboard_asks_for_what_is_exported_and_nothing_else(page: str) -> None:
    asked = set().union(*map(metric_names, expressions(DASHBOARD)))

    assert asked - exported(page) == set()
    assert {"nv_inference_request_success", "tritonpy_batch_closed_total", "nv_gpu_utilization"} <= asked


def test_labels_of_the_dashboard_exist(page: str) -> None:
    labels = set(re.findall(r'(\w+)="', page))
    text = " ".join(expressions(DASHBOARD))
    named = {
        label.strip() for group in re.findall(r"\bby\s*\(([^)]*)\)", text) for label in group.split(",")
    } | set(re.findall(r"[{,]\s*(\w+)\s*[=!]~?\"", text))

    assert named - labels == set()


def test_panels_of_the_dashboard_are_whole_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    places = [panel["gridPos"] for panel in panels]

    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for place in places:
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert all(panel["type"] == "row" or panel["targets"] for panel in panels)
