from tritonpy_sdk.testing.served import ServedBackendConformance


class TestOnnxServed(ServedBackendConformance, backend="onnxruntime", models="tests/models"): ...
