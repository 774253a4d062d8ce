"""`MetricFamily`, with and without a server: what it counts, what it refuses, and in which words."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from prometheus_client import CollectorRegistry
from triton_python_backend_utils import _link, _metrics, _server_metrics
from triton_python_backend_utils._local_metrics import LocalMetrics
from triton_python_backend_utils._server_metrics import flush_metrics
from tritonpy.errors import TritonError
from tritonpy.ipc import frame
from tritonpy.metrics import CustomMetrics, render

MetricFamily = pb_utils.MetricFamily
Exception_ = pb_utils.TritonModelException


class Caller:
    instance = "net_0_0"


class Server:
    """The link to a server's metrics, without a process in between."""

    def __init__(self):
        self.registry = CollectorRegistry()
        self.told = []
        self._metrics = CustomMetrics(self.registry)
        self._caller = Caller()

    def ask(self, what, *args):
        try:
            return asyncio.run(self._metrics.ask(self._caller, what.removeprefix("metrics."), args))
        except TritonError as exc:
            raise Exception_(exc.message) from None

    def tell(self, what, *args):
        self.told.append((what, args))
        self._metrics.tell(self._caller, what.removeprefix("metrics."), args)

    def text(self):
        flush_metrics()
        self._metrics.take()
        return render(self.registry).decode()


@pytest.fixture
def server(monkeypatch):
    server = Server()
    monkeypatch.setattr(_server_metrics, "_stores", [])
    monkeypatch.setattr(_link._current, "_latest", [server])
    return server


@pytest.fixture(params=["with a server", "without a server"])
def refused_as(request, monkeypatch):
    """How a refusal of the server's begins."""
    if request.param == "without a server":
        monkeypatch.setattr(_metrics, "_local", LocalMetrics())
        return ""
    request.getfixturevalue("server")
    return "Failed to process the request for model 'net_0_0', message: "


def family(kind=MetricFamily.COUNTER, name="tokens"):
    return MetricFamily(name, "Tokens", kind)


def refusal(function, *args, **kwargs):
    with pytest.raises(Exception_) as refused:
        function(*args, **kwargs)
    return str(refused.value)


def test_counter_counts(refused_as):
    tokens = family()
    metric = tokens.Metric(labels={"user": "a"})

    metric.increment(2)
    metric.increment(0.5)
    metric.increment(True)
    metric.increment(np.float32(0.25))

    assert metric.value() == 3.75


def test_gauge_goes_up_and_down(refused_as):
    load = family(MetricFamily.GAUGE)
    metric = load.Metric()

    metric.increment(-3)
    assert metric.value() == -3
    metric.set(5)
    metric.increment(1)
    assert metric.value() == 6


def test_same_name_and_labels_are_one_metric(refused_as):
    first, second = family(), MetricFamily(name="tokens", description="Other", kind=MetricFamily.COUNTER)
    first.Metric(labels={"a": "1", "b": "2"}).increment(3)

    assert second.Metric(labels={"b": "2", "a": "1"}).value() == 3
    assert second.Metric(labels={"a": "1"}).value() == 0
    assert first.Metric().value() == second.Metric(labels={}).value() == 0


def test_value_goes_with_the_last_family_object(refused_as):
    tokens, other = family(), family()
    tokens.Metric().increment(3)

    del tokens
    assert other.Metric().value() == 0  # it had not asked for this metric before
    other.Metric().increment(1)
    other = family()
    assert other.Metric().value() == 0


def test_metric_is_of_no_use_without_its_family_object(refused_as):
    metric = family().Metric()

    for verb, function in (
        ("increment", lambda: metric.increment(1)),
        ("set", lambda: metric.set(1)),
        ("observe", lambda: metric.observe(1)),
        ("get", metric.value),
    ):
        assert refusal(function) == (
            f"Failed to {verb} metric value: Invalid metric operation as the corresponding 'MetricFamily' "
            "has been deleted. The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' "
            "objects have been deleted."
        )


def test_counter_refuses_in_tritons_words(refused_as):
    tokens = family()
    metric = tokens.Metric()
    kind = "TRITONSERVER_METRIC_KIND_COUNTER"

    assert refusal(metric.increment, -1) == (
        f"Failed to increment metric value: {refused_as}{kind} can only be incremented monotonically by "
        "non-negative values."
    )
    assert refusal(metric.set, 1) == f"Failed to set metric value: {refused_as}{kind} does not support Set"
    assert refusal(metric.observe, 1) == (
        f"Failed to observe metric value: {refused_as}{kind} does not support Observe"
    )
    assert metric.value() == 0


def test_gauge_refuses_to_observe(refused_as):
    load = family(MetricFamily.GAUGE)

    assert refusal(load.Metric().observe, 1) == (
        f"Failed to observe metric value: {refused_as}TRITONSERVER_METRIC_KIND_GAUGE does not support Observe"
    )


def test_histogram_only_observes(refused_as):
    seconds = family(MetricFamily.HISTOGRAM)
    metric = seconds.Metric(buckets=[1, 2.5])
    kind = "TRITONSERVER_METRIC_KIND_HISTOGRAM"

    metric.observe(2)
    for verb, operation, function in (
        ("increment", "Increment", lambda: metric.increment(1)),
        ("set", "Set", lambda: metric.set(1)),
        ("get", "Value", metric.value),
    ):
        assert refusal(function) == (
            f"Failed to {verb} metric value: {refused_as}{kind} does not support {operation}"
        )


def test_buckets_belong_to_histograms_and_rise(refused_as):
    tokens, seconds = family(), family(MetricFamily.HISTOGRAM, "seconds")

    assert refusal(tokens.Metric, buckets=[]) == "Failed to create metric. Unexpected buckets found."
    assert refusal(tokens.Metric, buckets=(1,)) == "Failed to create metric. Buckets must be a list."
    assert refusal(seconds.Metric) == "Failed to create metric. Missing required buckets."
    for buckets in ([2, 1], [1, 1], [float("nan")]):
        assert refusal(seconds.Metric, buckets=buckets).startswith(
            f"Error when creating Metric: {refused_as}Bucket Boundaries must be strictly sorted"
        )
    with pytest.raises(TypeError, match="buckets: expected a number, got str"):
        seconds.Metric(buckets=["1"])


def test_labels_are_text_with_names_that_can_be(refused_as):
    tokens = family()

    assert refusal(tokens.Metric, labels=["a"]) == "Failed to create metric. Labels must be a dictionary."
    for name in ("", "1x", "with-dash", "__x", 1):
        assert refusal(tokens.Metric, labels={name: "x"}).startswith(
            f"Error when creating Metric: {refused_as}Invalid label name"
        )
    assert refusal(tokens.Metric, labels={"user": 7}) == (
        f"Error when creating Metric: {refused_as}attempt to access JSON non-string as string: "
        "label 'user' must be a str, got int"
    )
    seconds = family(MetricFamily.HISTOGRAM, "seconds")
    assert "Invalid label name: 'le'" in refusal(seconds.Metric, labels={"le": "1"}, buckets=[1])


def test_family_names_and_kinds_are_checked(refused_as):
    tokens = family()

    for name in ("", "1x", "bad-name", "__x"):
        assert refusal(family, name=name).startswith(
            f"Error when creating MetricFamily: {refused_as}Invalid metric name: '{name}'"
        )
    assert refusal(family, MetricFamily.GAUGE).startswith(
        f"Error when creating MetricFamily: {refused_as}Family name already exists with different type"
    )
    assert tokens.Metric().value() == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1, "", MetricFamily.COUNTER), "name must be a str, got int"),
        (("tokens", None, MetricFamily.COUNTER), "description must be a str, got NoneType"),
        (("tokens", "", 0), "kind must be MetricFamily.COUNTER, MetricFamily.GAUGE or"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused(arguments, text):
    with pytest.raises(TypeError, match=text):
        MetricFamily(*arguments)


@pytest.mark.parametrize("value", ["1", b"1", None, [1], 1j])
def test_what_is_no_number_is_refused(refused_as, value):
    load = family(MetricFamily.GAUGE)
    metric = load.Metric()

    for name in ("increment", "set"):
        with pytest.raises(TypeError, match=f"{name}: expected a number, got {type(value).__name__}"):
            getattr(metric, name)(value)


def test_subclasses_of_str_travel(server):
    tokens = MetricFamily(np.str_("tokens"), np.str_("Tokens"), MetricFamily.COUNTER)
    tokens.Metric(labels={np.str_("user"): np.str_("a")}).increment(1)

    assert 'tokens{user="a"} 1\n' in server.text()


def test_the_servers_page_shows_all_kinds(server):
    tokens, load = family(), family(MetricFamily.GAUGE, "load")
    seconds = family(MetricFamily.HISTOGRAM, "seconds")
    tokens.Metric().increment(2)
    load.Metric().set(-1)
    metric = seconds.Metric(labels={"step": "x"}, buckets=[0.1, 1])
    for value in (0.1, 0.5, 1, 7):
        metric.observe(value)

    lines = set(server.text().splitlines())
    assert {
        "tokens 2",
        "load -1",
        'seconds_bucket{step="x",le="0.1"} 1',
        'seconds_bucket{step="x",le="1"} 3',
        'seconds_bucket{step="x",le="+Inf"} 4',
        'seconds_count{step="x"} 4',
        'seconds_sum{step="x"} 8.6',
    } <= lines


def test_observed_values_go_into_the_buckets_the_first_one_made(server):
    seconds = family(MetricFamily.HISTOGRAM, "seconds")
    seconds.Metric(buckets=[1, 2]).observe(0.5)
    other = family(MetricFamily.HISTOGRAM, "seconds")
    other.Metric(buckets=[10]).observe(1.5)

    assert 'seconds_bucket{le="2"} 2\n' in server.text()
    assert 'le="10"' not in server.text()


def test_many_changes_are_one_message(server):
    tokens, seconds = family(), family(MetricFamily.HISTOGRAM, "seconds")
    counter, histogram = tokens.Metric(), seconds.Metric(buckets=[1])

    for _ in range(1000):
        counter.increment(1)
        histogram.observe(1)
    flush_metrics()

    assert len(server.told) < 10
    assert {"tokens 1000", "seconds_count 1000"} <= set(server.text().splitlines())


def test_changes_travel_by_themselves_after_a_moment(server):
    tokens = family()
    tokens.Metric().increment(1)

    wait_for(lambda: server.told)
    assert server.told[0][0] == "metrics.change"


def test_changes_of_many_threads_all_count(server):
    tokens, seconds = family(), family(MetricFamily.HISTOGRAM, "seconds")
    counter, histogram = tokens.Metric(), seconds.Metric(buckets=[1])

    def change():
        for _ in range(2000):
            counter.increment(1)
            histogram.observe(2)

    threads = [threading.Thread(target=change) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        flush_metrics()
    for thread in threads:
        thread.join()

    assert counter.value() == 8000
    assert 'seconds_bucket{le="+Inf"} 8000\n' in server.text()


class Held:
    """A lock around which somebody waits: it lets the holder go on as soon as another thread wants it."""

    def __init__(self, lock):
        self._lock = lock
        self._holders = 0
        self.is_wanted = threading.Event()

    def __enter__(self):
        if self._holders:
            self.is_wanted.set()
        self._lock.acquire()
        self._holders += 1

    def __exit__(self, *_):
        self._holders -= 1
        self._lock.release()


@pytest.mark.parametrize("what", ["value", "flush"])
def test_what_another_thread_is_about_to_send_is_waited_for(server, monkeypatch, what):
    tokens = family()
    metric = tokens.Metric()
    [store] = _server_metrics._stores
    lock = store._sending = Held(store._sending)
    tell, is_taken = server.tell, threading.Event()

    def late_tell(*message):
        is_taken.set()
        lock.is_wanted.wait(15)
        tell(*message)

    monkeypatch.setattr(server, "tell", late_tell)
    metric.increment(1)
    assert is_taken.wait(15)  # the store's own thread has the change, and has not sent it

    try:
        if what == "value":
            assert metric.value() == 1
        else:
            flush_metrics()  # what a worker does before it says that `execute` has returned
            assert server.told[0][0] == "metrics.change"
    finally:
        lock.is_wanted.set()


def test_a_family_dropped_by_the_garbage_collector_leaves_the_page(server):
    tokens = family()
    tokens.Metric().increment(1)
    assert "tokens 1" in server.text()
    cycle = [tokens]
    cycle.append(cycle)

    del tokens, cycle
    gc.collect()

    wait_for(lambda: "tokens" not in server.text())


def test_the_servers_own_names_are_refused(server):
    from prometheus_client import Gauge

    Gauge("nv_something", "The server's", registry=server.registry)

    assert "is used by the server itself" in refusal(family, name="nv_something")


def test_the_thread_ends_with_the_model(server):
    before = threading.enumerate()
    tokens = family()
    [thread] = [thread for thread in threading.enumerate() if thread not in before]
    tokens.Metric().increment(1)

    _server_metrics.close_metrics(server)

    assert server.told[0][0] == "metrics.change"
    thread.join(10)
    assert not thread.is_alive()


def test_a_worker_counts_before_it_answers(load_execute):
    worker = load_execute(
        """
        family = pb_utils.MetricFamily("tokens", "Tokens", pb_utils.MetricFamily.COUNTER)
        metric = family.Metric(labels={"user": "a"})
        metric.increment(2)
        metric.increment(1)
        self.family = family
        return [answer()]
        """
    )
    worker.start(worker.request())

    number, what, arguments = worker.expect(frame.ASK)
    assert (what, arguments) == ("metrics.hold", ("tokens", "Tokens", 0))
    worker.send(frame.ANSWER, number, (1, "net_0_0"), None)
    number, what, arguments = worker.expect(frame.ASK)
    assert (what, arguments) == ("metrics.series", (1, {"user": "a"}, None))
    worker.send(frame.ANSWER, number, (5, []), None)
    assert worker.expect(frame.TELL) == ("metrics.change", ([(5, False, 3.0)],))
    worker.expect(frame.EXECUTED)


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
