"""The way of a decoupled request's responses from a thread of this process to the loop."""

from __future__ import annotations

import threading

from tritonpy.ipc.window import Permission, SendWindow
from tritonpy.model.bridge import LoopBridge
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse


class StreamOutbox:
    """Takes the responses of one request; its thread waits in `post` for a client that is slow.

    Satisfies `Outbox`.

    Args:
        bridge: brings them to the loop.
    """

    __slots__ = ("_bridge", "_window")

    def __init__(self, bridge: LoopBridge) -> None:
        self._bridge = bridge
        self._window = SendWindow()

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        window = self._window
        if final:
            window.end()
            self._bridge.post(request, response, True)
            return
        window.wait()
        self._bridge.post(request, response, False)
        byte_size = sum(tensor.byte_size for tensor in response.outputs) if response is not None else 0
        window.sent(byte_size, lambda: self._ask(request))

    def _ask(self, request: InferRequest) -> Permission:
        permission = threading.Event()
        self._bridge.call(_when_open, request, permission)
        return permission


def _when_open(request: InferRequest, permission: threading.Event) -> None:
    request.response_flow().when_open(permission.set)
