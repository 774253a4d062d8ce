"""Inputs and outputs of an ONNX model, and the check of a configuration against them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tritonpy.plugin import (
    InvalidArg,
    JsonObject,
    check_datatype,
    check_dims,
    given_inputs,
    kept_outputs,
)

from tritonpy_backend_onnxruntime.given import check_given
from tritonpy_backend_onnxruntime.tensor_info import Shape, TensorInfo, tensor_info


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """The inputs and outputs of a model file, in its order.

    Attributes:
        inputs: those a request must bring.
        overridable: those with a default in the file, which a request may bring.
        outputs: all of them.
    """

    inputs: tuple[TensorInfo, ...]
    overridable: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


def read_signature(session: Any) -> ModelSignature:  # Any: onnxruntime is untyped
    """Read inputs and outputs from an `InferenceSession`."""
    return ModelSignature(
        tuple(map(tensor_info, session.get_inputs())),
        tuple(map(tensor_info, session.get_overridable_initializers())),
        tuple(map(tensor_info, session.get_outputs())),
    )


def check_tensors(config: JsonObject, signature: ModelSignature) -> frozenset[str]:
    """Compare a complete configuration with the model.

    Outputs of the model that are not configured are never computed.

    Returns:
        The names of scalars: a configuration has a dimension for each.

    Raises:
        TritonError: they do not fit, in Triton's words.
    """
    name = config["name"]
    inputs, given = config.get("input", []), given_inputs(config)
    offered = signature.inputs + signature.overridable
    check_given(config, "input", given, {info.name: info for info in offered})
    defaulted = {tensor.name for tensor in signature.overridable}
    names = [*(tensor["name"] for tensor in inputs), *(tensor.name for tensor in given)]
    required_count = sum(tensor not in defaulted for tensor in names)
    if required_count != len(signature.inputs):
        raise InvalidArg(
            f"unable to load model '{name}', configuration expects {required_count} inputs, "
            f"model provides {len(signature.inputs)}"
        )
    for tensor in inputs:
        if tensor.get("optional", False) and tensor["name"] not in defaulted:
            raise InvalidArg(
                f"unable to load model '{name}', optional input '{tensor['name']}' is required by the model: "
                f"expected an input with an initializer of the same name, which stands in for it"
            )
    check_given(config, "output", kept_outputs(config), {info.name: info for info in signature.outputs})
    return frozenset(
        info.name
        for kind, tensors, infos in (
            ("input", inputs, offered),
            ("output", config.get("output", []), signature.outputs),
        )
        for info in _check(config, kind, tensors, infos)
        if not info.shape
    )


def _check(
    config: JsonObject, kind: str, tensors: Sequence[JsonObject], offered: Sequence[TensorInfo]
) -> Iterator[TensorInfo]:
    """Compare configured tensors with those of the model; yields the latter."""
    model_name = config["name"]
    max_batch_size = int(config.get("max_batch_size", 0))
    infos = {info.name: info for info in offered}
    cut = {name for batch_output in config.get("batch_output", ()) for name in batch_output["target_name"]}
    for tensor in tensors:
        name = tensor["name"]
        if name not in infos:
            raise InvalidArg(
                f"unexpected inference {kind} '{name}', allowed {kind}s are: {', '.join(sorted(infos))}"
            )
        info = infos[name]
        check_datatype(model_name, kind, tensor["data_type"], info)
        reshape = tensor.get("reshape")
        dims = _dims(tensor["dims"] if reshape is None else reshape.get("shape", ()))
        if tensor.get("allow_ragged_batch", False):
            _check_ragged(model_name, tensor, info)
        elif kind == "output" and name in cut:
            pass  # its shape in the model is no client's
        elif info.shape or max_batch_size or any(dim != 1 for dim in dims):
            check_dims(model_name, info, dims, max_batch_size)
        yield info


def _check_ragged(model_name: str, tensor: JsonObject, info: TensorInfo) -> None:
    expected = (
        f"unable to load model '{model_name}', configuration expects model provides input with shape [-1] "
        f"for ragged input '{info.name}', "
    )
    if tensor.get("optional", False):
        raise InvalidArg(f"{expected}which is not supported for optional input")
    if info.shape != (-1,):
        raise InvalidArg(f"{expected}model provides [{','.join(map(str, info.shape))}]")


def _dims(dims: Iterable[int | str]) -> Shape:
    return tuple(int(dim) for dim in dims)
