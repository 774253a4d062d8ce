from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_double, c_void_p

import pytest
from tritonpy.abi_host import MetricFamily, MetricSample
from tritonpy_abi.build import library
from tritonpy_abi.metrics import read_metrics
from tritonpy_abi.shim import open_shim

from .answers import Api, Metrics, Refused

pytestmark = pytest.mark.skipif(not library().is_file(), reason="the library is not compiled")

COUNTER, GAUGE, HISTOGRAM = range(3)


class Plugin(Metrics):
    """What a shared object does with metrics of one name."""

    def __init__(self, name: bytes) -> None:
        super().__init__(Api(str(library())))
        self._name = name

    def named(self, kind: int, description: bytes = b"text") -> c_void_p:
        return self.family(kind, self._name, description)

    def shown(self) -> MetricFamily | None:
        """What the server reads of that name."""
        families = [family for family in read_metrics(open_shim()) if family.name == self._name.decode()]
        assert len(families) < 2
        return families[0] if families else None

    def increment(self, metric: c_void_p, number: float) -> None:
        self.api.call("TRITONSERVER_MetricIncrement", metric, c_double(number))

    def observe(self, metric: c_void_p, number: float) -> None:
        self.api.call("TRITONSERVER_MetricObserve", metric, c_double(number))

    def delete(self, metric: c_void_p) -> None:
        self.api.call("TRITONSERVER_MetricDelete", metric)

    def delete_family(self, family: c_void_p) -> None:
        self.api.call("TRITONSERVER_MetricFamilyDelete", family)


@pytest.fixture
def plugin(request: pytest.FixtureRequest) -> Plugin:
    open_shim()  # the same library as the server's
    name: str = request.node.originalname
    return Plugin(name.encode())


def test_a_family_is_shown_while_it_has_a_metric(plugin: Plugin) -> None:
    family = plugin.named(COUNTER, b"What it counts")
    before = plugin.shown()
    metric = plugin.metric(family, plugin.label(b"b", b"2"), plugin.label(b"a", b'\xff"\\\n'))
    plugin.increment(metric, 2.5)
    between = plugin.shown()
    plugin.delete(metric)

    assert before is None
    assert between is not None
    assert (between.description, between.kind) == ("What it counts", "counter")
    assert list(between.samples) == [MetricSample({"a": '\ufffd"\\\n', "b": "2"}, 2.5)]
    assert plugin.shown() is None


def test_the_same_labels_are_the_same_value_whoever_asks(plugin: Plugin) -> None:
    families = [plugin.named(GAUGE, description) for description in (b"first", b"second")]
    one, two = (plugin.metric(family, plugin.label(b"m", b"x")) for family in families)
    plugin.increment(one, 2)
    plugin.increment(two, 3)
    plugin.delete(one)
    plugin.delete_family(families[0])

    shown = plugin.shown()
    assert shown is not None
    assert shown.description == "first"
    assert [sample.value for sample in shown.samples] == [5]
    assert plugin.value(two) == "5.0"


def test_a_name_is_free_again_when_nobody_holds_it(plugin: Plugin) -> None:
    families = [plugin.named(COUNTER), plugin.named(COUNTER)]
    plugin.delete_family(families[0])
    with pytest.raises(Refused, match="Family name already exists with different type"):
        plugin.named(GAUGE)
    plugin.delete_family(families[1])

    plugin.metric(plugin.named(GAUGE))

    shown = plugin.shown()
    assert shown is not None
    assert shown.kind == "gauge"


def test_observations_fall_into_the_bucket_of_the_first_bound_that_is_not_smaller(plugin: Plugin) -> None:
    metric = plugin.metric(plugin.named(HISTOGRAM), arguments=plugin.arguments(-1.0, 2.0, math.inf))
    for number in (-5, -1, 0, 2, 2.5, math.inf):
        plugin.observe(metric, number)

    shown = plugin.shown()
    assert shown is not None
    (sample,) = shown.samples
    assert (sample.bounds, sample.counts, sample.value) == ([-1.0, 2.0], [2, 2, 2], math.inf)


def test_what_is_no_number_is_counted_and_shown(plugin: Plugin) -> None:
    metric = plugin.metric(plugin.named(HISTOGRAM), arguments=plugin.arguments(1.0))
    plugin.observe(metric, math.nan)

    shown = plugin.shown()
    assert shown is not None
    assert list(shown.samples[0].counts) == [0, 1]
    assert math.isnan(shown.samples[0].value)


def test_the_label_of_buckets_is_not_to_be_had(plugin: Plugin) -> None:
    with pytest.raises(Refused, match="Invalid label name: 'le'"):
        plugin.metric(plugin.named(HISTOGRAM), plugin.label(b"le", b"1"), arguments=plugin.arguments(1.0))


def test_threads_lose_no_count_while_metrics_come_and_go_and_are_read(plugin: Plugin) -> None:
    family = plugin.named(COUNTER)
    kept = plugin.metric(family)

    def count(thread: int) -> None:
        label = plugin.label(b"thread", b"%d" % (thread % 3))
        for _ in range(300):
            plugin.increment(kept, 1)
            own = plugin.metric(family, label)
            plugin.increment(own, 1)
            plugin.delete(own)
            if thread == 0:
                plugin.shown()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(count, range(6)))

    shown = plugin.shown()
    assert shown is not None
    assert list(shown.samples) == [MetricSample({}, 1800)]
