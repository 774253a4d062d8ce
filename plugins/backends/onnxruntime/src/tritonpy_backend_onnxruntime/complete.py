"""Auto-complete: fill in what a configuration leaves out, from the model file."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tritonpy.plugin import DATATYPES, InvalidArg, JsonObject

from tritonpy_backend_onnxruntime.signature import ModelSignature, TensorInfo

_log = logging.getLogger("tritonpy.backend.onnxruntime")
_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")


def complete_config(config: JsonObject, signature: ModelSignature, default_max_batch_size: int) -> JsonObject:
    """Return a copy of `config` with batching, inputs and outputs filled in.

    A model can batch when every input and output has a first dimension of any size; `max_batch_size` then
    becomes the default where it is 0, unless the tensors that are configured spell that dimension out, and
    a model that ends up with more than 1 gets dynamic batching where no scheduler is chosen.

    Args:
        config: names inputs or outputs or neither; one that names both is complete and does not come here.
        signature: what the model file says.
        default_max_batch_size: 0 leaves models unbatched that do not ask.

    Raises:
        InvalidArg: the configuration batches and the model cannot, in Triton's words.
    """
    completed = dict(config)
    max_batch_size = int(config.get("max_batch_size", 0))
    if signature.can_batch:
        if max_batch_size == 0 and not _spells_out_batch(config, signature):
            max_batch_size = default_max_batch_size
        completed["max_batch_size"] = max_batch_size
        if max_batch_size > 1 and not any(key in config for key in _SCHEDULERS):
            completed["dynamic_batching"] = {}
    elif max_batch_size > 0:
        raise InvalidArg(
            f"autofill failed for model '{config['name']}': model does not support batching while non-zero "
            f"max_batch_size is specified"
        )
    for key, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        if not config.get(key):
            completed[key] = [
                _tensor_config(tensor, max_batch_size > 0) for tensor in tensors if _is_usable(tensor, config)
            ]
    return completed


def _spells_out_batch(config: JsonObject, signature: ModelSignature) -> bool:
    """Whether configured dims are as many as the model's, so that none is left for the batch."""
    return any(
        len(tensor["dims"]) == len(info.shape)
        for key, infos in (("input", signature.inputs), ("output", signature.outputs))
        for tensor in config.get(key, ())
        for info in infos
        if info.name == tensor["name"] and "reshape" not in tensor
    )


def _is_usable(tensor: TensorInfo, config: JsonObject) -> bool:
    if not tensor.datatype:
        _log.warning(
            "model '%s': '%s' is left out, there is no datatype for ONNX type %s",
            config["name"],
            tensor.name,
            tensor.onnx_type,
        )
    return bool(tensor.datatype)


def _tensor_config(tensor: TensorInfo, batches: bool) -> JsonObject:
    dims: Sequence[int] = tensor.shape[1:] if batches else tensor.shape
    config: JsonObject = {
        "name": tensor.name,
        "data_type": DATATYPES[tensor.datatype].config_name,
        "dims": list(dims) or [1],  # a configuration has no scalars
    }
    if batches and not dims:
        config["reshape"] = {"shape": []}
    return config
