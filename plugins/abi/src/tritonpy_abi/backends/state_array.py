"""States of a model's sequences, as its configuration has them, for the C library."""

from __future__ import annotations

import cffi
from tritonpy.plugin import CONFIG_DATATYPES, Model

from tritonpy_abi.shim import CData


class StateArray:
    """A filled array of `TRITONPY_State`, which its receiver copies.

    Attributes:
        array: of as many as the model has; good while this object is held.
    """

    def __init__(self, ffi: cffi.FFI, model: Model) -> None:
        config = model.config
        states = config.get("sequence_batching", {}).get("state", ())
        lead = (1,) if model.max_batch_size > 0 else ()
        self._kept: list[CData] = []
        self.array: CData = ffi.new("TRITONPY_State[]", len(states))
        for field, state in zip(self.array, states, strict=True):
            dims = (*lead, *map(int, state.get("dims", ())))
            field.input_name = self._keep(ffi.new("char[]", state["input_name"].encode()))
            field.output_name = self._keep(ffi.new("char[]", state["output_name"].encode()))
            field.shape = self._keep(ffi.new("int64_t[]", dims))
            field.dim_count = len(dims)
            field.datatype = CONFIG_DATATYPES[state["data_type"]].number
            field.keeps_content = state.get("use_same_buffer_for_input_output", False) or state.get(
                "use_growable_memory", False
            )

    def _keep(self, data: CData) -> CData:
        self._kept.append(data)
        return data
