"""A model instance of a built-in backend without a server around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest
from tritonpy.handles import Backend, JsonObject, Model, ModelInstance
from tritonpy.plugin_manager import PluginManager
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor


class Mailbox:
    """Takes what a backend answers through `respond`, from any thread."""

    def __init__(self) -> None:
        self._answers: SimpleQueue[tuple[InferRequest, InferResponse | None, bool]] = SimpleQueue()
        self._held: dict[int, Event] = {}

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        held = self._held.get(id(request))
        if held is not None:
            held.wait(timeout=30)
        self._answers.put((request, response, final))

    def hold(self, request: InferRequest) -> Event:
        """Block whoever answers this request, as a slow client does, until the event is set."""
        return self._held.setdefault(id(request), Event())

    def take(self) -> tuple[InferRequest, InferResponse | None, bool]:
        return self._answers.get(timeout=30)

    def take_until_final(self) -> list[InferResponse | None]:
        responses = []
        final = False
        while not final:
            _, response, final = self.take()
            responses.append(response)
        return responses

    def count(self) -> int:
        return self._answers.qsize()


class Slot:
    """One loaded instance of a built-in backend, reached through its entry point."""

    def __init__(self, backend: str, config: JsonObject, index: int, directory: Path) -> None:
        manager = PluginManager("backends")
        plugin = manager.load(backend)
        model = Model(config["name"], 1, config, directory, Backend(backend))
        self.handle = ModelInstance(f"{model.name}_0_{index}", index, "KIND_CPU", 0, model)
        self.mailbox = Mailbox()
        self._requests: list[InferRequest] = []
        self._execute = manager.bind(plugin, "model_instance_execute")
        self._finalize = manager.bind(plugin, "model_instance_finalize")
        for hook, argument in (("model_initialize", model), ("model_instance_initialize", self.handle)):
            bound = manager.bind(plugin, hook)
            assert bound is not None
            bound(argument)

    def request(self, *tensors: Tensor, **attributes: Any) -> InferRequest:  # Any: attributes differ in type
        request = InferRequest(
            self.handle.model.name, {tensor.name: tensor for tensor in tensors}, **attributes
        )
        request.ticket.outbox = self.mailbox
        self._requests.append(request)
        return request

    def execute(self, *requests: InferRequest) -> list[InferResponse]:
        assert self._execute is not None
        responses: list[InferResponse] = self._execute(self.handle, list(requests))
        for request in requests if responses is not None else ():
            request.ticket.outbox = None
        return responses

    def cancel_all(self) -> None:
        for request in self._requests:
            request.cancel()

    def finalize(self) -> None:
        if self._finalize is not None:
            self._finalize(self.handle)


StartSlot = Callable[..., Slot]


@pytest.fixture
def start_slot(tmp_path: Path) -> Iterator[StartSlot]:
    """Loads an instance; the test's instances are finalised when it is over."""
    slots = []

    def start(backend: str, config: JsonObject, index: int = 0) -> Slot:
        slot = Slot(backend, config, index, tmp_path)
        slots.append(slot)
        return slot

    yield start
    for slot in slots:
        slot.cancel_all()  # a failed test leaves requests whose delays nobody wants to wait for
        slot.finalize()
