from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry
from tritonpy.metrics import ModelMetrics, ModelSnapshot, ServerMetrics, render
from tritonpy.stats import ModelStats


def counted() -> ModelStats:
    stats = ModelStats(success_count=5, success_ns=7_000_999, pending_count=2)
    stats.count_execution(2, 6, 6, 4_000, (0, 1_000, 5_000, 7_000))
    stats.count_failure("BACKEND", 10)
    return stats


def scrape(*models: ModelSnapshot) -> str:
    registry = CollectorRegistry()
    metrics = ModelMetrics(registry, lambda: models)
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


def test_a_model_without_a_queue_has_no_pending_requests() -> None:
    text = scrape(ModelSnapshot("m", "1", ModelStats(), has_queue=False))

    assert "nv_inference_pending_request_count" not in text


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
    ServerMetrics(first).count_slow_scan("m", "1")
    ServerMetrics(second)

    assert 'tritonpy_slow_batching_scans_total{model="m",version="1"} 1\n' in render(first).decode()
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
