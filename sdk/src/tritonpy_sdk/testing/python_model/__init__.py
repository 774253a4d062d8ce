"""Python models in tests: loaded in the test's own process, called with arrays, checked as by a server."""

from tritonpy_sdk.testing.python_model.arrays import ModelWarning, Outputs
from tritonpy_sdk.testing.python_model.model import (
    ModelRequest,
    PythonModel,
    ResponseStream,
    load_python_model,
)

__all__ = [
    "ModelRequest",
    "ModelWarning",
    "Outputs",
    "PythonModel",
    "ResponseStream",
    "load_python_model",
]
