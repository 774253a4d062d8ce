"""Answers of a backend in C to its requests, made from the events that its library leaves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from itertools import count
from math import prod

from tritonpy.plugin import (
    DATATYPES,
    InferRequest,
    InferResponse,
    Internal,
    ParameterValue,
    Tensor,
    TritonError,
)

from tritonpy_abi.shim import CData, Shim
from tritonpy_abi.strategies.request_blocks import Block

_log = logging.getLogger("tritonpy.abi")

_RESPONSE, _RELEASE, _END = range(3)
"""Kinds of events."""

_NAMES = {datatype.number: name for name, datatype in DATATYPES.items()}
_INT, _BOOL, _DOUBLE = 1, 2, 3
"""Numbers of `TRITONSERVER_ParameterType`; all others are texts."""


class _Asked:
    """A request that a backend has, until it can get no more responses.

    Attributes:
        request: what is answered.
        block: what the backend sees of it, until it releases it.
        response: the one of a model that answers once, until the final flag comes.
        is_final: the final flag has come.
        is_held: its execution has not returned, and takes its response along.
    """

    __slots__ = ("block", "is_final", "is_held", "request", "response")

    def __init__(self, request: InferRequest, block: Block) -> None:
        self.request = request
        self.block: Block | None = block
        self.response: InferResponse | None = None
        self.is_final = False
        self.is_held = True


class Answers:
    """The requests of one model that its backend has, and the thread that answers those of its own threads.

    Args:
        shim: the library.
        model: a `TRITONPY_ServedModel *`.
        name: of the model, for errors.
        is_decoupled: the model answers a request any number of times.
    """

    def __init__(self, shim: Shim, model: CData, name: str, *, is_decoupled: bool) -> None:
        self._shim = shim
        self._lib = shim.lib
        self._model = model
        self._name = name
        self._is_decoupled = is_decoupled
        self._lock = threading.RLock()  # guards the next two, and the order of answers
        self._asked: dict[int, _Asked] = {}
        self._tags = count(1)
        self._event: CData = shim.ffi.new("TRITONPY_Event *")
        self._taker = threading.Thread(target=self._take_all, name=f"answers of {name}", daemon=True)
        self._taker.start()

    def close(self) -> None:
        """End the thread, after what is there has been answered; no execution is under way."""
        self._lib.TRITONPY_EventsStop(self._model)
        self._taker.join()
        self._take()

    def execute(
        self, instance: CData, requests: Sequence[InferRequest], blocks: Sequence[Block]
    ) -> list[InferResponse] | None:
        """Call `TRITONBACKEND_ModelInstanceExecute`; see `model_instance_execute`.

        Args:
            instance: a `TRITONBACKEND_ModelInstance *`.
            requests: of the batch.
            blocks: what the backend sees of them.

        Raises:
            TritonError: the function has failed.
        """
        asked = [_Asked(request, block) for request, block in zip(requests, blocks, strict=True)]
        with self._lock:
            tags = [next(self._tags) for _ in asked]
            self._asked.update(zip(tags, asked, strict=True))
        error = self._lib.TRITONPY_InstanceExecute(instance, [block[0] for block in blocks], tags, len(asked))
        with self._lock:
            self._take()
            for each in asked:
                each.is_held = False
            if error:
                raise self._shim.error(error)
            if not self._is_decoupled and all(each.is_final for each in asked):
                return [self._response(each) for each in asked]
            for each in asked:
                if each.is_final and not self._is_decoupled:
                    each.request.respond(self._response(each))
        return None

    def _take_all(self) -> None:
        while self._lib.TRITONPY_EventsWait(self._model):
            self._take()

    def _take(self) -> None:
        """Handle what there is; events that come meanwhile are handled in their order."""
        with self._lock:
            while self._lib.TRITONPY_EventsTake(self._model, self._event):
                try:
                    self._handle(self._event)
                except Exception:  # costs this event: the request is answered when it is dropped
                    _log.exception("a response of model '%s' cannot be handed on", self._name)
                finally:
                    self._lib.TRITONPY_EventEnd(self._event)

    def _handle(self, event: CData) -> None:
        if event.kind == _END:
            del self._asked[event.tag]
            return
        asked = self._asked[event.tag]
        if event.kind == _RELEASE:
            asked.block = None
            return
        response = self._read(event, asked.request) if event.has_response else None
        asked.is_final = bool(event.is_final)
        if self._is_decoupled:
            asked.request.respond(response, final=asked.is_final)
            return
        if response is not None:
            if asked.response is not None:
                response = InferResponse(error=Internal("expected a single response, got 2"))
            asked.response = response
        if asked.is_final and not asked.is_held:
            asked.request.respond(self._response(asked))

    def _response(self, asked: _Asked) -> InferResponse:
        if asked.response is not None:
            return asked.response
        return InferResponse(
            error=Internal(
                f"{asked.request.label}model '{self._name}' is not decoupled, and its backend sent the final "
                f"flag without a response"
            )
        )

    def _read(self, event: CData, request: InferRequest) -> InferResponse:
        outputs = [self._output(event.outputs[index]) for index in range(event.output_count)]
        if event.has_error:
            text = self._shim.text(event.error)
            return InferResponse(error=TritonError.with_code(event.error_code, text))
        if wrong := next(filter(None, map(_size_fault, outputs)), ""):
            return InferResponse(error=Internal(f"{request.label}model '{self._name}': {wrong}"))
        parameters = [event.parameters[index] for index in range(event.parameter_count)]
        return InferResponse(
            outputs, parameters={self._shim.text(each.name): self._value(each) for each in parameters}
        )

    def _output(self, output: CData) -> Tensor:
        """A tensor whose bytes are the backend's buffer, which goes with it."""
        ffi = self._shim.ffi
        bytes_: memoryview = memoryview(b"")
        if output.data != ffi.NULL:
            data = ffi.gc(output.data, self._lib.TRITONPY_DataEnd, output.byte_size)
            bytes_ = memoryview(ffi.buffer(data, output.byte_size))
        shape = [output.shape[index] for index in range(output.dim_count)]
        return Tensor(self._shim.text(output.name), _NAMES[output.datatype], shape, bytes_)

    def _value(self, parameter: CData) -> ParameterValue:
        if parameter.type == _BOOL:
            return bool(parameter.boolean)
        if parameter.type == _INT:
            return int(parameter.integer)
        if parameter.type == _DOUBLE:
            return float(parameter.number)
        return self._shim.text(parameter.text)


def _size_fault(output: Tensor) -> str:
    """The reason why an output's buffer cannot be its elements; "" where it can."""
    itemsize = DATATYPES[output.datatype].byte_size
    expected = prod(output.shape) * itemsize
    if not itemsize or output.byte_size == expected:
        return ""
    return (
        f"output '{output.name}' has a buffer of {output.byte_size} bytes, expected {expected} for "
        f"{output.datatype} of shape {list(output.shape)}"
    )
