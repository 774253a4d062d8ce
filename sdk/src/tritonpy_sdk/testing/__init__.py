"""Conformance suites for plugins; needs pytest, which `tritonpy-sdk[testing]` brings."""

import pytest

# Before the modules below are imported: a failed assertion then shows the values it compared.
pytest.register_assert_rewrite(
    *(f"tritonpy_sdk.testing.{name}" for name in ("conformance", "driver", "outputs", "served"))
)

from tritonpy_sdk.testing.conformance import BackendConformance  # noqa: E402
from tritonpy_sdk.testing.driver import Answer, BackendDriver, DrivenModel  # noqa: E402

__all__ = ["Answer", "BackendConformance", "BackendDriver", "DrivenModel"]
