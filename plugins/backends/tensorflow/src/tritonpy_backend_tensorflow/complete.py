"""Auto-complete: what a model's files say, handed to the rules that all frameworks share."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from tritonpy.plugin import (
    CONFIG_DATATYPES,
    Internal,
    InvalidArg,
    JsonObject,
    can_batch,
    carried,
    given_inputs,
    kept_outputs,
    tensor_config,
)
from tritonpy.plugin import complete_config as complete

from tritonpy_backend_tensorflow.files import Format
from tritonpy_backend_tensorflow.graph import Graph
from tritonpy_backend_tensorflow.tensor_info import TensorInfo

_log = logging.getLogger("tritonpy.backend.tensorflow")


def is_complete(config: JsonObject) -> bool:
    """True if there is nothing to fill in: a GraphDef's configuration with inputs and outputs."""
    is_graph_def = config.get("platform") == Format.GRAPH_DEF
    return is_graph_def and bool(config.get("input")) and bool(config.get("output"))


def complete_config(config: JsonObject, graph: Graph, batch_size: int) -> JsonObject | None:
    """Return a copy of `config` with batching, inputs and outputs filled in; see `plugin.complete_config`.

    Inputs that are not listed are added, and tensors that are listed without datatype or dims get them. Of
    outputs all are listed, or those that the configuration lists.

    Args:
        config: what there is.
        graph: the loaded model.
        batch_size: 0 leaves models unbatched that do not ask.

    Returns:
        None where the files say too little.

    Raises:
        TritonError: the configuration asks for batches that the model cannot form, or contradicts itself.
    """
    name = config["name"]
    if not graph.has_signature and not (_says_enough(graph.inputs) and _says_enough(graph.outputs)):
        _log.warning(
            "model '%s': the graph does not say of which types and shapes inputs and outputs are, so that "
            "its configuration has to; a SavedModel says it",
            name,
        )
        return None
    inputs = _described(config, "input", graph.inputs.values())
    outputs = _described(config, "output", graph.outputs.values())
    server_s = {tensor.name for tensor in (*given_inputs(config), *kept_outputs(config))}
    rows = [tensor for tensor in (*inputs, *outputs) if tensor.name not in server_s]
    size = int(config.get("max_batch_size", 0))
    if size > 0 and not can_batch(rows):
        raise Internal(
            f"unable to autofill for '{name}', configuration specified max-batch {size} but model signature "
            "does not support batching"
        )
    if size == 0 and can_batch(rows):
        _check_hints(config, {"input": inputs, "output": outputs})
    completed = complete(config, inputs, outputs, batch_size=batch_size)
    batches = completed.get("max_batch_size", 0) > 0
    for key, tensors in (("input", inputs), ("output", outputs)):
        if config.get(key):
            completed[key] = _merged(config[key], tensors, server_s, batches, adds=key == "input")
    return completed


def _described(config: JsonObject, key: str, infos: Iterable[TensorInfo]) -> list[TensorInfo]:
    """The tensors that have a datatype, those of unknown rank with the dims of the configuration."""
    batches = int(config.get("max_batch_size", 0)) > 0
    listed = {tensor["name"]: tensor for tensor in config.get(key, ())}
    server_s = {tensor.name: tensor for tensor in (*given_inputs(config), *kept_outputs(config))}
    described = []
    for info in carried(config["name"], infos):
        if info.dims is None:
            tensor = listed.get(info.name, {})
            dims = tensor.get("reshape", {}).get("shape") or tensor.get("dims")
            if info.name in server_s:
                dims = server_s[info.name].dims
            if not dims:
                raise InvalidArg(
                    f"unable to autofill for '{config['name']}': the rank of model tensor '{info.name}' is "
                    "0 which "
                    "is not supported; the model says of no dimension, so that the configuration has to"
                )
            shape = tuple(map(int, dims))
            info = TensorInfo(
                info.name,
                info.tensor,
                info.type_name,
                info.datatype,
                (-1, *shape) if batches else shape,
                info.has_default,
            )
        described.append(info)
    return described


def _check_hints(config: JsonObject, infos: Mapping[str, Sequence[TensorInfo]]) -> None:
    """Refuse dims of which some leave out the dimension of the batch and some spell it out."""
    hints = {
        len(tensor["dims"]) + 1 == len(info.shape)
        for key, described in infos.items()
        for tensor in config.get(key, ())
        for info in described
        if tensor["name"] == info.name and tensor.get("dims") and "reshape" not in tensor
    }
    if len(hints) > 1:
        raise Internal(
            f"unable to autofill for '{config['name']}', model tensor configurations are contradicting each "
            "other in terms of whether batching is supported"
        )


def _merged(
    listed: Sequence[JsonObject],
    infos: Sequence[TensorInfo],
    server_s: Iterable[str],
    batches: bool,
    *,
    adds: bool,
) -> list[JsonObject]:
    """The listed tensors with what they leave out, and behind them those that are not listed."""
    by_name = {info.name: info for info in infos}
    merged = []
    for tensor in listed:
        info = by_name.pop(tensor["name"], None)
        if info is not None:
            said = {key: value for key, value in tensor.items() if value or key != "dims"}
            if said.get("data_type") not in CONFIG_DATATYPES:
                said.pop("data_type", None)
            known = tensor_config(info, batches)
            if "dims" in said:  # a reshape is that of other dims
                known.pop("reshape", None)
            tensor = known | said
        merged.append(tensor)
    if adds:
        merged += [
            tensor_config(info, batches)
            for info in by_name.values()
            if info.name not in server_s and not info.has_default
        ]
    return merged


def _says_enough(infos: Mapping[str, TensorInfo]) -> bool:
    return bool(infos) and all(info.dims is not None for info in infos.values())
