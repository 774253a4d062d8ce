"""The batches that the strategy xyz forms, without a server."""

from __future__ import annotations

import tritonpy_batching_xyz
from tritonpy_sdk.testing import WaitingRequest, open_strategy


def of(adapter: str) -> WaitingRequest:
    return WaitingRequest(parameters={"adapter": adapter})


def test_requests_for_one_adapter_run_together() -> None:
    with open_strategy(tritonpy_batching_xyz) as strategy:
        batches = strategy.batches([of("french"), of("french"), of("german"), of("french")])

    assert batches == [[of("french")] * 2, [of("german")], [of("french")]]
