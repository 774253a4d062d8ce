from __future__ import annotations

import onnxruntime
import pytest
from tritonpy.plugin import Backend, Model, TritonError
from tritonpy_backend_onnxruntime.framework import Framework
from tritonpy_backend_onnxruntime.options import (
    read_settings,
    run_options,
    session_options,
)

FRAMEWORK = Framework(onnxruntime, 4)


def model(tmp_path, parameters=None, **config):
    config = {
        "name": "net",
        "parameters": {key: {"string_value": value} for key, value in (parameters or {}).items()},
        **config,
    }
    return Model("net", 1, config, tmp_path, Backend("onnxruntime"))


def groups(*counts):
    return [{"kind": "KIND_CPU", "count": count} for count in counts]


@pytest.mark.parametrize(
    ("cores", "instances", "threads"),
    [(2, [2], 1), (2, [1], 2), (1, [2], 1), (16, [2], 15), (16, [8], 9), (16, [2, 2], 13), (4, [9], 1)],
)
def test_instances_that_share_a_session_use_all_cores_together(tmp_path, cores, instances, threads):
    settings = read_settings(model(tmp_path, instance_group=groups(*instances)), FRAMEWORK, cores)

    assert settings.intra_op_thread_count == threads


@pytest.mark.parametrize(
    ("cores", "instances", "threads"), [(2, [2], 1), (16, [2], 8), (16, [1], 16), (4, [9], 1)]
)
@pytest.mark.parametrize(
    "parameters", [{"share_session_between_instances": "false"}, {"TRITONPY_ISOLATION": "process"}]
)
def test_instances_with_threads_of_their_own_get_equal_parts(tmp_path, cores, instances, threads, parameters):
    given = model(tmp_path, parameters, instance_group=groups(*instances))

    assert read_settings(given, FRAMEWORK, cores).intra_op_thread_count == threads


def test_gpu_and_passive_instances_are_not_counted(tmp_path):
    config = [{"kind": "KIND_GPU", "count": 5}, {"kind": "KIND_CPU", "count": 3, "passive": True}]

    assert read_settings(model(tmp_path, instance_group=config), FRAMEWORK, 8).intra_op_thread_count == 8


def test_configuration_without_groups_counts_the_two_that_it_will_get(tmp_path):
    assert read_settings(model(tmp_path), FRAMEWORK, 8).intra_op_thread_count == 7


def test_parameter_wins_over_backend_config_which_wins_over_the_default(tmp_path):
    framework = Framework(onnxruntime, 4, intra_op_thread_count=3, inter_op_thread_count=2)
    parameters = {"intra_op_thread_count": "5", "inter_op_thread_count": "6"}

    from_backend = read_settings(model(tmp_path), framework, 8)
    from_model = read_settings(model(tmp_path, parameters), framework, 8)

    assert (from_backend.intra_op_thread_count, from_backend.inter_op_thread_count) == (3, 2)
    assert (from_model.intra_op_thread_count, from_model.inter_op_thread_count) == (5, 6)


def test_parameters_reach_onnxruntime(tmp_path):
    parameters = {
        "intra_op_thread_count": "3",
        "inter_op_thread_count": "2",
        "execution_mode": "1",
        "enable_mem_arena": "0",
        "enable_mem_pattern": "false",
        "session.set_denormal_as_zero": "1",
        "session.intra_op.allow_spinning": "1",
        "custom": "left alone",
    }

    options = session_options(FRAMEWORK, read_settings(model(tmp_path, parameters), FRAMEWORK))

    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 2)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    assert options.get_session_config_entry("session.set_denormal_as_zero") == "1"
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "1"


def test_threads_do_not_spin_by_default(tmp_path):
    options = session_options(FRAMEWORK, read_settings(model(tmp_path), FRAMEWORK))

    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"
    assert options.enable_cpu_mem_arena
    assert options.enable_mem_pattern


@pytest.mark.parametrize(
    ("level", "expected"), [(-1, "ORT_ENABLE_BASIC"), (0, "ORT_ENABLE_ALL"), (1, "ORT_ENABLE_EXTENDED")]
)
def test_graph_level_is_translated(tmp_path, level, expected):
    settings = read_settings(model(tmp_path, optimization={"graph": {"level": level}}), FRAMEWORK)

    options = session_options(FRAMEWORK, settings)

    assert options.graph_optimization_level == getattr(onnxruntime.GraphOptimizationLevel, expected)


def test_arena_shrinkage_is_a_setting_of_each_run(tmp_path):
    parameters = {"memory.enable_memory_arena_shrinkage": "cpu:0"}

    options = run_options(FRAMEWORK, read_settings(model(tmp_path, parameters), FRAMEWORK))

    assert options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("intra_op_thread_count", "many", "a whole number, 0 or more"),
        ("inter_op_thread_count", "-1", "a whole number, 0 or more"),
        ("execution_mode", "2", "0 (sequential) or 1 (parallel)"),
        ("enable_mem_arena", "yes", "0, 1, true or false"),
        ("share_session_between_instances", "2", "0, 1, true or false"),
    ],
)
def test_bad_value_is_refused_with_the_parameters_name(tmp_path, key, value, expected):
    with pytest.raises(TritonError) as refused:
        read_settings(model(tmp_path, {key: value}), FRAMEWORK)

    assert refused.value.message == f"parameter '{key}' of model 'net': got '{value}', expected {expected}"


def test_missing_custom_operator_library_fails_the_load_with_its_path(load):
    config = {"model_operations": {"op_library_filename": ["ops/libmine.so"]}}

    with pytest.raises(TritonError, match=r"failed to load model 'net': .*net/ops/libmine\.so"):
        load("net (float[N,3] X) => (float[N,3] Y) { Y = Neg(X) }", config)
