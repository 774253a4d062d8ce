"""Check of a complete configuration against the inputs and outputs of a model file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tritonpy.plugin import (
    DATATYPES,
    GivenTensor,
    Internal,
    InvalidArg,
    JsonObject,
    check_datatype,
    check_dims,
    given_inputs,
    kept_outputs,
)

from tritonpy_backend_litert.signature import Signature, TensorInfo


def check_tensors(config: JsonObject, signature: Signature) -> frozenset[str]:
    """Compare a complete configuration with a model; outputs that are not configured are not read.

    Returns:
        The names of scalars: a configuration has a dimension for each.

    Raises:
        TritonError: they do not fit, in Triton's words.
    """
    inputs, outputs = config.get("input", []), config.get("output", [])
    given = given_inputs(config)
    for tensor in given:
        _check_given(config, "input", tensor, signature.inputs)
    count = len({*(tensor["name"] for tensor in inputs), *(tensor.name for tensor in given)})
    if count != len(signature.inputs):
        raise InvalidArg(
            f"unable to load model '{config['name']}', configuration expects {count} inputs, model provides "
            f"{len(signature.inputs)}"
        )
    for tensor in inputs:
        if tensor.get("optional", False):
            raise InvalidArg(
                f"unable to load model '{config['name']}', optional input '{tensor['name']}' is required by "
                "the model: LiteRT runs a model with all of its inputs"
            )
    for tensor in kept_outputs(config):
        _check_given(config, "output", tensor, signature.outputs)
    checked = [
        *_check(config, "input", inputs, signature.inputs),
        *_check(config, "output", outputs, signature.outputs),
    ]
    return frozenset(info.name for info in checked if not info.shape)


def _check(
    config: JsonObject, kind: str, tensors: Sequence[JsonObject], infos: Mapping[str, TensorInfo]
) -> list[TensorInfo]:
    model_name = config["name"]
    max_batch_size = int(config.get("max_batch_size", 0))
    cut = {name for batch_output in config.get("batch_output", ()) for name in batch_output["target_name"]}
    checked = []
    for tensor in tensors:
        name = tensor["name"]
        if name not in infos:
            raise InvalidArg(
                f"unexpected inference {kind} '{name}', allowed {kind}s are: {', '.join(sorted(infos))}"
            )
        info = infos[name]
        checked.append(info)
        check_datatype(model_name, kind, tensor["data_type"], info)
        reshape = tensor.get("reshape")
        dims = [int(dim) for dim in (tensor["dims"] if reshape is None else reshape.get("shape", ()))]
        if tensor.get("allow_ragged_batch", False):
            if info.shape != (-1,):
                raise InvalidArg(
                    f"unable to load model '{model_name}', configuration expects model provides input with "
                    f"shape [-1] for ragged input '{name}', model provides [{','.join(map(str, info.shape))}]"
                )
        elif kind == "output" and name in cut:
            pass  # its shape in the model is no client's
        elif info.shape or max_batch_size or any(dim != 1 for dim in dims):
            check_dims(model_name, info, dims, max_batch_size)
    return checked


def _check_given(config: JsonObject, kind: str, tensor: GivenTensor, infos: Mapping[str, TensorInfo]) -> None:
    """Compare a tensor that the server gives or keeps by itself."""
    model_name = config["name"]
    info = infos.get(tensor.name)
    if info is None:
        raise Internal(
            f"configuration specified {tensor.role} '{tensor.name}', but model does not provide that {kind}"
        )
    what = f"{kind} state" if tensor.role == "state" else tensor.role
    check_datatype(model_name, what, DATATYPES[tensor.datatype].config_name, info)
    is_batch_input = tensor.role == "batch input"  # what is counted may have any size, and has no batch
    if not is_batch_input or len(info.shape) != len(tensor.dims):
        max_batch_size = 0 if is_batch_input else int(config.get("max_batch_size", 0))
        check_dims(model_name, info, tensor.dims, max_batch_size)
