"""What comes of calls of `triton_python_backend_utils`, described so that both servers can say the same."""

import enum
import re
import textwrap
import warnings

import numpy as np
import triton_python_backend_utils as pb_utils


class Idx:
    """A number to `operator.index` only."""

    def __init__(self, value):
        self.value_ = value

    def __index__(self):
        return self.value_


class Flt:
    """A number to `float` only."""

    def __float__(self):
        return 1.5


class Sub(str):
    """A text of another type."""

    __slots__ = ()


class E(enum.IntEnum):
    """A number of another type."""

    A = 1


def T(name="X"):
    return pb_utils.Tensor(name, np.array([1, 2], np.float32))


def R(**arguments):
    return pb_utils.InferenceRequest(
        **{"model_name": "m", "inputs": [T()], "requested_output_names": ["Y"], **arguments}
    )


def outcomes(request, calls):
    """The value or the exception of each call: statements, the last of which is an expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [_outcome(request, call) for call in calls]


def _outcome(request, call):
    *statements, expression = call.split("\n")
    body = textwrap.indent("\n".join([*statements, f"return ({expression})"]), "    ")
    names = {**globals(), "request": request}
    try:
        exec(f"def call():\n{body}", names)
        return _shown(names["call"]())
    except TypeError:  # whose text is of the binding
        return "TypeError"
    except Exception as error:
        return re.sub(r"c_python_backend_utils\.", "", f"{type(error).__name__}: {error}")


def _shown(value):
    kind = type(value)
    if isinstance(value, pb_utils.Tensor):
        return f"Tensor({value.name()})"
    if kind in (list, tuple):
        return f"{kind.__name__}({', '.join(map(_shown, value))})"
    if kind is set:
        return f"set({sorted(value)})"
    if isinstance(value, np.ndarray):
        return f"array({value.dtype}, {value.tolist()})"
    if isinstance(value, np.generic):
        return f"{kind.__name__.rstrip('_')} {value.item()!r}"
    if isinstance(value, type):
        return value.__name__.rstrip("_")
    if kind.__module__ == "builtins" and not callable(value):
        return f"{kind.__name__} {value!r}"
    if hasattr(value, "name") and hasattr(value, "value"):
        return f"{value.name}({int(value)})"
    return getattr(value, "__name__", kind.__name__)
