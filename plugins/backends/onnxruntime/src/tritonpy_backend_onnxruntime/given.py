"""Check of the tensors that the server gives to a model, and those it keeps, against the model's file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tritonpy.plugin import (
    DATATYPES,
    GivenTensor,
    Internal,
    InvalidArg,
    JsonObject,
    check_datatype,
    check_dims,
)

from tritonpy_backend_onnxruntime.tensor_info import TensorInfo


def check_given(
    config: JsonObject, kind: str, tensors: Iterable[GivenTensor], infos: Mapping[str, TensorInfo]
) -> None:
    """Compare controls and states of sequences and batch inputs with the model.

    Args:
        config: of the model.
        kind: `input` or `output`.
        tensors: what the server gives or keeps.
        infos: what the model has, by name.

    Raises:
        TritonError: they do not fit; where Triton compares them, too, in its words.
    """
    model_name = config["name"]
    max_batch_size = int(config.get("max_batch_size", 0))
    for tensor in tensors:
        info = infos.get(tensor.name)
        if info is None:
            raise Internal(
                f"configuration specified {tensor.role} '{tensor.name}', but model does not provide that "
                f"{kind}"
            )
        if tensor.role == "sequence control":
            _check_control(model_name, tensor, info, max_batch_size > 0)
            continue
        configured = DATATYPES[tensor.datatype].config_name
        if tensor.role == "state":
            check_datatype(model_name, f"{kind} state", configured, info)
            check_dims(model_name, info, tensor.dims, max_batch_size)
        else:
            check_datatype(model_name, tensor.role, configured, info)
            has_rank = len(info.shape) == len(tensor.dims)
            check_dims(model_name, info, (-1, *info.shape[1:]) if has_rank else tensor.dims, 0)


def _check_control(model_name: str, control: GivenTensor, info: TensorInfo, batches: bool) -> None:
    where = f"unable to load model '{model_name}', sequence control '{control.name}'"
    shape = info.shape[1:] if batches else info.shape
    if shape != (1,):
        raise InvalidArg(f"{where} in model has dims [{','.join(map(str, shape))}] but dims [1] is expected")
    if control.datatype != info.datatype:
        raise InvalidArg(
            f"{where}, the model expects data-type {info.datatype or info.type_name} but the model "
            f"configuration specifies data-type {DATATYPES[control.datatype].config_name}"
        )
