import pytest
from tritonpy_sdk.testing.served import ServedBackendConformance

pytest.importorskip("torch")

pytestmark = pytest.mark.stress  # each of many workers imports PyTorch


class TestPytorchServed(ServedBackendConformance, backend="pytorch", models="tests/models"): ...
