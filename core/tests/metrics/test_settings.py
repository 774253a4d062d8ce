from __future__ import annotations

import logging
from typing import Any

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.latencies import CACHE_HIT, REQUEST
from tritonpy.metrics.settings import FIRST_RESPONSE, MetricsSettings, read_settings

DECOUPLED: dict[str, Any] = {"name": "m", "model_transaction_policy": {"decoupled": True}}


def buckets(*bounds: float, family: str = FIRST_RESPONSE) -> dict[str, Any]:
    control = {"metric_identifier": {"family": family}, "histogram_options": {"buckets": list(bounds)}}
    return DECOUPLED | {"model_metrics": {"metric_control": [control]}}


def test_nothing_is_kept_unless_somebody_asks_for_it() -> None:
    settings = read_settings(())

    assert settings == MetricsSettings()
    assert settings.has_counters
    assert settings.latencies(DECOUPLED) is None


def test_settings_are_read_and_the_last_of_equal_ones_counts() -> None:
    settings = read_settings(
        ("summary_latencies=false", "summary_latencies=true", "counter_latencies=0", "histogram_latencies=on")
    )

    assert (settings.has_summaries, settings.has_counters, settings.has_histograms) == (True, False, True)
    assert settings.quantiles == (0.5, 0.9, 0.95, 0.99, 0.999)


def test_quantiles_are_read_in_their_order() -> None:
    assert read_settings(("summary_quantiles=0.99:0.001,0.5:0.05",)).quantiles == (0.99, 0.5)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("summary_latencies", "--metrics-config option format is <setting>=<value>. Got summary_latencies"),
        ("m,summary_latencies=true", "<setting>=<value>. Got m,summary_latencies=true"),
        ("summary=true", "there is no setting 'summary' of metrics, expected one of counter_latencies, "),
        ("summary_latencies=ture", "invalid value for summary_latencies: 'ture'; expected true or false"),
        ("summary_quantiles=0.5", "Invalid option: [0.5]. No ':' delimiter found"),
        ("summary_quantiles=0.5:0.1,half:0.1", "Invalid option: [half:0.1]. Expected two numbers from 0"),
        ("summary_quantiles=2:0.1", "Invalid option: [2:0.1]. Expected two numbers from 0"),
        ("summary_quantiles=nan:0.1", "Invalid option: [nan:0.1]. Expected two numbers from 0"),
    ],
)
def test_what_makes_no_sense_is_refused(given: str, text: str) -> None:
    with pytest.raises(InvalidArg) as refused:
        read_settings((given,))

    assert text in refused.value.message


def test_every_model_has_first_responses() -> None:
    settings = MetricsSettings(has_histograms=True)

    latencies = settings.latencies(DECOUPLED)

    assert latencies is not None
    assert latencies.first_response is not None
    assert latencies.first_response.bounds_ms == (100, 500, 2000, 5000)
    assert not latencies.summaries
    others = settings.latencies({"name": "m"})
    assert others is not None
    assert others.first_response is not None
    for kept in (latencies, others):
        kept.add("request", 600_000_000)
    assert latencies.first_response.counts == [0, 0, 0, 0, 0]  # it is told of each by itself
    assert others.first_response.counts == [0, 0, 1, 0, 0]


def test_a_model_whose_responses_are_cached_has_other_summaries() -> None:
    settings = MetricsSettings(has_summaries=True)

    plain, cached = settings.latencies({}), settings.latencies({}, is_cached=True)

    assert plain is not None
    assert cached is not None
    assert REQUEST in plain.summaries
    assert CACHE_HIT not in plain.summaries
    assert REQUEST not in cached.summaries
    assert CACHE_HIT in cached.summaries


def test_a_model_chooses_the_buckets_of_its_first_responses() -> None:
    latencies = MetricsSettings(has_histograms=True).latencies(buckets(-1, 0, 1, 2.5))

    assert latencies is not None
    assert latencies.first_response is not None
    assert latencies.first_response.bounds_ms == (-1, 0, 1, 2.5)


def test_buckets_that_do_not_ascend_are_refused_also_where_nothing_is_kept() -> None:
    with pytest.raises(InvalidArg, match=r"model 'm': model_metrics: buckets of 'nv_.*' must .* got \[2"):
        MetricsSettings().latencies(buckets(2, 1))


def test_buckets_of_another_family_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    latencies = MetricsSettings(has_histograms=True).latencies(buckets(1, family="my_family"))

    assert latencies is not None
    assert latencies.first_response is not None
    assert latencies.first_response.bounds_ms == (100, 500, 2000, 5000)
    assert "Metric family 'my_family' in 'metric_identifier' is not a customizable metric" in caplog.text
