from __future__ import annotations

from collections.abc import Sequence

from tritonpy_sdk.testing import StrategyConformance, WaitingRequest


class TestPad(StrategyConformance, strategy="pad", max_batch_size=8):
    def may_go_together(self, requests: Sequence[WaitingRequest]) -> bool:
        return True
