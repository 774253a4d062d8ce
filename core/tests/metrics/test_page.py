from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tritonpy import process_metrics
from tritonpy.abi_host import MetricFamily, MetricSample, add_metrics
from tritonpy.metrics import render
from tritonpy.metrics.page import MetricsPage


@pytest.fixture(autouse=True)
def _no_other_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "_sources", [])


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("tritonpy_own", "The server's", registry=registry).set(7)
    return registry


def lines(registry: CollectorRegistry) -> list[str]:
    return render(MetricsPage(registry)).decode().splitlines()


def test_families_of_the_process_are_on_the_page_of_a_server(registry: CollectorRegistry) -> None:
    numbers = iter((3, 4))

    def source() -> Iterator[MetricFamily]:
        yield MetricFamily(
            "seen", "What was seen", "counter", [MetricSample({"what": 'a "b"'}, next(numbers))]
        )

    add_metrics(source)

    assert lines(registry) == [
        "# HELP seen What was seen",
        "# TYPE seen counter",
        r'seen{what="a \"b\""} 3',
        "# HELP tritonpy_own The server's",
        "# TYPE tritonpy_own gauge",
        "tritonpy_own 7",
    ]
    assert r'seen{what="a \"b\""} 4' in lines(registry)


def test_buckets_of_a_histogram_count_what_is_in_those_before_them(registry: CollectorRegistry) -> None:
    sample = MetricSample({"m": "x"}, 12.5, (1.0, 2.5), (1, 0, 2))
    add_metrics(lambda: [MetricFamily("size", "Sizes", "histogram", [sample])])

    assert lines(registry)[-6:] == [
        "# TYPE size histogram",
        'size_count{m="x"} 3',
        'size_sum{m="x"} 12.5',
        'size_bucket{m="x",le="1"} 1',
        'size_bucket{m="x",le="2.5"} 1',
        'size_bucket{m="x",le="+Inf"} 3',
    ]


@pytest.mark.parametrize("name", ["tritonpy_own", "own_size_count"])
def test_a_name_that_the_server_has_is_left_out_and_said_once(
    registry: CollectorRegistry, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    sample = MetricSample({}, 1, (1.0,), (1, 0))
    add_metrics(lambda: [MetricFamily("own_size", "", "histogram", [sample])])
    add_metrics(lambda: [MetricFamily(name, "", "gauge", [MetricSample({}, 99)])])

    page = MetricsPage(registry)
    with caplog.at_level(logging.WARNING):
        texts = [render(page), render(page)]

    assert not any(b" 99\n" in text for text in texts)
    assert [f"'{name}'" in record.message for record in caplog.records] == [True]
