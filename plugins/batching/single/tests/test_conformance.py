from __future__ import annotations

from collections.abc import Sequence

from tritonpy_sdk.testing import StrategyConformance, WaitingRequest


class TestSingle(StrategyConformance, strategy="single"):
    def may_go_together(self, requests: Sequence[WaitingRequest]) -> bool:
        return len(requests) == 1
