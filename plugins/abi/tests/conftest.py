"""Shared objects for tests, compiled from `csrc/` where there is a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy_abi import build
from tritonpy_sdk.testing import SharedObjects

SOURCES = Path(__file__).parent / "csrc"
KEPT = Path(__file__).parents[3] / ".cache/shared-objects"

Compiled = SharedObjects


@pytest.fixture
def library() -> Path:
    """The library of this installation; what asks for it is skipped where no compiler has made it."""
    found = build.library()
    if not found.is_file():
        pytest.skip("tritonpy-abi has no library: there was no C++ compiler when it was installed")
    return found


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return SharedObjects(SOURCES, tmp_path_factory.mktemp("compiled"), KEPT)
