"""A model as shared objects see it."""

from __future__ import annotations

import json

import cffi
from tritonpy.plugin import JsonObject, Model

from tritonpy_abi.shim import CData

_OPTIMIZATION: JsonObject = {
    "priority": "PRIORITY_DEFAULT",
    "input_pinned_memory": {"enable": True},
    "output_pinned_memory": {"enable": True},
    "gather_kernel_buffer_threshold": 0,
    "eager_batching": False,
}
"""What Triton fills in, and libraries read without looking whether it is there."""


class ModelHandle:
    """A filled `TRITONPY_Model`; it is copied by whoever gets it.

    Attributes:
        description: the `TRITONPY_Model *`, good while this object is held.
    """

    def __init__(self, ffi: cffi.FFI, model: Model) -> None:
        self._texts: list[CData] = []
        self._ffi = ffi
        backend = model.backend
        described: CData = ffi.new("TRITONPY_Model *")
        described.name = self._text(model.name)
        described.version = model.version
        described.location = self._text(str(model.directory))
        described.config = self._text(config_text(model))
        described.completes_config = True
        described.backend_name = self._text(backend.name)
        described.backend_location = self._text(str(backend.directory or ""))
        described.backend_config = self._text(_json({"cmdline": dict(backend.settings)}))
        self.description = described

    def _text(self, text: str) -> CData:
        chars = self._ffi.new("char[]", text.encode(errors="replace"))
        self._texts.append(chars)
        return chars


def config_text(model: Model) -> str:
    """The configuration with everything in it that Triton's own has: what is missing ends libraries."""
    optimization = _OPTIMIZATION | model.config.get("optimization", {})
    return _json(model.config | {"optimization": optimization})


def _json(document: JsonObject) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
