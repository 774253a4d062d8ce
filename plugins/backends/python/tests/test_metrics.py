"""`MetricFamily`, with and without a server: what it counts, what it refuses, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import _metrics
from triton_python_backend_utils._local_metrics import LocalMetrics

from .metrics_link import family

MetricFamily = pb_utils.MetricFamily
Exception_ = pb_utils.TritonModelException


@pytest.fixture(params=["with a server", "without a server"])
def refused_as(request, monkeypatch):
    """How a refusal of the server's begins."""
    if request.param == "without a server":
        monkeypatch.setattr(_metrics, "_local", LocalMetrics())
        return ""
    request.getfixturevalue("server")
    return "Failed to process the request for model 'net_0_0', message: "


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
