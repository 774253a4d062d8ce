from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.parser import text_string_to_metric_families
from tritonpy import process_metrics
from tritonpy.abi_host import MetricFamily, MetricSample, add_metrics
from tritonpy.metrics.custom import CustomMetrics
from tritonpy.metrics.exposition import MetricsPage, render
from tritonpy.workers.worker_services import Caller


class OneFamily:
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]


def family(name: str = "nv_things", kind: str = "counter", **samples: float) -> OneFamily:
    metric = Metric(name, "Things", kind)
    for label, value in samples.items():
        metric.add_sample(name, {"model": label}, value)
    return OneFamily(metric)


def test_counter_keeps_its_name_without_total() -> None:
    assert render(family(a=3)) == (
        b'# HELP nv_things Things\n# TYPE nv_things counter\nnv_things{model="a"} 3\n'
    )


def test_family_without_series_is_not_printed() -> None:
    assert render(family()) == b""


def test_labels_are_in_alphabetical_order() -> None:
    metric = Metric("nv_things", "Things", "gauge")
    metric.add_sample("nv_things", {"version": "1", "_team": "x", "model": "m"}, 1)

    assert b'nv_things{_team="x",model="m",version="1"} 1\n' in render(OneFamily(metric))


def test_what_part_of_a_family_a_line_is_stands_behind_whose_it_is() -> None:
    metric = Metric("nv_times", "Times", "summary")
    metric.add_sample("nv_times", {"version": "1", "quantile": "0.5", "model": "m"}, 1)

    assert b'nv_times{model="m",version="1",quantile="0.5"} 1\n' in render(OneFamily(metric))


def test_families_of_one_kind_stand_together() -> None:
    registry = CollectorRegistry()
    Histogram("a", "A", registry=registry)
    Gauge("b", "B", registry=registry)
    Counter("c", "C", registry=registry)
    Gauge("d", "D", registry=registry)

    lines = render(registry).decode().splitlines()

    assert [line.split()[2:] for line in lines if line.startswith("# TYPE")] == [
        ["c_total", "counter"],
        ["b", "gauge"],
        ["d", "gauge"],
        ["a", "histogram"],
    ]


def test_label_values_survive_quotes_backslashes_and_newlines() -> None:
    metric = Metric("nv_things", "Things\nand more", "gauge")
    metric.add_sample("nv_things", {"model": 'a"b\\c\nd'}, 1)

    text = render(OneFamily(metric)).decode()

    (parsed,) = text_string_to_metric_families(text)
    assert parsed.documentation == "Things\nand more"
    assert parsed.samples[0].labels == {"model": 'a"b\\c\nd'}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12.0, "12"),
        (2**53, "9007199254740992"),
        (0.25, "0.25"),
        (8 / 33, "0.2424242424242424"),
        (float("nan"), "Nan"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert render(family(a=value)).decode().splitlines()[-1] == f'nv_things{{model="a"}} {text}'


def test_objects_of_prometheus_client_are_rendered_too() -> None:
    registry = CollectorRegistry()
    Counter("restarts", "Restarts", registry=registry).inc(2)
    Gauge("depth", "Depth", registry=registry).set(1.5)
    Histogram("lag_seconds", "Lag", buckets=(0.1, 1), registry=registry).observe(0.5)

    text = render(registry).decode()

    assert "# TYPE restarts_total counter\nrestarts_total 2\n" in text
    assert "# TYPE depth gauge\ndepth 1.5\n" in text
    assert 'lag_seconds_bucket{le="1.0"} 1\n' in text
    assert "lag_seconds_sum 0.5\n" in text
    assert "created" not in text


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


def test_a_family_of_the_process_stands_beside_the_one_of_workers(registry: CollectorRegistry) -> None:
    models = CustomMetrics(registry)
    worker = Caller("m", 1, "m_0")
    number, _ = models.join(models.hold(worker, "jobs", "Done", 0), {"model": "m"}, None)
    models.change(number, False, 3)
    models.take()
    samples = [MetricSample({"model": name}, value) for name, value in (("m", 99), ("other", 4))]
    add_metrics(lambda: [MetricFamily("jobs", "Done here", "counter", samples)])

    assert lines(registry)[:4] == [
        "# HELP jobs Done",
        "# TYPE jobs counter",
        'jobs{model="m"} 3',
        'jobs{model="other"} 4',
    ]


def test_a_family_of_the_process_is_left_out_where_that_of_workers_is_of_another_kind(
    registry: CollectorRegistry,
) -> None:
    models = CustomMetrics(registry)
    models.hold(Caller("m", 1, "m_0"), "jobs", "Done", 0)
    models.take()
    add_metrics(lambda: [MetricFamily("jobs", "Done here", "gauge", [MetricSample({}, 4)])])

    assert "jobs 4" not in lines(registry)


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
