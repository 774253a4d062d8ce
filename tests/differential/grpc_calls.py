"""gRPC calls that are not inference."""

from __future__ import annotations

from typing import Any

from .bodies import call, grpc_case
from .servers import Grpc

_MODELS = (
    *("nob", "fix", "types", "one_string", "strings", "variable", "vector", "optional", "labelled"),
    *("reversed", "fails", "streams", "told", "counted"),
)
_WHICH: tuple[tuple[str, str], ...] = (
    *(("nob", ""), ("nob", "1"), ("nob", "01"), ("nob", "9"), ("nob", "x"), ("nob", "-1"), ("nob", "9" * 20)),
    *(("nope", ""), ("nope", "1"), ("", ""), ("", "1"), ("n%6fb", "")),
)
_COUNTED = tuple((model.replace("nob", "reversed"), version) for model, version in _WHICH if model)
_LOG: tuple[dict[str, Any], ...] = (
    {},
    {"log_info": {"bool_param": True}},
    {"log_info": {"uint32_param": 1}},
    {"log_info": {"string_param": "true"}},
    {"log_info": {}},
    {"log_warning": {"uint32_param": 1}},
    {"log_error": {"uint32_param": 1}},
    {"log_verbose_level": {"bool_param": True}},
    {"log_verbose_level": {"string_param": "1"}},
    {"log_verbose_level": {"uint32_param": 1}},
    {"log_verbose_level": {"uint32_param": 0}},
    {"log_format": {"string_param": "x"}},
    {"log_format": {"uint32_param": 1}},
    {"log_format": {"string_param": "ISO8601"}},
    {"log_format": {"string_param": "default"}},
    {"log_file": {"string_param": "x"}},
    {"log_file": {"uint32_param": 1}},
    {"other": {"bool_param": True}},
)
_LOAD: tuple[dict[str, Any], ...] = (
    {"other": {"string_param": "x"}},
    {"config": {"bool_param": True}},
    {"config": {"string_param": "x"}},
    {"config": {"bytes_param": b"x"}},
    {"config": {}},
    {"file:1/model.py": {"string_param": "x"}},
    {"file:1/model.py": {"bytes_param": b"x"}},
    {"unload_dependents": {"bool_param": True}},
)

CASES = [
    grpc_case("ServerMetadata", call("ServerMetadata")),
    *(
        grpc_case(f"{name} of {model!r} {version!r}", call(name, name=model, version=version))
        for name in ("ModelReady", "ModelMetadata", "ModelConfig")
        for model, version in _WHICH
    ),
    *(
        grpc_case(
            f"statistics of {model!r} {version!r}", call("ModelStatistics", name=model, version=version)
        )
        for model, version in _COUNTED  # not those of all: where the servers differ, so do their counters
    ),
    *(grpc_case(f"metadata of {model}", call("ModelMetadata", name=model, version="1")) for model in _MODELS),
    *(
        grpc_case(f"configuration of {model}", call("ModelConfig", name=model, version="1"))
        for model in _MODELS
    ),
    grpc_case(
        "RepositoryIndex",
        call("RepositoryIndex"),
        call("RepositoryIndex", ready=True),
        call("RepositoryIndex", repository_name="some"),
    ),
    *(
        grpc_case(
            f"load with {parameters}",
            call("RepositoryModelLoad", model_name="counted", parameters=parameters),
        )
        for parameters in _LOAD
    ),
    grpc_case(
        "load of an unknown model",
        call("RepositoryModelLoad", model_name="nope"),
        call("RepositoryModelLoad"),
    ),
    grpc_case(
        "load from a repository", call("RepositoryModelLoad", model_name="nob", repository_name="some")
    ),
    grpc_case(
        "unload of an unknown model",
        call("RepositoryModelUnload", model_name="nope"),
        call("RepositoryModelUnload"),
    ),
    grpc_case(
        "unload from a repository", call("RepositoryModelUnload", model_name="nob", repository_name="some")
    ),
    *(
        grpc_case(
            f"unload with {parameters}",
            call("RepositoryModelUnload", model_name="nope", parameters=parameters),
        )
        for parameters in (
            {"unload_dependents": {"int64_param": 1}},
            {"unload_dependents": {"bool_param": True}},
            {"other": {"bool_param": True}},
            {"config": {"string_param": "x"}},
        )
    ),
    *(grpc_case(f"log settings {settings}", call("LogSettings", settings=settings)) for settings in _LOG),
    grpc_case(
        "system regions: none",
        call("SystemSharedMemoryStatus"),
        call("SystemSharedMemoryStatus", name="r"),
        call("SystemSharedMemoryUnregister", name="r"),
        call("SystemSharedMemoryUnregister"),
    ),
    *(
        grpc_case(f"register {fields}", call("SystemSharedMemoryRegister", **fields))
        for fields in (
            {},
            {"name": "r"},
            {"name": "r", "key": "/no_such_region"},
            {"name": "r", "key": "/no_such_region", "byte_size": 8},
            {"key": "/no_such_region", "byte_size": 8},
        )
    ),
    grpc_case(
        "CUDA regions: none",
        call("CudaSharedMemoryStatus"),
        call("CudaSharedMemoryStatus", name="r"),
        call("CudaSharedMemoryUnregister", name="r"),
        call("CudaSharedMemoryUnregister"),
    ),
    *(
        grpc_case(f"register for CUDA {fields}", call("CudaSharedMemoryRegister", **fields))
        for fields in (
            {},
            {"name": "r"},
            {"name": "r", "raw_handle": b"x", "byte_size": 8},
            {"name": "r", "raw_handle": b"x" * 64, "byte_size": 8},
        )
    ),
    *(
        grpc_case(f"{name} of what is no message", Grpc(name, (b"\xff\xff",)))
        for name in ("ServerLive", "ModelMetadata", "ModelReady", "RepositoryIndex")
    ),
    grpc_case(
        "health", Grpc("/grpc.health.v1.Health/Check"), Grpc("/grpc.health.v1.Health/Check", (b"\n\x04none",))
    ),
]
