"""Conformance suites for plugins; needs pytest, which `tritonpy-sdk[testing]` brings."""

import pytest

# Before the modules below are imported: a failed assertion then shows the values it compared.
pytest.register_assert_rewrite(
    "tritonpy_sdk.testing.conformance", "tritonpy_sdk.testing.driver", "tritonpy_sdk.testing.outputs"
)

from tritonpy_sdk.testing.conformance import BackendConformance  # noqa: E402
from tritonpy_sdk.testing.driver import Answer, BackendDriver, DrivenModel  # noqa: E402

__all__ = ["Answer", "BackendConformance", "BackendDriver", "DrivenModel"]
