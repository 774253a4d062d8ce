"""Parameters and the optimization block, each with its effect on a session; TensorFlow is not needed for "
"it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tritonpy.plugin import Backend, InvalidArg, Model, TritonError, Unsupported
from tritonpy_backend_tensorflow.settings import Settings, read_settings


def read(parameters=None, **config):
    config["parameters"] = {key: {"string_value": value} for key, value in (parameters or {}).items()}
    return read_settings(Model("net", 1, config, Path("/nowhere"), Backend("tensorflow")))


def accelerated(*accelerators, kind="KIND_GPU"):
    return {
        "instance_group": [{"kind": kind}],
        "optimization": {"execution_accelerators": {"gpu_execution_accelerator": list(accelerators)}},
    }


def test_a_model_without_parameters_has_triton_s_defaults():
    assert read() == Settings()
    assert Settings().graph_tag == "serve"
    assert not Settings().has_own_threads


@pytest.mark.parametrize(
    ("key", "value", "attribute", "expected"),
    [
        ("TF_NUM_INTRA_THREADS", "3", "intra_thread_count", 3),
        ("TF_NUM_INTRA_THREADS", "3", "has_own_threads", True),
        ("TF_NUM_INTER_THREADS", "2", "inter_thread_count", 2),
        ("TF_NUM_INTER_THREADS", "0", "has_own_threads", False),
        ("TF_USE_PER_SESSION_THREADS", "on", "has_own_threads", True),
        ("TF_GRAPH_TAG", "serve,gpu", "graph_tag", "serve,gpu"),
        ("TF_SIGNATURE_DEF", "classify", "signature", "classify"),
        ("TF_INIT_OPS_FILE", "init.json", "init_ops_file", "init.json"),
        ("MAX_SESSION_SHARE_COUNT", "2", "share_count", 2),
    ],
)
def test_each_parameter_is_read(key, value, attribute, expected, caplog):
    assert getattr(read({key: value}), attribute) == expected
    assert not caplog.records


def test_a_pool_in_common_may_be_asked_for():
    settings = read({"TF_NUM_INTER_THREADS": "2", "TF_USE_PER_SESSION_THREADS": "false"})

    assert (settings.inter_thread_count, settings.has_own_threads) == (2, False)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "TF_NUM_INTRA_THREADS",
            "-1",
            "parameter 'TF_NUM_INTRA_THREADS' must be non-negative number for TensorFlow model 'net'",
        ),
        ("TF_NUM_INTER_THREADS", "-2", "'TF_NUM_INTER_THREADS' must be non-negative number"),
        ("TF_NUM_INTER_THREADS", "two", "got 'two', expected a whole number, 0 or more"),
        (
            "MAX_SESSION_SHARE_COUNT",
            "0",
            "'MAX_SESSION_SHARE_COUNT' must be positive number for TensorFlow model",
        ),
        ("MAX_SESSION_SHARE_COUNT", "many", "expected a whole number, 1 or more"),
        ("TF_USE_PER_SESSION_THREADS", "maybe", "failed to convert 'maybe' to boolean"),
    ],
)
def test_values_that_cannot_be_are_told(key, value, message):
    with pytest.raises(InvalidArg, match=message):
        read({key: value})


@pytest.mark.parametrize("level", [-1, 0, 1, 2])
def test_the_graph_level_is_read_where_it_is_given(level):
    assert read(optimization={"graph": {"level": level}}).graph_level == level


def test_mixed_precision_is_for_gpus():
    assert read(**accelerated({"name": "auto_mixed_precision"})).uses_mixed_precision


def test_accelerators_are_ignored_on_the_cpu(caplog):
    with caplog.at_level(logging.WARNING):
        settings = read(**accelerated({"name": "tensorrt"}, kind="KIND_CPU"))

    assert settings == Settings()
    assert "GPU Execution Accelerator will be ignored for model instance on CPU" in caplog.text


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (accelerated({"name": "tensorrt"}), Unsupported, "TF-TRT, which TensorFlow brings no longer"),
        (accelerated({"name": "nosuch"}), InvalidArg, "unknown Execution Accelerator 'nosuch' is requested"),
        (
            accelerated({"name": "tensorrt", "parameters": {"precision_mode": "INT8"}}),
            InvalidArg,
            "unsupported precision mode 'INT8' is requested",
        ),
        (
            accelerated({"name": "tensorrt", "parameters": {"level": "3"}}),
            InvalidArg,
            "unknown parameter 'level' is provided for TensorRT Execution Accelerator",
        ),
        (
            accelerated({"name": "tensorrt"}, {"name": "auto_mixed_precision"}),
            InvalidArg,
            "Auto mixed precision can not be set with TFTRT optimization",
        ),
        (
            {
                "optimization": {
                    "execution_accelerators": {"cpu_execution_accelerator": [{"name": "openvino"}]}
                }
            },
            InvalidArg,
            "CPU Execution Accelerator is not supported in TensorFlow backend",
        ),
    ],
)
def test_accelerators_that_cannot_be_are_told(config, error, message):
    with pytest.raises(TritonError, match=message) as caught:
        read(**config)

    assert isinstance(caught.value, error)


def test_unknown_parameters_are_named(caplog):
    read({"TF_NUM_INTRA_THREAD": "1"})

    assert "'TF_NUM_INTRA_THREAD' is not known, did you mean 'TF_NUM_INTRA_THREADS'?" in caplog.text
