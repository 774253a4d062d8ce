"""Requirements on the outputs of a response."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tritonpy.datatypes import CONFIG_DATATYPES
from tritonpy.handles import JsonObject
from tritonpy.response import InferResponse
from tritonpy.tensor import Array, Tensor


def check_fits(response: InferResponse, config: JsonObject, row_count: int, *, is_decoupled: bool) -> None:
    """Check names, datatypes, shapes and byte sizes against the configuration.

    Args:
        response: without error.
        config: the model's settled configuration.
        row_count: the request's batch dimension, which outputs must have as well unless decoupled.
        is_decoupled: a response may have any number of rows and leave outputs out.

    Raises:
        AssertionError: says which output is wrong, and how.
    """
    assert response.error is None, response.error
    configured = {output["name"]: output for output in config["output"]}
    names = [tensor.name for tensor in response.outputs]
    assert len(set(names)) == len(names), f"an output comes twice: {names}"
    if is_decoupled:
        assert set(names) <= set(configured), f"outputs {names}, configured {sorted(configured)}"
    else:
        assert set(names) == set(configured), f"outputs {names}, configured {sorted(configured)}"
    for tensor in response.outputs:
        output = configured[tensor.name]
        datatype = CONFIG_DATATYPES[output["data_type"]]
        assert tensor.datatype == datatype.name, f"{tensor} should be {datatype.name}"
        expected = [int(dim) for dim in output["dims"]]
        if config["max_batch_size"] > 0:
            expected.insert(0, -1 if is_decoupled else row_count)
        fits = len(tensor.shape) == len(expected) and all(
            want in (-1, got) for want, got in zip(expected, tensor.shape, strict=True)
        )
        assert fits, f"{tensor} should have shape {expected}"
        if datatype.byte_size:
            size, wanted = len(bytes(tensor.wire())), tensor.element_count * datatype.byte_size
            assert size == wanted, f"{tensor} has {size} bytes; it should have {wanted}"


def check_same(got: Sequence[Tensor], expected: Sequence[Tensor], relative: float, absolute: float) -> None:
    """Check that two responses carry the same outputs; floats may differ by the tolerances.

    Raises:
        AssertionError: says where they differ.
    """
    others = {tensor.name: tensor for tensor in expected}
    names = sorted(tensor.name for tensor in got)
    assert names == sorted(others), f"outputs {names}; alone the request got {sorted(others)}"
    for tensor in got:
        other = others[tensor.name]
        assert tensor.datatype == other.datatype, f"{tensor} and {other}"
        assert tuple(tensor.shape) == tuple(other.shape), f"{tensor} and {other}"
        one, two = _comparable(tensor), _comparable(other)
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, two, relative, absolute, err_msg=f"output '{tensor.name}'")
        else:
            np.testing.assert_array_equal(one, two, err_msg=f"output '{tensor.name}'")


def frozen(response: InferResponse) -> list[tuple[str, bytes]]:
    """A copy of all output bytes."""
    # Through the elements each time: the wire form of a tensor is made once and then kept.
    return [
        (tensor.name, bytes(Tensor.from_numpy(tensor.name, tensor.numpy(), tensor.datatype).wire()))
        for tensor in response.outputs
    ]


def _comparable(tensor: Tensor) -> Array:
    array = tensor.numpy()
    if tensor.datatype == "BF16":
        return (array.astype("<u4") << 16).view("<f4")
    return array
