"""The end of a server on grpcio."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


@pytest.mark.parametrize("comes", [True, False])
def test_stop_waits_for_what_grpcio_still_has_to_say_of_calls(
    harness: Any, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    monkeypatch.setattr("tritonpy.frontends.grpc.grpcio.server._LAST_EVENTS_S", 20 if comes else 0.01)

    async def stop() -> bool:
        word = asyncio.Event()
        call = asyncio.create_task(word.wait(), name="rpc_task")
        stopping = asyncio.create_task(harness.server.stop(0))
        if comes:
            asyncio.get_running_loop().call_later(0.1, word.set)
        await stopping
        has_ended = call.done()
        word.set()
        return has_ended

    assert harness.run(stop()) is comes
