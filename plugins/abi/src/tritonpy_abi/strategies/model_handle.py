"""A model as shared objects see it."""

from __future__ import annotations

import cffi
from tritonpy.plugin import Model

from tritonpy_abi.model_facts import facts
from tritonpy_abi.shim import CData


class ModelHandle:
    """A filled `TRITONPY_Model`; its receivers copy it.

    Attributes:
        description: the `TRITONPY_Model *`, good while this object is held.
    """

    def __init__(self, ffi: cffi.FFI, model: Model) -> None:
        self._texts: list[CData] = []
        self._ffi = ffi
        described: CData = ffi.new("TRITONPY_Model *")
        for member, value in facts(model).items():
            setattr(described, member, self._text(value) if isinstance(value, str) else value)
        self.description = described

    def _text(self, text: str) -> CData:
        chars = self._ffi.new("char[]", text.encode(errors="replace"))
        self._texts.append(chars)
        return chars
