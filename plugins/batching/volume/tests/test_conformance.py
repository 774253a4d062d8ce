from __future__ import annotations

from collections.abc import Sequence

from tritonpy_sdk.testing import StrategyConformance, WaitingRequest


class TestVolume(
    StrategyConformance,
    strategy="volume",
    parameters={"MAX_BATCH_VOLUME_BYTES": "21"},
    wrong_parameters=[{}, {"MAX_BATCH_VOLUME_BYTES": "much"}, {"MAX_BATCH_VOLUME_BYTES": "0"}],
):
    def may_go_together(self, requests: Sequence[WaitingRequest]) -> bool:
        return sum(request.shape[1] for request in requests) <= 21
