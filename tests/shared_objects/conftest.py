"""Shared objects for servers, compiled from the sources of the tests of tritonpy-abi."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient
from tritonpy_sdk.testing import SharedObjects

SOURCES = Path(__file__).parents[2] / "plugins/abi/tests/csrc"
KEPT = Path(__file__).parents[2] / ".cache/shared-objects"

Compiled = SharedObjects


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return SharedObjects(SOURCES, tmp_path_factory.mktemp("compiled"), KEPT)


@pytest.fixture
def ports(served: tuple[dict[str, int], Path]) -> dict[str, int]:
    """Those of a module's fixture `served`, by protocol."""
    return served[0]


@pytest.fixture
def client(ports: dict[str, int]) -> Iterator[grpcclient.InferenceServerClient]:
    with grpcclient.InferenceServerClient(f"127.0.0.1:{ports['grpc']}") as made:
        yield made


@pytest.fixture(params=["", "_here"], ids=["worker", "thread"])
def where(request: pytest.FixtureRequest) -> str:
    """What the name of a model ends with that runs there; on the real one both are the same."""
    place: str = request.param
    return place
