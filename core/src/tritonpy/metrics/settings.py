"""Settings of metrics, from `--metrics-config`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.latencies import CACHE_HIT, CACHE_MISS, COMPUTE, QUEUE, REQUEST, Histogram, Latencies

_log = logging.getLogger("tritonpy.metrics")

FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
"""The histogram whose buckets a model may choose."""

FIRST_RESPONSE_BUCKETS_MS = (100.0, 500.0, 2000.0, 5000.0)
QUANTILES = ((0.5, 0.05), (0.9, 0.01), (0.95, 0.001), (0.99, 0.001), (0.999, 0.001))

COUNTERS, HISTOGRAMS, SUMMARIES = "counter_latencies", "histogram_latencies", "summary_latencies"
SUMMARY_QUANTILES = "summary_quantiles"


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Latencies that are kept, and the form in which they are shown.

    Attributes:
        has_counters: sums of durations are on the page.
        has_histograms: the times until first responses are counted in buckets.
        has_summaries: quantiles of durations are kept.
        quantiles: those of a summary, from 0 to 1.
    """

    has_counters: bool = True
    has_histograms: bool = False
    has_summaries: bool = False
    quantiles: tuple[float, ...] = tuple(quantile for quantile, _ in QUANTILES)

    def latencies(self, config: JsonObject, *, is_cached: bool = False) -> Latencies | None:
        """Empty latencies of a model version; None where none are kept.

        Args:
            config: the model's.
            is_cached: it wants its responses kept in a cache.

        Raises:
            InvalidArg: the configuration asks for buckets that do not ascend.
        """
        bounds_ms = _first_response_buckets(config)
        is_decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
        first_response = Histogram(bounds_ms) if self.has_histograms else None
        if not self.has_summaries and first_response is None:
            return None
        if not self.has_summaries:
            return Latencies((), first_response, is_decoupled=is_decoupled)
        # As in Triton: what a request takes says little where it may be answered without an execution.
        phases = (QUEUE, *COMPUTE, CACHE_HIT, CACHE_MISS) if is_cached else (REQUEST, QUEUE, *COMPUTE)
        return Latencies(phases, first_response, is_decoupled=is_decoupled)


def read_settings(given: Iterable[str]) -> MetricsSettings:
    """Read the values of `--metrics-config`, each `<setting>=<value>`; of equal settings the last counts.

    Raises:
        InvalidArg: the setting is unknown, or its value is invalid.
    """
    settings = MetricsSettings()
    for text in given:
        key, equals, value = text.partition("=")
        if not (key and equals and value) or "," in key:
            raise InvalidArg(f"--metrics-config option format is <setting>=<value>. Got {text}")
        if key == SUMMARY_QUANTILES:
            settings = replace(settings, quantiles=read_quantiles(value))
        elif key == COUNTERS:
            settings = replace(settings, has_counters=_read_switch(key, value))
        elif key == HISTOGRAMS:
            settings = replace(settings, has_histograms=_read_switch(key, value))
        elif key == SUMMARIES:
            settings = replace(settings, has_summaries=_read_switch(key, value))
        else:
            expected = ", ".join((COUNTERS, HISTOGRAMS, SUMMARIES, SUMMARY_QUANTILES))
            raise InvalidArg(f"there is no setting '{key}' of metrics, expected one of {expected}")
    return settings


def _read_switch(key: str, value: str) -> bool:
    if value.lower() in ("true", "1", "on"):
        return True
    if value.lower() in ("false", "0", "off"):
        return False
    raise InvalidArg(f"invalid value for {key}: '{value}'; expected true or false")


def read_quantiles(text: str) -> tuple[float, ...]:
    """The quantiles of `<quantile>:<error>,…`.

    The errors are checked and not needed: what is shown is exact in its rank (`tritonpy.latencies.Summary`).

    Raises:
        InvalidArg: names what is wrong with which pair.
    """
    found = []
    for pair in text.split(","):
        quantile, colon, error = pair.partition(":")
        if not colon:
            raise InvalidArg(
                f"Invalid option: [{pair}]. No ':' delimiter found. Expected format is <quantile>:<error>"
            )
        try:
            values = float(quantile), float(error)
        except ValueError:
            values = (-1.0, -1.0)
        if not all(0 <= value <= 1 for value in values):
            raise InvalidArg(f"Invalid option: [{pair}]. Expected two numbers from 0 to 1")
        found.append(values[0])
    return tuple(found)


def _first_response_buckets(config: JsonObject) -> tuple[float, ...]:
    bounds_ms: tuple[float, ...] = FIRST_RESPONSE_BUCKETS_MS
    for control in config.get("model_metrics", {}).get("metric_control", ()):
        family = control.get("metric_identifier", {}).get("family", "")
        if family != FIRST_RESPONSE:
            _log.warning(
                "Metric family '%s' in 'metric_identifier' is not a customizable metric; only '%s' is",
                family,
                FIRST_RESPONSE,
                extra={"model": config.get("name", "")},
            )
            continue
        bounds_ms = tuple(map(float, control.get("histogram_options", {}).get("buckets", ())))
        if any(low >= high for low, high in pairwise(bounds_ms)):
            raise InvalidArg(
                f"model '{config.get('name', '')}': model_metrics: buckets of '{family}' must be strictly "
                f"ascending, got {list(bounds_ms)}"
            )
    return bounds_ms
