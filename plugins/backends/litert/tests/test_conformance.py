from importlib.util import find_spec

import pytest
from tritonpy_sdk.testing import BackendConformance

pytestmark = pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed")


class TestLitert(BackendConformance, backend="litert", models="tests/models"): ...
