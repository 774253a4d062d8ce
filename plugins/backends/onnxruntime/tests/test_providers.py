from __future__ import annotations

from types import SimpleNamespace

import pytest
from tritonpy.plugin import TritonError
from tritonpy_backend_onnxruntime.framework import Framework
from tritonpy_backend_onnxruntime.providers import CPU, providers_for

EVERYTHING = [
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "OpenVINOExecutionProvider",
    "CPUExecutionProvider",
]


def framework(offered=EVERYTHING):
    return Framework(SimpleNamespace(get_available_providers=lambda: offered, __version__="1.31.1"), 4)


def config(parameters=None, **accelerators):
    return {
        "name": "net",
        "parameters": {key: {"string_value": value} for key, value in (parameters or {}).items()},
        "optimization": {"execution_accelerators": accelerators} if accelerators else {},
    }


def test_cpu_instance_runs_on_the_cpu_provider_alone():
    assert providers_for(framework(), config(), "KIND_CPU", 0) == [CPU]


def test_gpu_instance_runs_on_cuda_of_its_device_with_the_models_parameters():
    parameters = {"gpu_mem_limit": "1000", "cudnn_conv_algo_search": "HEURISTIC", "other": "x"}

    providers = providers_for(framework(), config(parameters), "KIND_GPU", 1)

    options = {"device_id": "1", "gpu_mem_limit": "1000", "cudnn_conv_algo_search": "HEURISTIC"}
    assert providers == [("CUDAExecutionProvider", options), CPU]


def test_tensorrt_goes_before_cuda_and_its_words_are_translated():
    parameters = {"precision_mode": "FP16", "max_workspace_size_bytes": "99", "trt_engine_cache_enable": "1"}
    given = config(gpu_execution_accelerator=[{"name": "tensorrt", "parameters": parameters}])

    providers = providers_for(framework(), given, "KIND_GPU", 0)

    options = {
        "device_id": "0",
        "trt_fp16_enable": "1",
        "trt_max_workspace_size": "99",
        "trt_engine_cache_enable": "1",
    }
    assert providers == [
        ("TensorrtExecutionProvider", options),
        ("CUDAExecutionProvider", {"device_id": "0"}),
        CPU,
    ]


def test_configured_cuda_is_not_added_twice():
    given = config(gpu_execution_accelerator=[{"name": "cuda", "parameters": {"use_tf32": "0"}}])

    assert providers_for(framework(), given, "KIND_GPU", 0) == [
        ("CUDAExecutionProvider", {"device_id": "0", "use_tf32": "0"}),
        CPU,
    ]


def test_accelerator_for_the_other_kind_is_not_used():
    given = config(cpu_execution_accelerator=[{"name": "openvino"}])

    assert providers_for(framework(), given, "KIND_GPU", 0)[0][0] == "CUDAExecutionProvider"
    assert providers_for(framework(), given, "KIND_CPU", 0) == [("OpenVINOExecutionProvider", {}), CPU]


def test_unknown_accelerator_is_refused_with_those_that_are_known():
    given = config(gpu_execution_accelerator=[{"name": "turbo"}])

    with pytest.raises(TritonError) as refused:
        providers_for(framework(), given, "KIND_CPU", 0)

    assert refused.value.message == (
        "model 'net': unknown execution accelerator 'turbo' in gpu_execution_accelerator; "
        "expected one of: cuda, tensorrt"
    )


@pytest.mark.parametrize("parameters", [{"precision_mode": "FP8"}, {"speed": "high"}])
def test_unknown_tensorrt_parameter_is_refused(parameters):
    given = config(gpu_execution_accelerator=[{"name": "tensorrt", "parameters": parameters}])

    with pytest.raises(TritonError, match="of accelerator 'tensorrt' is not known"):
        providers_for(framework(), given, "KIND_GPU", 0)


@pytest.mark.parametrize(
    ("given", "kind", "provider", "extra"),
    [
        (config(), "KIND_GPU", "CUDAExecutionProvider", "gpu"),
        (
            config(cpu_execution_accelerator=[{"name": "openvino"}]),
            "KIND_CPU",
            "OpenVINOExecutionProvider",
            "cpu",
        ),
    ],
)
def test_provider_that_is_not_installed_is_named_with_what_is(given, kind, provider, extra):
    with pytest.raises(TritonError) as refused:
        providers_for(framework(["CPUExecutionProvider"]), given, kind, 0)

    assert refused.value.message == (
        f"model 'net' needs {provider} for {kind}, which the installed ONNX Runtime 1.31.1 does not have "
        f"(CPUExecutionProvider); extra [{extra}] of tritonpy-backend-onnxruntime may bring it"
    )
    assert refused.value.code.text == "Unavailable"
