"""Auto-complete: what the model file says, handed to the rules that all frameworks share."""

from __future__ import annotations

import logging

from tritonpy.plugin import JsonObject
from tritonpy.plugin import complete_config as complete

from tritonpy_backend_litert.signature import Signature, TensorInfo

_log = logging.getLogger("tritonpy.backend.litert")


def complete_config(config: JsonObject, signature: Signature, batch_size: int) -> JsonObject:
    """Return a copy of `config` with batching, inputs and outputs filled in; see `plugin.complete_config`.

    What the protocol cannot carry is left out with a warning.

    Args:
        config: names inputs or outputs or neither.
        signature: what the model file says.
        batch_size: 0 leaves models unbatched that do not ask.

    Raises:
        InvalidArg: the configuration batches and the model cannot, in Triton's words.
    """
    return complete(
        config,
        [tensor for tensor in signature.inputs.values() if _is_usable(tensor, config)],
        [tensor for tensor in signature.outputs.values() if _is_usable(tensor, config)],
        batch_size=batch_size,
    )


def _is_usable(tensor: TensorInfo, config: JsonObject) -> bool:
    if not tensor.datatype:
        _log.warning(
            "model '%s': '%s' is left out, there is no datatype for %s",
            config["name"],
            tensor.name,
            tensor.type_name,
        )
    return bool(tensor.datatype)
