from importlib.util import find_spec

import pytest
from tritonpy_sdk.testing.served import ServedBackendConformance

pytestmark = [
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
    pytest.mark.stress,  # each of many workers imports TensorFlow
]


class TestTensorflowServed(ServedBackendConformance, backend="tensorflow", models="tests/models"): ...
