"""Shared objects for servers, compiled from the sources of the tests of tritonpy-abi."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy_sdk.testing import SharedObjects

SOURCES = Path(__file__).parents[2] / "plugins/abi/tests/csrc"

Compiled = SharedObjects


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return SharedObjects(SOURCES, tmp_path_factory.mktemp("compiled"))
