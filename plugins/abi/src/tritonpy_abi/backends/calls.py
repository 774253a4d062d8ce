"""What a backend in C asks of the server, brought from the queue of its library to the server and back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from tritonpy.plugin import (
    DATATYPES,
    InferRequest,
    InferResponse,
    Internal,
    MemoryType,
    OpenCall,
    ParameterValue,
    ServerLink,
    Tensor,
    TritonError,
    Unavailable,
)

from tritonpy_abi.backends.questions import Question
from tritonpy_abi.backends.raw_inputs import describe_raw_input
from tritonpy_abi.shim import CData, Shim

_log = logging.getLogger("tritonpy.abi")

_INFER, _CANCEL, _READ, _QUESTION = range(4)
"""Kinds of calls."""

_NAMES = {datatype.number: name for name, datatype in DATATYPES.items()}
_STRING, _INT, _BOOL, _DOUBLE = range(4)
"""Numbers of `TRITONSERVER_ParameterType`."""


class _Asked:
    """A request of the backend to another model, until all of its answers have been read.

    Attributes:
        call: what it is to the server, once it is there.
        unread: the answers whose outputs the library still reads, in their order.
        is_answered: finally.
    """

    __slots__ = ("call", "is_answered", "unread")

    def __init__(self) -> None:
        self.call: OpenCall | None = None
        self.unread: list[tuple[int, object]] = []
        self.is_answered = False


class Calls:
    """What the backend of one model asks, and the thread that takes it from the library.

    Args:
        shim: the library.
        link: the server; None where there is none, as in a test of the hooks alone.
        name: of the model.

    Attributes:
        server: a `TRITONSERVER_Server *`, for the backend.
        is_initializing: the model, or its instance, waits for what the backend asks before it can be served.
    """

    def __init__(self, shim: Shim, link: ServerLink | None, name: str) -> None:
        self._shim = shim
        self._ffi = shim.ffi
        self._lib = shim.lib
        self._link = link
        self._name = name
        self.server: CData = shim.lib.TRITONPY_ServerNew()
        self.is_initializing = True
        self._changed = threading.Condition()  # guards the next one, and what is in it
        self._asked: dict[int, _Asked] = {}
        self._taker = threading.Thread(target=self._take_all, name=f"calls of {name}", daemon=True)
        self._taker.start()

    def close(self) -> None:
        """Take nothing more; return when what the finalised backend has asked for is answered."""
        error = Unavailable(f"model '{self._name}' is unloaded: it cannot ask the server any more")
        self._lib.TRITONPY_ServerStop(self.server, int(error.code), error.message.encode())
        with self._changed:
            open_calls = [asked.call for asked in self._asked.values() if not asked.is_answered]
        for call in open_calls:
            if call is not None:
                call.cancel()
        with self._changed:
            self._changed.wait_for(lambda: all(asked.is_answered for asked in self._asked.values()))

    def _take_all(self) -> None:
        call: CData = self._ffi.new("TRITONPY_Call *")
        while self._lib.TRITONPY_ServerTake(self.server, call):
            try:
                self._handle(call)
            except Exception:  # costs this call: what was asked is refused before it gets here
                _log.exception("a call of the backend of model '%s' failed", self._name)

    def _handle(self, call: CData) -> None:
        tag = call.tag
        if call.kind == _INFER:
            self._infer(tag, call)
        elif call.kind == _QUESTION:
            self._ask(tag, call)
        elif call.kind == _READ:
            self._note_read(tag)
        else:
            with self._changed:
                asked = self._asked.get(tag)
            if asked is not None and asked.call is not None:
                asked.call.cancel()

    # Requests.

    def _infer(self, tag: int, call: CData) -> None:
        asked = _Asked()
        with self._changed:
            self._asked[tag] = asked
        hold = _Hold(partial(self._lib.TRITONPY_ServerLetGo, self.server, tag))
        try:
            request = self._request(call, hold)
            awaited_by = self._text(call.instance) if call.instance != self._ffi.NULL else None
            send = partial(self._send, tag, asked, request, awaited_by)
            if any(not call.tensors[index].datatype for index in range(call.tensor_count)):
                answer = self._connected.ask("server.model_config", request.model_name, request.model_version)
                answer.add_done_callback(partial(describe_raw_input, request, send))
            else:
                send(None)
        except Exception as exc:
            self._respond(tag, asked, InferResponse(error=_as_error(exc)), True)

    def _send(
        self,
        tag: int,
        asked: _Asked,
        request: InferRequest,
        awaited_by: str | None,
        refusal: TritonError | None,
    ) -> None:
        """Give a request to the server, unless it was found to be wrong."""
        try:
            if refusal is not None:
                raise refusal
            respond = partial(self._respond, tag, asked)
            asked.call = self._connected.infer(request, respond, awaited_by=awaited_by)
            with self._changed:
                self._forget_when_over(tag, asked)  # the answer may have been quicker
        except Exception as exc:
            self._respond(tag, asked, InferResponse(error=_as_error(exc)), True)

    def _request(self, call: CData, hold: _Hold) -> InferRequest:
        tensors = [self._tensor(call.tensors[index], hold) for index in range(call.tensor_count)]
        correlation_id: int | str = int(call.correlation_number)
        if call.correlation_text != self._ffi.NULL:
            correlation_id = self._text(call.correlation_text)
        outputs = tuple(self._text(call.outputs[index]) for index in range(call.output_count))
        parameters = [call.parameters[index] for index in range(call.parameter_count)]
        return InferRequest(
            self._text(call.model),
            {tensor.name: tensor for tensor in tensors},
            model_version="" if call.version == -1 else str(call.version),
            id=self._text(call.id),
            requested_outputs=outputs or None,
            parameters={self._text(each.name): self._value(each) for each in parameters},
            flags=call.flags,
            correlation_id=correlation_id,
            priority=call.priority,
            timeout_us=call.timeout_us,
        )

    def _tensor(self, tensor: CData, hold: _Hold) -> Tensor:
        """A tensor whose bytes are the backend's; `hold` lives as long as it does."""
        bytes_: memoryview = memoryview(b"")
        if tensor.byte_size:
            place = self._ffi.gc(self._ffi.cast("char *", tensor.data), hold.keep)
            bytes_ = memoryview(self._ffi.buffer(place, tensor.byte_size))
        shape = [tensor.shape[index] for index in range(tensor.dim_count)]
        return Tensor(self._text(tensor.name), _NAMES.get(tensor.datatype, "UINT8"), shape, bytes_)

    def _value(self, parameter: CData) -> ParameterValue:
        if parameter.type == _BOOL:
            return bool(parameter.boolean)
        if parameter.type == _INT:
            return int(parameter.integer)
        if parameter.type == _DOUBLE:
            return float(parameter.number)
        return self._text(parameter.text)

    # Responses.

    def _respond(self, tag: int, asked: _Asked, response: InferResponse | None, final: bool) -> None:
        """Hand a response to the library; on any thread, and never for long."""
        kept: list[object] = []
        called: CData = self._ffi.new("TRITONPY_Called *")
        called.is_final = final
        if response is not None:
            try:
                self._fill(called, response, kept)
            except Exception as exc:  # the backend waits for an answer, whatever is wrong with this one
                called.output_count = called.parameter_count = 0
                self._fill(called, InferResponse(error=_as_error(exc)), kept)
        byte_size = sum(output.byte_size for output in response.outputs) if response is not None else 0
        with self._changed:
            if asked.is_answered:
                return
            if response is not None:
                asked.unread.append((byte_size, kept))
            asked.is_answered = final
        self._lib.TRITONPY_ServerRespond(self.server, tag, called)
        if final:
            with self._changed:
                self._forget_when_over(tag, asked)
                self._changed.notify_all()

    def _fill(self, called: CData, response: InferResponse, kept: list[object]) -> None:
        called.has_response = True
        if response.error is not None:
            called.has_error = True
            called.error_code = int(response.error.code)
            called.error = self._chars(response.error.message, kept)
            return
        outputs: CData = self._ffi.new("TRITONPY_Tensor[]", len(response.outputs))
        kept.append(outputs)
        for field, tensor in zip(outputs, response.outputs, strict=True):
            if tensor.memory_type == MemoryType.GPU:
                raise Internal(f"output '{tensor.name}' is in memory of a GPU, expected memory of the CPU")
            data = self._ffi.from_buffer(tensor.wire())
            dims = self._ffi.new("int64_t[]", tensor.shape)
            kept += (data, dims)
            field.name = self._chars(tensor.name, kept)
            field.shape, field.dim_count = dims, len(tensor.shape)
            field.data, field.byte_size = data, len(data)
            field.datatype = DATATYPES[tensor.datatype].number
        called.outputs, called.output_count = outputs, len(response.outputs)
        parameters: CData = self._ffi.new("TRITONPY_RequestParameter[]", len(response.parameters))
        kept.append(parameters)
        for field, (name, value) in zip(parameters, response.parameters.items(), strict=True):
            field.name = self._chars(name, kept)
            if isinstance(value, bool):
                field.type, field.boolean = _BOOL, value
            elif isinstance(value, int):
                field.type, field.integer = _INT, value
            elif isinstance(value, float):
                field.type, field.number = _DOUBLE, value
            else:
                field.type, field.text = _STRING, self._chars(value, kept)
        called.parameters, called.parameter_count = parameters, len(response.parameters)

    def _note_read(self, tag: int) -> None:
        """The library has copied the outputs of the first unread answer."""
        with self._changed:
            asked = self._asked[tag]
            byte_size, _ = asked.unread.pop(0)
            call = asked.call
            self._forget_when_over(tag, asked)
        if call is not None:
            call.took(byte_size)

    def _forget_when_over(self, tag: int, asked: _Asked) -> None:
        if asked.is_answered and not asked.unread:
            self._asked.pop(tag, None)
            asked.call = None  # which has the request, whose bytes the backend waits for

    # Questions.

    def _ask(self, tag: int, call: CData) -> None:
        tensors = [call.tensors[index] for index in range(call.tensor_count)]
        given = {
            self._text(each.name): bytes(
                self._ffi.buffer(self._ffi.cast("char *", each.data), each.byte_size)
            )
            for each in tensors
        }
        version = "" if call.version == -1 else str(call.version)
        question = Question(self._text(call.question), self._text(call.model), version, given)
        try:
            name, args = question.for_server(is_initializing=self.is_initializing)
            answer = self._connected.ask(name, *args)
        except Exception as exc:
            self._refuse(tag, exc)
            return
        answer.add_done_callback(partial(self._answer, tag, question))

    def _answer(self, tag: int, question: Question, answer: Future[Any]) -> None:  # Any: plain values
        try:
            text, number = question.for_backend(answer.result())
            self._lib.TRITONPY_ServerAnswer(self.server, tag, text, len(text), number)
        except Exception as exc:
            self._refuse(tag, exc)

    def _refuse(self, tag: int, reason: Exception) -> None:
        error = _as_error(reason)
        self._lib.TRITONPY_ServerRefuse(self.server, tag, int(error.code), error.message.encode())

    @property
    def _connected(self) -> ServerLink:
        if self._link is None:
            raise Unavailable(f"model '{self._name}' has no server to ask")
        return self._link

    def _text(self, chars: CData) -> str:
        return self._shim.text(chars)

    def _chars(self, text: str, kept: list[object]) -> CData:
        chars = self._ffi.new("char[]", text.encode(errors="replace"))
        kept.append(chars)
        return chars


def _as_error(reason: Exception) -> TritonError:
    return reason if isinstance(reason, TritonError) else Internal(f"{type(reason).__name__}: {reason}")


class _Hold:
    """Calls back when nothing has it any more: neither its maker nor any tensor that was made with it."""

    __slots__ = ("_on_end",)

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end

    def keep(self, _: CData) -> None:
        """End of one tensor; being held by the tensor is what counts."""

    def __del__(self) -> None:
        self._on_end()
