"""Values as text, settings in configurations, goals and plans: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import InvalidArg
from tritonpy_analyze.goal import parse_constraint, parse_weights
from tritonpy_analyze.histogram import Histogram
from tritonpy_analyze.measurement import quantity
from tritonpy_analyze.models import configurations, dimensions, load_dimension, model_of
from tritonpy_analyze.overrides import current, overridden
from tritonpy_analyze.plan import Plan, add_setting, read_plan
from tritonpy_analyze.space import Dimension, Space, Value, parse_values, shown_values, values_of


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,4", (1, 2, 4)),
        ("1:4", (1, 2, 3, 4)),
        ("0:1000:250", (0, 250, 500, 750, 1000)),
        ("1:64:x2,100", (1, 2, 4, 8, 16, 32, 64, 100)),
        ("none,4+8,16", (None, (4, 8), 16)),
        ("volume,single", ("volume", "single")),
        ("0.5, 1e3", (0.5, 1000.0)),
    ],
)
def test_values_are_read_and_shown_again(text: str, values: tuple[Value, ...]) -> None:
    assert parse_values(text) == values
    assert parse_values(shown_values(values)) == values


@pytest.mark.parametrize("text", ["", "4:1", "0:8:x2", "1:8:x1", "1:8:0"])
def test_ranges_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidArg, match="expected"):
        parse_values(text)


def test_values_of_a_document_are_lists_or_text() -> None:
    assert values_of([[4, 8], None, "x", True], "m.p") == ((4, 8), None, "x", "true")
    assert values_of("1:3", "m.p") == (1, 2, 3)
    for wrong in (True, {"a": 1}, [{}], [[]]):
        with pytest.raises(InvalidArg, match=r"'m\.p': got"):
            values_of(wrong, "m.p")


def test_a_space_knows_its_points() -> None:
    space = Space([Dimension("a.x", (1, 2, 8)), Dimension("a.y", ("p", "q"))])

    assert space.size == len(set(space.points())) == 6
    assert space.point({"a.x": 6, "a.y": "q"}) == (2, 1)
    assert space.choice(space.point({})) == {"a.x": 1, "a.y": "p"}
    with pytest.raises(InvalidArg, match="has a value twice: 1,1"):
        Space([Dimension("a.x", (1, 1))])


@pytest.mark.parametrize(
    ("before", "setting", "value", "after"),
    [
        ({}, "instances", 3, {"instance_group": [{"count": 3}]}),
        (
            {"instance_group": [{"kind": "KIND_GPU", "count": 1}]},
            "instances",
            2,
            {"instance_group": [{"kind": "KIND_GPU", "count": 2}]},
        ),
        ({}, "max_batch_size", 8, {"max_batch_size": 8, "dynamic_batching": {}}),
        ({}, "max_batch_size", 1, {"max_batch_size": 1}),
        ({"sequence_batching": {}}, "max_batch_size", 4, {"max_batch_size": 4, "sequence_batching": {}}),
        (
            {"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": [4, 8]}},
            "max_batch_size",
            4,
            {"max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [4]}},
        ),
        (
            {"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": [8]}},
            "max_batch_size",
            16,
            {"max_batch_size": 16, "dynamic_batching": {}},
        ),
        ({}, "queue_delay_us", 50, {"dynamic_batching": {"max_queue_delay_microseconds": 50}}),
        (
            {"dynamic_batching": {"max_queue_delay_microseconds": 50}},
            "queue_delay_us",
            0,
            {"dynamic_batching": {}},
        ),
        (
            {"sequence_batching": {"oldest": {}}},
            "queue_delay_us",
            50,
            {"sequence_batching": {"oldest": {"max_queue_delay_microseconds": 50}}},
        ),
        ({}, "preferred_batch_size", (2, 4), {"dynamic_batching": {"preferred_batch_size": [2, 4]}}),
        (
            {"backend": "onnxruntime"},
            "threads",
            2,
            {"backend": "onnxruntime", "parameters": {"intra_op_thread_count": {"string_value": "2"}}},
        ),
        (
            {},
            "strategy",
            "volume",
            {"parameters": {"TRITON_BATCH_STRATEGY_PATH": {"string_value": "volume"}}},
        ),
        (
            {"parameters": {"TRITON_BATCH_STRATEGY_PATH": {"string_value": "volume"}}},
            "strategy",
            None,
            {"parameters": {}},
        ),
        ({}, "parameters.KEY", "v", {"parameters": {"KEY": {"string_value": "v"}}}),
        ({}, "config.response_cache.enable", "true", {"response_cache": {"enable": "true"}}),
        ({"max_batch_size": 8}, "instances", None, {"max_batch_size": 8}),
        ({}, "queue_delay_us", 0, {}),
        ({}, "preferred_batch_size", None, {}),
        ({}, "config.response_cache.enable", None, {}),
    ],
)
def test_a_setting_changes_its_field(
    before: dict[str, Any], setting: str, value: Value, after: dict[str, Any]
) -> None:
    kept = repr(before)

    assert overridden(before, {setting: value}) == after
    assert repr(before) == kept
    if not setting.startswith("config.") and value:
        assert current(after, setting) == value


@pytest.mark.parametrize(
    ("config", "setting", "message"),
    [
        ({"name": "m"}, "instance", "model 'm': there is no setting 'instance'; expected one of instances"),
        ({"name": "m", "backend": "xyz"}, "threads", "backend 'xyz' is unknown; set it by its name"),
        (
            {"name": "m", "sequence_batching": {"direct": {}}},
            "preferred_batch_size",
            "has no preferred sizes",
        ),
        ({"name": "m", "input": []}, "config.input.name", "leads through 'input', a list"),
    ],
)
def test_what_is_no_setting_of_a_model_is_refused(config: dict[str, Any], setting: str, message: str) -> None:
    with pytest.raises(InvalidArg, match=message):
        overridden(config, {setting: 1})


def test_an_ensemble_takes_no_more_rows_than_its_steps() -> None:
    steps = [{"model_name": "a"}, {"model_name": "b"}]
    models = {
        "e": model_of({"name": "e", "max_batch_size": 8, "ensemble_scheduling": {"step": steps}}, ""),
        "a": model_of({"name": "a", "max_batch_size": 8, "backend": "identity"}, "identity"),
        "b": model_of({"name": "b", "max_batch_size": 16, "backend": "identity"}, "identity"),
    }
    found = dimensions(models, {"*": {"max_batch_size": "2,16"}, "b": {"instances": "1:2"}})

    configs = configurations(models, {"a.max_batch_size": 2, "b.max_batch_size": 16, "b.instances": 2})

    assert [each.name for each in found] == ["a.max_batch_size", "b.max_batch_size", "b.instances"]
    assert [configs[name]["max_batch_size"] for name in "eab"] == [2, 2, 16]
    with pytest.raises(InvalidArg, match="'c' is not analyzed; expected one of e, a, b"):
        dimensions(models, {"c": {"instances": [1]}})


def test_a_model_of_which_nothing_is_said_gets_what_suits_it() -> None:
    batching = model_of({"name": "m", "max_batch_size": 6, "backend": "identity"}, "identity")
    single = model_of({"name": "m", "backend": "identity"}, "identity")

    assert [each.name for each in dimensions({"m": single}, {})] == ["m.instances"]
    found = {each.name: each.values for each in dimensions({"m": batching}, {})}
    assert list(found) == ["m.instances", "m.max_batch_size", "m.queue_delay_us"]
    assert found["m.max_batch_size"] == (1, 2, 4, 6, 8, 16)


@pytest.mark.parametrize("given", [{"concurrency": "0"}, {"concurrency": "x"}, {"rate": "-1"}])
def test_a_load_is_a_positive_number(given: dict[str, str]) -> None:
    with pytest.raises(InvalidArg, match="expected a number above 0"):
        load_dimension(given.get("concurrency"), given.get("rate"))


@pytest.mark.parametrize(
    ("text", "metric", "value"),
    [
        ("20ms", "latency_p99", 20_000),
        ("1.5 s", "first_response_p50", 1_500_000),
        ("300", "latency_avg", 300),
        ("2GiB", "memory", 2048),
        ("80%", "gpu_utilization", 0.8),
        ("500", "a.throughput", 500),
        ("3ms", "a.latency_p99", 3000),
    ],
)
def test_quantities_have_units(text: str, metric: str, value: float) -> None:
    assert quantity(text, metric) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["latency_p99=20MiB", "latency_p98=1", "memory", "memory=many", "memory=1.2.3"]
)
def test_constraints_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidArg, match="expected"):
        parse_constraint(text, is_least=False)


def test_objectives_have_weights() -> None:
    assert parse_weights(()) == {"throughput": 1.0}
    assert parse_weights(("throughput=10,latency_p99=5", "memory")) == {
        "throughput": 10.0,
        "latency_p99": 5.0,
        "memory": 1.0,
    }
    for wrong in ("throughput=x", "throughput=0", "speed"):
        with pytest.raises(InvalidArg, match="expected"):
            parse_weights((wrong,))


def test_a_file_says_all_that_options_say(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "models:\n  net:\n    instances: '1:3'\n    parameters: {KEY: [a, b]}\n"
        "load: {concurrency: [4, 8]}\nobjective: {throughput: 2, latency_p99: 1}\n"
        "max: {latency_p99: 20ms}\nmin: {throughput: 10}\nsearch: brute\ntrials: 9\ncomposing: [other]\n"
    )

    plan = read_plan(path)
    add_setting(plan, "net.threads=1,2", ["net"])
    add_setting(plan, "queue_delay_us=0", ["net"])

    assert plan.settings["net"] == {"instances": "1:3", "parameters.KEY": ["a", "b"], "threads": "1,2"}
    assert plan.settings["*"] == {"queue_delay_us": "0"}
    assert str(plan.goal(["net"])) == (
        "throughput × 2, latency_p99 × 1 with latency_p99 ≤ 20 ms, throughput ≥ 10"
    )
    assert (plan.concurrency, plan.search, plan.trials, plan.composing) == ([4, 8], "brute", 9, ["other"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "expected keys and values"),
        ("modles: {}", "'modles' is not known; expected composing, load"),
        ("load: {speed: 1}", "load: 'speed' is not known"),
        ("trials: many", "trials: got 'many', expected a number"),
        ("a: {", "is no YAML"),
    ],
)
def test_a_file_with_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)

    with pytest.raises(InvalidArg, match=message):
        read_plan(path)


def test_several_models_share_a_goal_in_which_none_is_starved() -> None:
    assert Plan().goal(["a", "b"]).weights == {"a.throughput": 1.0, "b.throughput": 1.0}


def test_quantiles_of_merged_histograms_are_those_of_all_durations() -> None:
    durations = [float(each * each) for each in range(1, 200)]

    merged = Histogram.of(durations[:50]) + Histogram.of(durations[50:])

    for part in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact = sorted(durations)[max(0, -(-int(part * 1000 * len(durations)) // 1000) - 1)]
        assert merged.quantile_us(part) == pytest.approx(exact, rel=0.03)
    assert merged.mean_us == pytest.approx(sum(durations) / len(durations))
