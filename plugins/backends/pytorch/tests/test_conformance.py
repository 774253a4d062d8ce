import pytest
from tritonpy_sdk.testing import BackendConformance

pytest.importorskip("torch")


class TestPytorch(BackendConformance, backend="pytorch", models="tests/models"): ...
