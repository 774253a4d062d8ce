"""The batches that the strategy xyz forms, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy_sdk.testing import WaitingRequest, compile_shared_object, open_strategy


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("xyz")
    return compile_shared_object(Path(__file__).with_name("strategy.cc"), directory / "xyz.so")


def of(tenant: str) -> WaitingRequest:
    return WaitingRequest(parameters={"tenant": tenant})


def test_tenants_do_not_share_a_batch(library: Path) -> None:
    with open_strategy(library) as strategy:
        batches = strategy.batches([of("anna"), of("anna"), of("bert"), of("anna")])

    assert batches == [[of("anna")] * 2, [of("bert")], [of("anna")]]


def test_requests_for_nobody_are_kept_apart_too(library: Path) -> None:
    nobody = WaitingRequest()
    with open_strategy(library, {"TENANT_PARAMETER": "tenant"}) as strategy:
        assert strategy.batches([of("anna"), nobody, nobody]) == [[of("anna")], [nobody] * 2]
