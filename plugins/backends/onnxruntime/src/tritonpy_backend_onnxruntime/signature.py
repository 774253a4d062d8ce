"""What an ONNX model takes and gives, and whether a configuration fits it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tritonpy.plugin import CONFIG_DATATYPES, DATATYPES, InvalidArg, JsonObject, Unsupported, check_dims

Shape = tuple[int, ...]

_DATATYPES = {
    f"tensor({onnx})": name
    for onnx, name in {
        "bool": "BOOL",
        "uint8": "UINT8",
        "uint16": "UINT16",
        "uint32": "UINT32",
        "uint64": "UINT64",
        "int8": "INT8",
        "int16": "INT16",
        "int32": "INT32",
        "int64": "INT64",
        "float16": "FP16",
        "float": "FP32",
        "double": "FP64",
        "string": "BYTES",
        "bfloat16": "BF16",
    }.items()
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output as the model file describes it.

    Attributes:
        name: its name.
        onnx_type: ONNX's word for its type, such as `tensor(float)`.
        datatype: the protocol's, or "" for what the protocol cannot carry (sequences, maps, complex numbers).
        shape: -1 for a dimension of any size; empty for a scalar.
    """

    name: str
    onnx_type: str
    datatype: str
    shape: Shape


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


@dataclass(frozen=True, slots=True)
class Binding:
    """One configured input or output and how its shape changes between client and model.

    Attributes:
        name: its name.
        datatype: the protocol's.
        client: configured dims, without the batch dimension.
        model: the model's dims, without the batch dimension, when they are not the client's.
        batches: a batch dimension leads.
    """

    name: str
    datatype: str
    client: Shape
    model: Shape | None
    batches: bool

    def to_model(self, shape: Shape) -> Shape:
        """The shape the model wants for a tensor that came with `shape`."""
        return shape if self.model is None else self._moved(shape, self.client, self.model)

    def to_client(self, shape: Shape) -> Shape:
        """The shape the client wants for a tensor that the model gave with `shape`."""
        return shape if self.model is None else self._moved(shape, self.model, self.client)

    def _moved(self, shape: Shape, source: Shape, target: Shape) -> Shape:
        lead, rest = (shape[:1], shape[1:]) if self.batches else ((), shape)
        free = [size for size, dim in zip(rest, source, strict=False) if dim == -1]
        return lead + tuple(free.pop(0) if dim == -1 and free else dim for dim in target)


def read_signature(session: Any) -> ModelSignature:  # Any: onnxruntime is untyped
    """Read inputs and outputs from an `InferenceSession`."""
    return ModelSignature(
        tuple(map(_tensor_info, session.get_inputs())),
        tuple(map(_tensor_info, session.get_overridable_initializers())),
        tuple(map(_tensor_info, session.get_outputs())),
    )


def bind_tensors(
    config: JsonObject, signature: ModelSignature
) -> tuple[tuple[Binding, ...], tuple[Binding, ...]]:
    """Compare a complete configuration with the model and return the bindings of its inputs and outputs.

    Outputs of the model that are not configured are never computed.

    Raises:
        InvalidArg: they do not fit, in Triton's words.
        Unsupported: the configuration or the model uses what this backend does not do.
    """
    name = config["name"]
    inputs, outputs = config.get("input", []), config.get("output", [])
    if config.get("batch_input") or config.get("batch_output"):
        raise Unsupported(
            f"model '{name}': backend 'onnxruntime' does not support batch_input and batch_output"
        )
    defaulted = {tensor.name for tensor in signature.overridable}
    required_count = sum(tensor["name"] not in defaulted for tensor in inputs)
    if required_count != len(signature.inputs):
        raise InvalidArg(
            f"unable to load model '{name}', configuration expects {required_count} inputs, "
            f"model provides {len(signature.inputs)}"
        )
    return (
        _bind(config, "input", inputs, signature.inputs + signature.overridable),
        _bind(config, "output", outputs, signature.outputs),
    )


def _bind(
    config: JsonObject, kind: str, tensors: Sequence[JsonObject], offered: Sequence[TensorInfo]
) -> tuple[Binding, ...]:
    model_name = config["name"]
    max_batch_size = int(config.get("max_batch_size", 0))
    batches = max_batch_size > 0
    infos = {info.name: info for info in offered}
    bindings = []
    for tensor in tensors:
        name = tensor["name"]
        if name not in infos:
            raise InvalidArg(
                f"unexpected inference {kind} '{name}', allowed {kind}s are: {', '.join(sorted(infos))}"
            )
        info = infos[name]
        _check_datatype(model_name, kind, tensor["data_type"], info)
        if tensor.get("allow_ragged_batch", False):
            raise Unsupported(
                f"model '{model_name}', input '{name}': backend 'onnxruntime' does not support "
                f"allow_ragged_batch"
            )
        dims = _dims(tensor["dims"])
        reshape = tensor.get("reshape")
        wanted = dims if reshape is None else _dims(reshape.get("shape", ()))
        if not info.shape and not batches and wanted == (1,):
            wanted = ()  # ONNX has scalars, configurations do not
        check_dims(model_name, info, wanted, max_batch_size)
        bindings.append(Binding(name, info.datatype, dims, None if wanted == dims else wanted, batches))
    return tuple(bindings)


def _check_datatype(model_name: str, kind: str, configured: str, info: TensorInfo) -> None:
    if not info.datatype:
        raise Unsupported(
            f"model '{model_name}': {kind} '{info.name}' has ONNX type {info.onnx_type}, "
            f"for which there is no datatype"
        )
    if CONFIG_DATATYPES[configured].name != info.datatype:
        raise InvalidArg(
            f"unable to load model '{model_name}', configuration expects datatype {configured} for {kind} "
            f"'{info.name}', model provides {DATATYPES[info.datatype].config_name}"
        )


def _tensor_info(arg: Any) -> TensorInfo:  # Any: onnxruntime's NodeArg is untyped
    # A symbolic dimension comes as text or None; a dimension of 0 in a file means "unknown" as well.
    shape = tuple(dim if isinstance(dim, int) and dim > 0 else -1 for dim in arg.shape or ())
    return TensorInfo(arg.name, arg.type, _DATATYPES.get(arg.type, ""), shape)


def _dims(dims: Iterable[int | str]) -> Shape:
    return tuple(int(dim) for dim in dims)
