from importlib.util import find_spec

import pytest
from tritonpy_sdk.testing import BackendConformance

pytestmark = pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")


class TestTensorflow(BackendConformance, backend="tensorflow", models="tests/models"): ...
