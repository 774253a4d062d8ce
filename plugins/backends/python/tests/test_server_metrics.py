"""The metrics of a model on its server's page: in few messages, and none of them lost."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from prometheus_client import Gauge
from triton_python_backend_utils import MetricFamily, TritonModelException, _server_metrics
from triton_python_backend_utils._server_metrics import flush_metrics
from tritonpy.ipc import frame
from tritonpy_sdk.testing import until

from .metrics_link import family


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


def test_an_observation_is_sent_before_anything_else_is_done(server, monkeypatch):
    monkeypatch.setattr(_server_metrics, "_DELAY_S", 30)  # a moment that is over on no machine
    seconds = family(MetricFamily.HISTOGRAM, "seconds")
    metric = seconds.Metric(buckets=[1, 2])

    for count in (1, 2, 3):
        metric.observe(1.5)
        assert len(server.told) == count


def test_many_changes_are_few_messages(server, monkeypatch):
    monkeypatch.setattr(_server_metrics, "_DELAY_S", 30)  # a moment that is over on no machine
    tokens, seconds = family(), family(MetricFamily.HISTOGRAM, "seconds")
    counter, histogram = tokens.Metric(), seconds.Metric(buckets=[1])

    for _ in range(1000):
        counter.increment(1)
        histogram.observe(1)
    flush_metrics()

    assert len(server.told) == _server_metrics._MOST_AT_ONCE + 1
    assert {"tokens 1000", "seconds_count 1000"} <= set(server.text().splitlines())


def test_changes_travel_by_themselves_after_a_moment(server):
    tokens = family()
    tokens.Metric().increment(1)

    until(lambda: server.told)
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
        lock.is_wanted.wait(60)
        tell(*message)

    monkeypatch.setattr(server, "tell", late_tell)
    metric.increment(1)
    assert is_taken.wait(60)  # the store's own thread has the change, and has not sent it

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

    until(lambda: "tokens" not in server.text())


def test_the_servers_own_names_are_refused(server):
    Gauge("nv_something", "The server's", registry=server.registry)

    with pytest.raises(TritonModelException, match="is used by the server itself"):
        family(name="nv_something")


def test_the_thread_ends_with_the_model(server):
    before = threading.enumerate()
    tokens = family()
    [thread] = [thread for thread in threading.enumerate() if thread not in before]
    tokens.Metric().increment(1)

    _server_metrics.close_metrics(server)

    assert server.told[0][0] == "metrics.change"
    thread.join(20)
    assert not thread.is_alive()


def test_a_worker_counts_before_it_answers(load_execute):
    worker = load_execute(
        """
        from triton_python_backend_utils import _server_metrics
        _server_metrics._DELAY_S = 30  # a moment that is over on no machine
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
