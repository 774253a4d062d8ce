"""A request whose body is the bytes of the model's only input and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from tritonpy.dataplane import TensorSpec
from tritonpy.frontends.http.infer import ALL_BINARY, Body, OutputForm
from tritonpy.raw_input import raw_tensor
from tritonpy.request import InferRequest


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
    tensor = raw_tensor(body, specs, model_name, is_batched=is_batched)
    return InferRequest(model_name, {tensor.name: tensor}, model_version=model_version), ALL_BINARY
