from tritonpy_sdk.testing import BackendConformance


class TestOnnx(BackendConformance, backend="onnxruntime", models="tests/models"): ...
