"""Streams that tests feed request by request, and the responses in them."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
from tritonpy.response import InferResponse

FINAL = "triton_final_response"


class Stream:
    """A stream whose requests are sent one by one."""

    def __init__(self, stub: Any, **options: Any) -> None:
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.call = stub.ModelStreamInfer(self._requests(), **{"timeout": 30, **options})

    def send(self, *messages: Any) -> None:
        for message in messages:
            self._outgoing.put(message)

    def half_close(self) -> None:
        self._outgoing.put(None)

    def receive(self) -> Any:
        return next(self.call)

    def rest(self) -> list[Any]:
        return list(self.call)

    def _requests(self) -> Iterator[Any]:
        while (message := self._outgoing.get()) is not None:
            yield message


def numbers(*values: float) -> InferResponse:
    return InferResponse().add("OUTPUT0", np.array(values, np.float32))


def deliver(harness: Any, id: str, *responses: InferResponse | None, final: bool = True) -> None:
    """Answer the request with this id; the last response is final if `final`."""
    request = next(request for request in harness.dataplane.requests if request.id == id)

    def deliver_all() -> None:
        for index, response in enumerate(responses):
            request.deliver(response, final and index == len(responses) - 1)

    harness.call(deliver_all)


def described(message: Any) -> tuple[str, str, str, bool | None]:
    response = message.infer_response
    flag = response.parameters[FINAL].bool_param if FINAL in response.parameters else None
    return message.error_message, response.id, response.model_name, flag
