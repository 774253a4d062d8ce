"""Metrics that models make."""

from __future__ import annotations

import json

import pytest

DIES = "2.51 may die of it"
REFUSED = "Failed to process the request for model 'cases_0', message: "


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A metric of this test's own."""
    return f"my_{request.function.__name__}"


def page(server, name: str) -> list[str]:
    """The samples of one metric, sorted."""
    return sorted(line for line in server.metrics(name).splitlines() if not line.startswith("#"))


def early(server):
    return json.loads(server.infer("early", {}).outputs["SEEN"][0])


def test_a_counter_counts_by_labels(server, name):
    assert server.ask("metrics.counter", name) == [3.5, 0]
    assert page(server, name) == [
        f'{name}{{model="cases",version="1"}} 3.5',
        f'{name}{{model="cases",version="2"}} 0',
    ]


def test_a_family_is_described(server, name):
    server.ask("metrics.counter", name)

    assert f"# HELP {name} Counts things.\n# TYPE {name} counter\n" in server.metrics(name)


def test_a_gauge_is_set_and_goes_both_ways(server, name):
    assert server.ask("metrics.gauge", name) == [5, 7.5, 3.5, -1]
    assert page(server, name) == [f'{name}{{a="b"}} -1']


def test_a_histogram_counts_into_buckets(server, name):
    server.ask("metrics.histogram", name)

    assert page(server, name) == [
        f'{name}_bucket{{a="b",le="+Inf"}} 5',
        f'{name}_bucket{{a="b",le="0.1"}} 1',
        f'{name}_bucket{{a="b",le="1"}} 3',
        f'{name}_bucket{{a="b",le="10"}} 4',
        f'{name}_count{{a="b"}} 5',
        f'{name}_sum{{a="b"}} 56.55',
    ]


def test_a_metric_needs_no_labels(server, name):
    assert server.ask("metrics.without_labels", name) == 1
    assert page(server, name) == [f"{name} 1"]


def test_metrics_of_equal_labels_are_one(server, name):
    assert server.ask("metrics.duplicates", name) == [3, 3, 3]
    assert page(server, name) == [f'{name}{{a="b"}} 3']


def test_metrics_live_from_one_request_to_the_next(server, name):
    server.ask("metrics.counter", name)

    assert server.ask("metrics.increment_again", name) == 4.5
    assert server.ask("metrics.increment_again", name) == 5.5


def test_what_a_model_drops_leaves_the_page(server, name):
    server.ask("metrics.counter", name)
    assert page(server, name)

    server.ask("metrics.forget", name)

    server.wait_for(lambda: not page(server, name))


def test_a_metric_made_in_initialize_counts_in_execute(server):
    before = early(server)["count"]

    assert early(server)["count"] == before + 1
    assert page(server, "early_requests") == [f'early_requests{{model="early"}} {before + 1:g}']


def test_a_metric_does_not_outlive_its_family(server, name):
    assert server.ask("metrics.dropped_family", name) == [
        "TritonModelException",
        "Failed to get metric value: Invalid metric operation as the corresponding 'MetricFamily' has been "
        "deleted. The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have "
        "been deleted.",
    ]


def test_a_second_family_may_be_described_otherwise(server, name):
    assert server.ask("metrics.same_name_other_description", name) == "MetricFamily"


@pytest.mark.ours(DIES)
@pytest.mark.parametrize(
    ("kind", "step", "argument", "text"),
    [
        (
            "COUNTER",
            "increment",
            [-1],
            "Failed to increment metric value: " + REFUSED + "TRITONSERVER_METRIC_KIND_COUNTER can only be "
            "incremented monotonically by non-negative values.",
        ),
        (
            "COUNTER",
            "set",
            [1],
            "Failed to set metric value: "
            + REFUSED
            + "TRITONSERVER_METRIC_KIND_COUNTER does not support Set",
        ),
        (
            "COUNTER",
            "observe",
            [1],
            "Failed to observe metric value: "
            + REFUSED
            + "TRITONSERVER_METRIC_KIND_COUNTER does not support Observe",
        ),
    ],
)
def test_a_wrong_operation_is_refused_in_triton_s_words(server, name, kind, step, argument, text):
    assert server.ask("metrics.wrong", name, kind, step, *argument) == ["TritonModelException", text]


@pytest.mark.ours(DIES)
@pytest.mark.parametrize(
    ("kind", "step", "argument"),
    [
        ("GAUGE", "observe", [1]),
        ("HISTOGRAM", "increment", [1]),
        ("HISTOGRAM", "set", [1]),
        ("HISTOGRAM", "value", []),
    ],
)
def test_a_wrong_operation_is_refused(server, name, kind, step, argument):
    kind_of_error, text = server.ask("metrics.wrong", name, kind, step, *argument)

    assert kind_of_error == "TritonModelException"
    assert "does not support" in text


@pytest.mark.ours(DIES)
def test_a_family_of_the_same_name_and_another_kind_is_refused(server, name):
    kind, text = server.ask("metrics.same_name_other_kind", name)

    assert kind == "TritonModelException"
    assert text.startswith("Error when creating MetricFamily: ")


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("labels are a list", "Failed to create metric. Labels must be a dictionary."),
        ("buckets are text", "Failed to create metric. Buckets must be a list."),
        ("a histogram without buckets", "Failed to create metric. Missing required buckets."),
        ("a counter with buckets", "Failed to create metric. Unexpected buckets found."),
    ],
)
def test_what_makes_no_metric_is_refused_in_triton_s_words(server, name, what, text):
    assert server.ask("metrics.refused", name, what) == ["TritonModelException", text]


@pytest.mark.ours(DIES)
@pytest.mark.parametrize("what", ["a label is a number", "buckets fall"])
def test_what_the_page_cannot_show_is_refused(server, name, what):
    kind, text = server.ask("metrics.refused", name, what)

    assert kind == "TritonModelException"
    assert text.startswith("Error when creating Metric: ")


@pytest.mark.parametrize("what", ["value is text", "kind is text", "no kind"])
def test_arguments_of_wrong_types_are_refused(server, name, what):
    kind, _ = server.ask("metrics.refused", name, what)

    assert kind == "TypeError"


@pytest.mark.ours(DIES)
@pytest.mark.parametrize("bad", ["", "with space", "1digit", "dash-ed"])
def test_a_bad_name_is_refused(server, bad):
    found = server.ask("metrics.bad_names")

    kind, text = found[bad]
    assert kind == "TritonModelException"
    assert text.startswith(f"Error when creating MetricFamily: {REFUSED}Invalid metric name")
    assert found["colon:ed"] == "MetricFamily"


@pytest.mark.ours(DIES)
def test_odd_text_in_labels_is_escaped(server, name):
    refused = server.ask("metrics.bad_labels", name)

    assert refused[0] == "TritonModelException"
    assert page(server, name) == [f'{name}{{text="quote \\" backslash \\\\ line\\n é"}} 1']
