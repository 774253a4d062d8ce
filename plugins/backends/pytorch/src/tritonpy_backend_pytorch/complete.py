"""Auto-complete: what a model's file says, handed to the rules that all frameworks share."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from tritonpy.plugin import JsonObject, no_datatype
from tritonpy.plugin import complete_config as complete

from tritonpy_backend_pytorch.program import Program
from tritonpy_backend_pytorch.shapes import UNKNOWN
from tritonpy_backend_pytorch.tensor_info import TensorInfo

_log = logging.getLogger("tritonpy.backend.pytorch")


def complete_config(config: JsonObject, program: Program, batch_size: int) -> JsonObject | None:
    """Return a copy of `config` with batching, inputs and outputs filled in; see `plugin.complete_config`.

    Args:
        config: names inputs or outputs or neither; one that names both is complete and does not come here.
        program: the loaded model.
        batch_size: 0 leaves models unbatched that do not ask.

    Returns:
        None where the file says too little.

    Raises:
        InvalidArg: the configuration batches and the model cannot, in Triton's words.
        Unsupported: an input is of a type that the protocol cannot carry.
    """
    described = program.describe(int(config.get("max_batch_size", 0)) > 0)
    if described is None:
        _log.warning(
            "model '%s': the file does not say of which types and shapes inputs and outputs are, so that its "
            "configuration has to; an exported program says it (torch.export.save), and a traced one "
            "for its sample",
            config["name"],
        )
        return None
    inputs, outputs = described
    for tensor in inputs:
        if not tensor.datatype:
            raise no_datatype(config["name"], "input", tensor)
    largest = largest_batch(inputs)
    if largest is not None and largest < batch_size:
        batch_size = largest
    return complete(
        config,
        inputs,
        outputs,
        batch_size=batch_size,
        largest=largest,
        has_batch=len(batch_symbols((*inputs, *outputs))) < 2,
    )


def largest_batch(inputs: Sequence[TensorInfo]) -> int | None:
    """The upper bound of the first dimension of all inputs; None where there is none."""
    bounds = [tensor.bounds[0][1] for tensor in inputs if tensor.bounds and tensor.bounds[0][1] >= 0]
    return min(bounds, default=None)


def batch_symbols(tensors: Iterable[TensorInfo]) -> set[str]:
    """The names of the sizes of all first dimensions of any size; more than one cannot be that of a batch."""
    firsts = {tensor.symbols[0] for tensor in tensors if tensor.symbols and tensor.shape[0] == -1}
    return {symbol for symbol in firsts if not symbol.startswith(UNKNOWN)}
