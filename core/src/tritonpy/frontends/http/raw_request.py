"""A request whose body is the bytes of the model's only input and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tritonpy.dataplane import TensorSpec
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.frontends.http.infer import ALL_BINARY, Body, OutputForm
from tritonpy.request import InferRequest
from tritonpy.tensor import Tensor

_NO_ID = "[request id: <id_unknown>] "  # a raw request carries none


def parse_raw_request(
    body: Body, specs: Mapping[str, TensorSpec], model_name: str, model_version: str, *, is_batched: bool
) -> tuple[InferRequest, OutputForm]:
    """Read the body of a request without JSON.

    Args:
        body: the input's bytes; of BYTES the one element, without its length.
        specs: the inputs of the model.
        model_name: for the request, and for errors.
        model_version: for the request.
        is_batched: the first dimension of the input is the batch, which a raw request holds once.

    Raises:
        InvalidArg: the model has other than one input, or the bytes do not make a tensor of it.
    """
    if len(specs) != 1:
        raise InvalidArg(
            f"{_NO_ID}Raw request must only have 1 input (found 1) to be deduced but got {len(specs)} "
            f"inputs in '{model_name}' model configuration"
        )
    spec = next(iter(specs.values()))
    dims = spec.shape[1:] if is_batched else spec.shape
    if spec.datatype == "BYTES":
        if dims != (1,):
            raise InvalidArg(
                f"{_NO_ID}For BYTE datatype raw input '{spec.name}', the model must have input shape [1]"
            )
        buffer: Body = len(body).to_bytes(4, "little") + bytes(body)
    else:
        buffer = body
        dims = _deduce(spec, dims, len(body), model_name)
    tensor = Tensor(spec.name, spec.datatype, (1, *dims) if is_batched else dims, buffer)
    return InferRequest(model_name, {spec.name: tensor}, model_version=model_version), ALL_BINARY


def _deduce(spec: TensorSpec, dims: tuple[int, ...], byte_size: int, model_name: str) -> tuple[int, ...]:
    """The dimensions with the one that may vary worked out."""
    if dims.count(-1) > 1:
        raise InvalidArg(
            f"{_NO_ID}The shape of the raw input '{spec.name}' can not be deduced because there are more "
            f"than one variable-sized dimension"
        )
    known = prod(dim for dim in dims if dim != -1) * DATATYPES[spec.datatype].byte_size
    variable = byte_size // known if known else 0
    expected = known * variable if -1 in dims else known
    if byte_size != expected:
        raise InvalidArg(
            f"{_NO_ID}input byte size mismatch for input 'raw_input' for model '{model_name}'. "
            f"Expected {expected}, got {byte_size}"
        )
    return tuple(variable if dim == -1 else dim for dim in dims)
