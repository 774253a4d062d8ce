"""Show the outputs of a model to a person or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tritonpy.tensor import Array, Tensor


@dataclass(frozen=True, slots=True)
class Reply:
    """One response of a server, over any protocol."""

    model_name: str
    model_version: str
    outputs: Sequence[Tensor]
    parameters: Mapping[str, object] = field(default_factory=dict)


def as_text(reply: Reply) -> str:
    """A heading, then each output with datatype, shape and values; long ones are cut in the middle."""
    lines = [f"{reply.model_name} version {reply.model_version}"]
    if reply.parameters:
        lines.append(f"parameters {json.dumps(dict(reply.parameters))}")
    for tensor in reply.outputs:
        shape = ",".join(map(str, tensor.shape))
        lines += [f"{tensor.name} {tensor.datatype} [{shape}]", f"  {_values(tensor)}"]
    return "\n".join(lines)


def as_json(reply: Reply) -> str:
    """The response as the protocol would write it with all data in JSON, plus BF16 and FP16 as numbers."""
    document: dict[str, object] = {"model_name": reply.model_name, "model_version": reply.model_version}
    if reply.parameters:
        document["parameters"] = dict(reply.parameters)
    document["outputs"] = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.shape),
            "data": _readable(tensor).reshape(-1).tolist(),
        }
        for tensor in reply.outputs
    ]
    return json.dumps(document)


def _values(tensor: Tensor) -> str:
    text = np.array2string(_readable(tensor), threshold=200, max_line_width=100, separator=", ", prefix="  ")
    return text.replace("\n", "\n  ") if tensor.datatype == "BYTES" else text


def _readable(tensor: Tensor) -> Array:
    array = tensor.numpy()
    if tensor.datatype == "BF16":
        return (array.astype("<u4") << 16).view("<f4")
    if tensor.datatype == "BYTES":
        texts = np.empty(array.shape, object)
        texts.reshape(-1)[:] = [element.decode(errors="backslashreplace") for element in array.reshape(-1)]
        return texts
    return array
