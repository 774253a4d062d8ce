"""BYTES tensors on their way into ONNX Runtime, which knows only UTF-8 text."""

from __future__ import annotations

import numpy as np
from tritonpy.plugin import Array, InvalidArg


def decode_strings(array: Array, name: str, model_name: str) -> Array:
    """Return an object array of `str`, the one form that ONNX Runtime reads right.

    Given `bytes` objects it would store their `repr`, and it reads past the end of fixed-size byte strings.

    Raises:
        InvalidArg: an element is not UTF-8.
    """
    elements = array.reshape(-1).tolist()
    decoded = np.empty(len(elements), object)
    for index, element in enumerate(elements):
        try:
            decoded[index] = element.decode() if isinstance(element, bytes) else str(element)
        except UnicodeDecodeError as exc:
            raise InvalidArg(
                f"input '{name}' of model '{model_name}': string element {index} is not UTF-8, "
                f"and ONNX Runtime takes no other: {exc}"
            ) from exc
    return decoded.reshape(array.shape)
