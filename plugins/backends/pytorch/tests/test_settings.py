"""Parameters of a model, each with its effect on how it is loaded and run."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tritonpy.plugin import Backend, InvalidArg, Model
from tritonpy_backend_pytorch.settings import Settings, fair_thread_count, read_settings


def read(**parameters):
    config = {
        "name": "net",
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }
    return read_settings(Model("net", 1, config, Path("/nowhere"), Backend("pytorch")))


def test_a_model_without_parameters_has_triton_s_defaults():
    assert read() == Settings()
    assert Settings().uses_inference_mode
    assert Settings().uses_optimized_execution
    assert not Settings().allows_pickle


@pytest.mark.parametrize(
    ("key", "value", "attribute", "expected"),
    [
        ("DISABLE_OPTIMIZED_EXECUTION", "true", "uses_optimized_execution", False),
        ("INFERENCE_MODE", "OFF", "uses_inference_mode", False),
        ("DISABLE_CUDNN", "1", "uses_cudnn", False),
        ("ENABLE_WEIGHT_SHARING", "True", "shares_weights", True),
        ("ENABLE_WEIGHT_SHARING", "false", "shares_weights", False),
        ("ENABLE_CACHE_CLEANING", "on", "cleans_cache", True),
        ("CACHE_CLEANING_ENABLED", "yes", "cleans_cache", True),
        ("ENABLE_JIT_EXECUTOR", "0", "jit_executor", False),
        ("ENABLE_JIT_PROFILING", "no", "jit_profiling", False),
        ("ENABLE_TENSOR_FUSER", "1", "tensor_fuser", True),
        ("INTRA_OP_THREAD_COUNT", "3", "thread_count", 3),
        ("NUM_THREADS", "2", "thread_count", 2),
        ("INTER_OP_THREAD_COUNT", "4", "interop_thread_count", 4),
        ("NUM_INTEROP_THREADS", "1", "interop_thread_count", 1),
        (
            "TORCH_COMPILE_OPTIONAL_PARAMETERS",
            '{"backend": "eager"}',
            "compile_options",
            '{"backend": "eager"}',
        ),
        ("ALLOW_PICKLED_CODE", "true", "allows_pickle", True),
        ("MODULE_METHOD_NAME", "encode", "method", "encode"),
    ],
)
def test_each_parameter_is_read(key, value, attribute, expected, caplog):
    assert getattr(read(**{key: value}), attribute) == expected
    assert not caplog.records


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("INFERENCE_MODE", "maybe", "failed to convert 'maybe' to boolean"),
        ("INTRA_OP_THREAD_COUNT", "0", "got '0', expected a whole number, 1 or more"),
        ("NUM_THREADS", "many", "got 'many'"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", "{", "expected a JSON object"),
        ("TORCH_COMPILE_OPTIONAL_PARAMETERS", "[]", r"expected a JSON object, got '\[\]'"),
        (
            "TORCH_COMPILE_OPTIONAL_PARAMETERS",
            '{"model": 1}',
            "'model' is not an optional parameter for 'torch.compile'",
        ),
    ],
)
def test_a_value_that_cannot_be_is_refused(key, value, message):
    with pytest.raises(InvalidArg, match=message):
        read(**{key: value})


@pytest.mark.parametrize(
    ("key", "logged"),
    [
        ("INTRA_OP_THREADS_COUNT", "did you mean 'INTRA_OP_THREAD_COUNT'?"),
        ("inference_mode", "did you mean 'INFERENCE_MODE'?"),
        ("COLOUR", "parameter 'COLOUR' is not known"),
        ("ENABLE_NVFUSER", "parameter 'ENABLE_NVFUSER' has no effect"),
    ],
)
def test_an_unknown_parameter_is_named_in_the_log(key, logged, caplog):
    with caplog.at_level(logging.WARNING):
        assert read(**{key: "1"}) == Settings()

    assert logged in caplog.text


@pytest.mark.parametrize(
    "parameters",
    [
        {"TRITONPY_ISOLATION": "process"},
        {"TRITON_BATCH_STRATEGY_PATH": "volume", "MAX_BATCH_VOLUME_BYTES": "96"},
    ],
)
def test_parameters_of_the_server_and_of_strategies_are_none_of_its_business(parameters, caplog):
    read(**parameters)

    assert not caplog.records


@pytest.mark.parametrize(
    ("groups", "cores", "threads"),
    [
        ([], 8, 8),
        ([{"count": 4, "kind": "KIND_CPU"}], 8, 2),
        ([{"count": 16, "kind": "KIND_CPU"}], 8, 1),
        ([{"count": 2, "kind": "KIND_CPU"}, {"count": 7, "kind": "KIND_GPU"}], 8, 4),
    ],
)
def test_cpu_instances_share_the_cores(groups, cores, threads):
    assert fair_thread_count({"instance_group": groups}, cores) == threads
