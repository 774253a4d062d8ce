from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry
from tritonpy.latencies import COMPUTE, REQUEST, Histogram, Latencies
from tritonpy.metrics.exposition import render
from tritonpy.metrics.models import ModelMetrics, ModelSnapshot
from tritonpy.metrics.server import ServerMetrics
from tritonpy.metrics.settings import MetricsSettings
from tritonpy.stats import ModelStats


def counted() -> ModelStats:
    stats = ModelStats(success_count=5, success_ns=7_000_999, pending_count=2)
    stats.count_execution(2, 6, 6, 4_000, (0, 1_000, 5_000, 7_000))
    stats.count_failure("BACKEND", 10)
    return stats


def scrape(*models: ModelSnapshot, settings: MetricsSettings | None = None) -> str:
    registry = CollectorRegistry()
    metrics = ModelMetrics(registry, lambda: models, settings)
    metrics.take()
    return render(registry).decode()


def values(text: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_every_counter_has_tritons_name_and_value() -> None:
    text = scrape(ModelSnapshot("m", "1", counted()))

    labels = '{model="m",version="1"}'
    assert values(text) == {
        f"nv_inference_request_success{labels}": "5",
        'nv_inference_request_failure{model="m",reason="REJECTED",version="1"}': "0",
        'nv_inference_request_failure{model="m",reason="CANCELED",version="1"}': "0",
        'nv_inference_request_failure{model="m",reason="BACKEND",version="1"}': "1",
        'nv_inference_request_failure{model="m",reason="OTHER",version="1"}': "0",
        f"nv_inference_count{labels}": "6",
        f"nv_inference_exec_count{labels}": "1",
        f"nv_inference_request_duration_us{labels}": "7000",
        f"nv_inference_queue_duration_us{labels}": "4",
        f"nv_inference_compute_input_duration_us{labels}": "2",
        f"nv_inference_compute_infer_duration_us{labels}": "8",
        f"nv_inference_compute_output_duration_us{labels}": "4",
        f"nv_inference_pending_request_count{labels}": "2",
    }


def test_families_are_counters_except_what_goes_up_and_down() -> None:
    text = scrape(ModelSnapshot("m", "1", counted(), load_duration_s=0.5))

    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    gauges = {name for name, kind in kinds.items() if kind == "gauge"}
    assert gauges == {"nv_inference_pending_request_count", "nv_model_load_duration_secs"}
    assert {kinds[name] for name in kinds if name not in gauges} == {"counter"}


def test_metric_tags_become_labels_that_begin_with_an_underscore() -> None:
    text = scrape(ModelSnapshot("m", "1", ModelStats(), tags={"team": "vision", "a-b": "c"}))

    assert 'nv_inference_count{_a_b="c",_team="vision",model="m",version="1"} 0\n' in text


def test_counting_after_take_does_not_change_what_is_rendered() -> None:
    stats = ModelStats()
    registry = CollectorRegistry()
    metrics = ModelMetrics(registry, lambda: [ModelSnapshot("m", "1", stats.snapshot())])
    metrics.take()

    stats.inference_count = 9
    before = render(registry).decode()
    metrics.take()
    after = render(registry).decode()

    assert 'nv_inference_count{model="m",version="1"} 0\n' in before
    assert 'nv_inference_count{model="m",version="1"} 9\n' in after


def test_two_servers_of_one_process_count_apart() -> None:
    first, second = CollectorRegistry(), CollectorRegistry()
    ServerMetrics(first).count_slow_scan("m", "1", "s")
    ServerMetrics(second)

    assert (
        'tritonpy_slow_batching_scans_total{model="m",strategy="s",version="1"} 1\n' in render(first).decode()
    )
    assert "tritonpy_slow_batching_scans_total" not in render(second).decode()


def test_a_family_cannot_be_registered_twice() -> None:
    registry = CollectorRegistry()
    ModelMetrics(registry, tuple)

    with pytest.raises(ValueError, match="nv_inference_request_success"):
        ModelMetrics(registry, tuple)


def test_models_of_one_name_are_told_apart_by_their_namespace() -> None:
    text = scrape(
        ModelSnapshot("m", "1", counted(), namespace="/a"), ModelSnapshot("m", "1", counted(), namespace="/b")
    )

    lines = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(set(lines))
    assert 'nv_inference_request_success{model="m",namespace="/a",version="1"}' in text


LABELS = '{model="m",version="1"}'


def test_durations_are_left_out_without_freezing_anything_else() -> None:
    text = scrape(ModelSnapshot("m", "1", counted()), settings=MetricsSettings(has_counters=False))

    found = values(text)
    assert "duration_us" not in text
    assert found[f"nv_inference_request_success{LABELS}"] == "5"
    assert found['nv_inference_request_failure{model="m",reason="BACKEND",version="1"}'] == "1"
    assert found[f"nv_inference_count{LABELS}"] == "6"
    assert found[f"nv_inference_exec_count{LABELS}"] == "1"


def test_a_summary_has_quantiles_a_count_and_a_sum() -> None:
    stats = ModelStats(latencies=Latencies((REQUEST, *COMPUTE)))
    stats.count_success(700_999)
    stats.count_success(300_000)
    stats.count_execution(2, 6, 6, 4_000, (0, 1_000, 5_000, 7_000))

    text = scrape(ModelSnapshot("m", "1", stats), settings=MetricsSettings(quantiles=(0.5, 0.99)))

    assert (
        "# TYPE nv_inference_request_summary_us summary\n"
        'nv_inference_request_summary_us_count{model="m",version="1"} 2\n'
        'nv_inference_request_summary_us_sum{model="m",version="1"} 1000\n'
        'nv_inference_request_summary_us{model="m",version="1",quantile="0.5"} 300\n'
        'nv_inference_request_summary_us{model="m",version="1",quantile="0.99"} 700\n'
    ) in text
    assert values(text)['nv_inference_compute_infer_summary_us{model="m",version="1",quantile="0.5"}'] == "4"
    assert values(text)[f"nv_inference_compute_infer_summary_us_count{LABELS}"] == "2"


def test_an_empty_summary_has_tritons_word_for_no_number() -> None:
    text = scrape(ModelSnapshot("m", "1", ModelStats(latencies=Latencies((REQUEST,)))))

    assert 'nv_inference_request_summary_us{model="m",version="1",quantile="0.999"} Nan\n' in text
    assert "nv_inference_queue_summary_us" not in text


def test_first_responses_are_a_histogram_of_milliseconds() -> None:
    histogram = Histogram((100.0, 2.5e3))
    histogram.add(30.5)
    histogram.add(9000)
    text = scrape(ModelSnapshot("m", "1", ModelStats(latencies=Latencies((), histogram))))

    name = "nv_inference_first_response_histogram_ms"
    assert text.endswith(
        f"# TYPE {name} histogram\n"
        f"{name}_count{LABELS} 2\n"
        f"{name}_sum{LABELS} 9030.5\n"
        f'{name}_bucket{{model="m",version="1",le="100"}} 1\n'
        f'{name}_bucket{{model="m",version="1",le="2500"}} 1\n'
        f'{name}_bucket{{model="m",version="1",le="+Inf"}} 2\n'
    )


def test_only_models_with_a_cache_count_what_it_does() -> None:
    cached = ModelStats(is_cached=True)
    cached.count_cache_hit(1_000, 2_000, 9_000)
    cached.count_cache_miss(3_000)

    text = scrape(ModelSnapshot("m", "1", ModelStats()), ModelSnapshot("c", "1", cached))

    found = {name: value for name, value in values(text).items() if name.startswith("nv_cache")}
    assert found == {
        'nv_cache_num_hits_per_model{model="c",version="1"}': "1",
        'nv_cache_hit_duration_per_model{model="c",version="1"}': "2",
        'nv_cache_num_misses_per_model{model="c",version="1"}': "1",
        'nv_cache_miss_duration_per_model{model="c",version="1"}': "3",
    }


def test_why_batches_closed_is_counted_by_reason() -> None:
    stats = ModelStats()
    stats.closed_counts["queue empty"] += 3
    stats.closed_counts["full"] += 1

    text = scrape(ModelSnapshot("m", "1", stats))

    assert (
        "# TYPE tritonpy_batch_closed_total counter\n"
        'tritonpy_batch_closed_total{model="m",reason="full",version="1"} 1\n'
        'tritonpy_batch_closed_total{model="m",reason="queue empty",version="1"} 3\n'
    ) in text


def test_a_model_on_one_gpu_names_it() -> None:
    text = scrape(ModelSnapshot("m", "1", ModelStats(), gpu_uuid="GPU-a"))

    assert 'nv_inference_count{gpu_uuid="GPU-a",model="m",version="1"} 0\n' in text
