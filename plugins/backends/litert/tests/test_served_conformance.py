from importlib.util import find_spec

import pytest
from tritonpy_sdk.testing.served import ServedBackendConformance

pytestmark = [
    pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed"),
    pytest.mark.stress,  # many workers
]


class TestLitertServed(ServedBackendConformance, backend="litert", models="tests/models"): ...
