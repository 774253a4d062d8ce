"""Servers of this folder are on grpcio."""

from __future__ import annotations

import pytest
from tritonpy.options import GrpcTransport


@pytest.fixture
def transport() -> GrpcTransport:
    return "grpcio"
