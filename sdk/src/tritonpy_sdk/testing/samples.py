"""Requests with made-up contents that fit a model's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tritonpy.datatypes import CONFIG_DATATYPES, DATATYPES
from tritonpy.handles import JsonObject
from tritonpy.request import InferRequest
from tritonpy.tensor import Array, Tensor

FREE_DIMENSION = 2
"""What a dimension of any size becomes."""


def sample_array(datatype: str, shape: Sequence[int], random: np.random.Generator) -> Array:
    """Make elements of one datatype: small whole numbers, normal floats, short texts.

    Whole numbers are 0 or 1, so that they may also be indices or lengths. BF16 comes as raw bits.
    """
    if datatype == "BYTES":
        words = np.array([b"", b"a", b"triton", "grüße".encode()], object)
        return words[random.integers(0, len(words), shape)]
    if datatype == "BF16":
        bits = random.standard_normal(shape).astype("<f4").view("<u4") >> 16
        return bits.astype("<u2")
    dtype = DATATYPES[datatype].numpy
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 2, shape).astype(dtype)


def sample_inputs(config: JsonObject, row_count: int, random: np.random.Generator) -> dict[str, Array]:
    """Make every input of a model, also the optional ones.

    Args:
        config: the model's settled configuration.
        row_count: size of the batch dimension; ignored by models that do not batch.
        random: where the contents come from.
    """
    lead = (row_count,) if config["max_batch_size"] > 0 else ()
    return {
        tensor["name"]: sample_array(
            CONFIG_DATATYPES[tensor["data_type"]].name,
            (*lead, *(FREE_DIMENSION if dim == -1 else dim for dim in map(int, tensor["dims"]))),
            random,
        )
        for tensor in config["input"]
    }


def build_request(
    config: JsonObject, arrays: Mapping[str, Array], requested_outputs: tuple[str, ...] | None = None
) -> InferRequest:
    """Make the request that a server would hand to the backend, its inputs in wire form."""
    datatypes = {tensor["name"]: CONFIG_DATATYPES[tensor["data_type"]].name for tensor in config["input"]}
    inputs = {
        name: Tensor(
            name,
            datatypes[name],
            array.shape,
            # Writable on purpose: whether the backend writes to it is one of the questions.
            bytearray(Tensor.from_numpy(name, array, datatypes[name]).wire()),
        )
        for name, array in arrays.items()
    }
    request = InferRequest(config["name"], inputs, id="sample", requested_outputs=requested_outputs)
    if config["max_batch_size"] > 0 and arrays:
        request.batch_size = max(1, next(iter(arrays.values())).shape[0])
    return request
