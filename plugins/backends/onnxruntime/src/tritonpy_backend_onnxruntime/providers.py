"""Execution providers of a session, by the instance's kind and the configured accelerators."""

from __future__ import annotations

from tritonpy.plugin import InvalidArg, JsonObject, Unavailable

from tritonpy_backend_onnxruntime.framework import Framework

Provider = tuple[str, dict[str, str]]

CPU: Provider = ("CPUExecutionProvider", {})
CUDA_PARAMETERS = ("cudnn_conv_algo_search", "gpu_mem_limit", "arena_extend_strategy")
"""Model parameters that are options of the CUDA provider."""

_ACCELERATORS = {
    "gpu_execution_accelerator": {"tensorrt": "TensorrtExecutionProvider", "cuda": "CUDAExecutionProvider"},
    "cpu_execution_accelerator": {"openvino": "OpenVINOExecutionProvider"},
}
_WORKSPACE = "max_workspace_size_bytes"


def providers_for(framework: Framework, config: JsonObject, kind: str, device_id: int) -> list[Provider]:
    """List the providers of a session, the preferred one first, the CPU always last.

    Args:
        framework: knows what this build of ONNX Runtime offers.
        config: the model's; `optimization.execution_accelerators` and some parameters are read.
        kind: `KIND_CPU`, `KIND_GPU` or `KIND_MODEL`.
        device_id: the GPU's number.

    Raises:
        InvalidArg: an accelerator is not known.
        Unavailable: the installed ONNX Runtime was built without it.
    """
    is_gpu = kind == "KIND_GPU"
    field = "gpu_execution_accelerator" if is_gpu else "cpu_execution_accelerator"
    providers: list[Provider] = []
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    _check_names(config["name"], accelerators)
    for accelerator in accelerators.get(field, ()):
        name, parameters = accelerator["name"], dict(accelerator.get("parameters", {}))
        if name == "tensorrt":
            parameters = _tensorrt_options(config["name"], parameters)
        if is_gpu:
            parameters = {"device_id": str(device_id), **parameters}
        providers.append((_ACCELERATORS[field][name], parameters))
    if is_gpu and all(name != "CUDAExecutionProvider" for name, _ in providers):
        parameters = config.get("parameters", {})
        given = {key: parameters[key]["string_value"] for key in CUDA_PARAMETERS if key in parameters}
        providers.append(("CUDAExecutionProvider", {"device_id": str(device_id), **given}))
    offered = framework.ort.get_available_providers()
    for name, _ in providers:
        if name not in offered:
            wheel = "gpu" if is_gpu else "cpu"
            raise Unavailable(
                f"model '{config['name']}' needs {name} for {kind}, which the installed ONNX Runtime "
                f"{framework.ort.__version__} does not have ({', '.join(offered)}); "
                f"extra [{wheel}] of tritonpy-backend-onnxruntime may bring it"
            )
    return [*providers, CPU]


def _check_names(model_name: str, accelerators: JsonObject) -> None:
    for field, known in _ACCELERATORS.items():
        for accelerator in accelerators.get(field, ()):
            if accelerator["name"] not in known:
                raise InvalidArg(
                    f"model '{model_name}': unknown execution accelerator '{accelerator['name']}' in "
                    f"{field}; expected one of: {', '.join(sorted(known))}"
                )


def _tensorrt_options(model_name: str, parameters: dict[str, str]) -> dict[str, str]:
    """Translate Triton's words for TensorRT; names that begin with `trt_` are handed on."""
    options: dict[str, str] = {}
    for key, value in parameters.items():
        if key == "precision_mode" and value in ("FP32", "FP16", "INT8"):
            if value != "FP32":
                options[f"trt_{value.lower()}_enable"] = "1"
        elif key == _WORKSPACE:
            options["trt_max_workspace_size"] = value
        elif key.startswith("trt_"):
            options[key] = value
        else:
            raise InvalidArg(
                f"model '{model_name}': parameter '{key}' = '{value}' of accelerator 'tensorrt' is not "
                f"known; expected precision_mode (FP32, FP16, INT8), {_WORKSPACE} or trt_…"
            )
    return options
