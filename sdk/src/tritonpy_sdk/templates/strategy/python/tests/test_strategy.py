"""The batches that the strategy xyz forms, without a server."""

from __future__ import annotations

from collections.abc import Sequence

import tritonpy_batching_xyz
from tritonpy_sdk.testing import StrategyConformance, WaitingRequest, open_strategy


def of(adapter: str) -> WaitingRequest:
    return WaitingRequest(parameters={"adapter": adapter})


class TestRules(StrategyConformance, strategy=tritonpy_batching_xyz):
    """What all strategies have in common; a test that fails says what to do."""

    def make_requests(self) -> list[WaitingRequest]:
        return [of(adapter) for adapter in ("french", "french", "german", "greek", "greek", "greek")]

    def may_go_together(self, requests: Sequence[WaitingRequest]) -> bool:
        return len({request.parameters["adapter"] for request in requests}) == 1


def test_requests_for_one_adapter_run_together() -> None:
    with open_strategy(tritonpy_batching_xyz) as strategy:
        batches = strategy.batches([of("french"), of("french"), of("german"), of("french")])

    assert batches == [[of("french")] * 2, [of("german")], [of("french")]]
