"""What shared objects are told of a model."""

from __future__ import annotations

import json

from tritonpy.plugin import JsonObject, Model

_OPTIMIZATION: JsonObject = {
    "priority": "PRIORITY_DEFAULT",
    "input_pinned_memory": {"enable": True},
    "output_pinned_memory": {"enable": True},
    "gather_kernel_buffer_threshold": 0,
    "eager_batching": False,
}
"""What Triton fills in, and libraries read without looking whether it is there."""


def facts(model: Model) -> dict[str, str | int]:
    """What a `TRITONPY_Model` says, in the order of its members."""
    backend = model.backend
    return {
        "name": model.name,
        "version": model.version,
        "location": str(model.directory),
        "config": config_text(model),
        "completes_config": True,
        "backend_name": backend.name,
        "backend_location": str(backend.directory or ""),
        "backend_config": _json({"cmdline": dict(backend.settings)}),
    }


def config_text(model: Model) -> str:
    """The configuration with everything in it that Triton's own has: what is missing ends libraries."""
    optimization = _OPTIMIZATION | model.config.get("optimization", {})
    return _json(model.config | {"optimization": optimization})


def _json(document: JsonObject) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
