"""Facts about a model for shared objects."""

from __future__ import annotations

from tritonpy.plugin import Backend, JsonObject, Model

from tritonpy_abi.json_text import json_text

_OPTIMIZATION: JsonObject = {
    "priority": "PRIORITY_DEFAULT",
    "input_pinned_memory": {"enable": True},
    "output_pinned_memory": {"enable": True},
    "gather_kernel_buffer_threshold": 0,
    "eager_batching": False,
}
"""What Triton fills in, and libraries read without looking whether it is there."""

_SETTINGS = {"min-compute-capability": "6.000000", "default-max-batch-size": "4"}
"""What Triton tells every backend on its command line, with any options."""


def facts(model: Model) -> dict[str, str | int]:
    """The members of a `TRITONPY_Model`, in their order."""
    backend = model.backend
    return {
        "name": model.name,
        "version": model.version,
        "location": str(model.directory),
        "config": _config_text(model),
        "completes_config": backend.completes_config,
        "backend_name": backend.name,
        "backend_location": str(backend.directory or ""),
        "backend_config": backend_config(backend),
    }


def backend_config(backend: Backend) -> str:
    """The message that `TRITONBACKEND_BackendConfig` gives."""
    return json_text({"cmdline": _cmdline(backend)})


def _cmdline(backend: Backend) -> dict[str, str]:
    return {
        "auto-complete-config": "true" if backend.completes_config else "false",
        "backend-directory": str(backend.directory.parent) if backend.directory is not None else "",
        **_SETTINGS,
        **backend.settings,
    }


def _config_text(model: Model) -> str:
    """The configuration with everything in it that Triton's own has: what is missing ends libraries."""
    optimization = _OPTIMIZATION | model.config.get("optimization", {})
    return json_text(model.config | {"optimization": optimization})
