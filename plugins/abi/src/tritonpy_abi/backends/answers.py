"""Answers of a backend in C to its requests, made from the events that its library leaves.

`Answers.execute` executes a batch from the interpreter, `NativeExecutor` many without it.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from math import prod

from tritonpy.plugin import (
    DATATYPES,
    Buffer,
    InferRequest,
    InferResponse,
    Internal,
    ParameterValue,
    RequestTrace,
    Tensor,
    TritonError,
)

from tritonpy_abi.backends.output_blocks import Lease, output_blocks
from tritonpy_abi.shim import CData, Shim
from tritonpy_abi.strategies.request_blocks import Block

_log = logging.getLogger("tritonpy.abi")

_RESPONSE, _RELEASE, _END, _STATE, _RESCHEDULE, _FAILURE, _ACTIVITY = range(7)
"""Kinds of events."""

_RECORD = struct.Struct("=QQQII")
"""A `TRITONPY_Record`: tag, byte size, place, kind and flags."""
_HAS_RESPONSE, _IS_FINAL, _IS_RELEASED, _IS_OVER, _HAS_OUTPUT, _HAS_MORE, _IS_INLINE, _IS_NEW = (
    1 << bit for bit in range(8)
)
"""Flags of a record."""

_Record = tuple[int, int, int, int, int]

_NAMES = {datatype.number: name for name, datatype in DATATYPES.items()}
_INT, _BOOL, _DOUBLE = 1, 2, 3
"""Numbers of `TRITONSERVER_ParameterType`; all others are texts."""

_left_behind: list[tuple[Block | None, CData]] = []
"""Memory of requests that a backend had not let go of when its model ended: its threads may still read it."""


class _OutputKind:
    """What outputs have beside their bytes, read from the library once.

    Attributes:
        byte_size: of their elements; -1 where that is up to the elements.
    """

    __slots__ = ("byte_size", "datatype", "name", "shape")

    def __init__(self, name: str, datatype: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        itemsize = DATATYPES[datatype].byte_size
        self.byte_size = prod(shape) * itemsize if itemsize else -1


class Asked:
    """A request that a backend has, until it can get no more responses.

    Attributes:
        request: what is answered.
        block: what the backend sees of it, until it releases it.
        cancel_flag: the byte that is 1 when it was cancelled, which the library reads.
        response: the one of a model that answers once, until the final flag comes; of a model with states the
            final one, until the request is released.
        states: what its sequence remembers from now on, by name.
        tag: names it to the library.
        unsent: responses that a thread of their own brings to a client that is slow, and final flags; None
            where there is no such thread.
        is_final: the final flag has come.
        is_held: its execution has not returned, and takes its response along.
    """

    __slots__ = (
        "block",
        "cancel_flag",
        "is_final",
        "is_held",
        "request",
        "response",
        "states",
        "tag",
        "unsent",
    )

    def __init__(self, tag: int, request: InferRequest, block: Block, cancel_flag: CData) -> None:
        self.tag = tag
        self.request = request
        self.block: Block | None = block
        self.cancel_flag = cancel_flag
        self.response: InferResponse | None = None
        self.states: dict[str, Tensor] | None = None
        self.unsent: deque[tuple[InferResponse | None, bool]] | None = None
        self.is_final = False
        self.is_held = True


class Answers:
    """Requests of one model that its backend has, and what is answered to them; from any thread.

    Args:
        shim: the library.
        events: a `TRITONPY_Events *`, which has those of the requests.
        name: of the model.
        version: of the model.
        is_decoupled: the model answers a request any number of times.
        has_states: the model remembers something of a sequence.
        is_iterative: it has requests executed again.
    """

    def __init__(
        self,
        shim: Shim,
        events: CData,
        name: str,
        version: int,
        *,
        is_decoupled: bool,
        has_states: bool,
        is_iterative: bool,
    ) -> None:
        self._shim = shim
        self._lib = shim.lib
        self._events = events
        self._name = name
        self._version = version
        self._is_decoupled = is_decoupled
        self._has_states = has_states
        self._is_iterative = is_iterative
        # Guards all that is asked and the order of answers; nobody waits for a client while holding it.
        self._lock = threading.RLock()
        self._asked: dict[int, Asked] = {}
        self._tags = count(1)
        self._from_buffer: CData = shim.ffi.from_buffer
        self._flag: CData = shim.ffi.typeof("unsigned char *")
        self._event: CData = shim.ffi.new("TRITONPY_Event *")
        self._records: CData = shim.ffi.new("TRITONPY_Records *")
        self._kinds: dict[int, _OutputKind] = {}
        self._is_closed = False
        self._output_blocks = output_blocks(shim)
        self._lease: Lease = _lease_nothing
        self._taker: threading.Thread | None = None

    def lease_outputs(self, lease: Lease) -> None:
        """Have outputs written to memory that is answered without a copy."""
        self._lease = lease

    def take_at_once(self) -> None:
        """Have a thread take what the backend's own threads do, as long as these answers are open."""
        with self._lock:
            if self._taker is None:
                self._taker = threading.Thread(
                    target=self._take_all, name=f"answers of {self._name}", daemon=True
                )
                self._taker.start()

    def close(self) -> None:
        """Answer what there is, and end the thread; no execution is under way."""
        self._lib.TRITONPY_EventsStop(self._events)
        if self._taker is not None:
            self._taker.join()
        with self._lock:
            self.take()
            self._is_closed = True
        _left_behind.extend((each.block, each.cancel_flag) for each in self._asked.values())

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
        self.take_at_once()
        asked = self.ask(requests, blocks)
        tags = [each.tag for each in asked]
        error = self._lib.TRITONPY_InstanceExecute(instance, [block[0] for block in blocks], tags, len(asked))
        with self._lock:
            self.take()
            return self.settle(asked, error)

    def ask(self, requests: Sequence[InferRequest], blocks: Sequence[Block]) -> list[Asked]:
        """Be ready for answers to the requests of a batch that is to be executed."""
        asked = [
            Asked(next(self._tags), request, block, self._from_buffer(self._flag, request.cancel_flag()))
            for request, block in zip(requests, blocks, strict=True)
        ]
        for each in asked:
            if each.request.trace is not None and each.block is not None:
                self._describe_trace(each.request, each.request.trace, each.block)
        for each in asked:
            assert each.block is not None  # nobody has it yet
            each.block[0].cancel_flag = each.cancel_flag
        self._note(asked)
        return asked

    def adopt(
        self, requests: Sequence[InferRequest], first_tag: int, kept: CData, cancel_flags: object
    ) -> list[Asked]:
        """Answer requests of a batch that was executed without this.

        Args:
            requests: of the batch.
            first_tag: by which the library knows the first of them; the others follow.
            kept: the memory of what the backend sees of them.
            cancel_flags: the memory of their flags.
        """
        asked = [
            Asked(tag, request, [kept], cancel_flags) for tag, request in enumerate(requests, start=first_tag)
        ]
        self._note(asked)
        return asked

    def _note(self, asked: Sequence[Asked]) -> None:
        with self._lock:
            for each in asked:
                self._asked[each.tag] = each

    @property
    def has_open(self) -> bool:
        """The backend still has requests, or may answer some."""
        return bool(self._asked)

    def forget(self, asked: Sequence[Asked]) -> None:
        """A batch is not executed after all."""
        with self._lock:
            for each in asked:
                del self._asked[each.tag]

    def settle(self, asked: Sequence[Asked], error: CData) -> list[InferResponse] | None:
        """The responses of a batch whose execution is over, and whose events were taken.

        Args:
            asked: its requests.
            error: the `TRITONSERVER_Error *` that the execution returned, or NULL.

        Returns:
            None where some have none yet; the others are answered.

        Raises:
            TritonError: the execution has failed.
        """
        with self._lock:
            for each in asked:
                each.is_held = False
            if error:
                raise self._shim.error(error)
            if not self._is_decoupled and all(map(self._is_due, asked)):
                return [self._response(each) for each in asked]
            for each in asked:
                if not self._is_decoupled and self._is_due(each):
                    each.request.respond(self._response(each))
        return None

    def _describe_trace(self, request: InferRequest, trace: RequestTrace, block: Block) -> None:
        ffi = self._shim.ffi
        texts = [
            ffi.new("char[]", text.encode(errors="replace"))
            for text in (self._name, request.id, trace.context or "")
        ]
        described: CData = ffi.new("TRITONPY_Trace *", (trace.id, trace.parent_id, self._version, *texts))
        block[0].trace = described
        block += [described, *texts]

    def _take_all(self) -> None:
        while self._lib.TRITONPY_EventsWait(self._events):
            self.take()

    def take(self) -> None:
        """Handle what there is; events that come meanwhile are handled in their order."""
        records = self._records
        with self._lock:
            while True:
                self._lib.TRITONPY_EventsPack(self._events, records)
                if records.record_count:
                    self._unpack(records)
                if not records.has_more:
                    return
                self._take_one()

    def _take_one(self) -> None:
        """Handle the next event, which no record describes."""
        if self._lib.TRITONPY_EventsTake(self._events, self._event):
            try:
                self._handle(self._event)
            except Exception:  # costs this event: the request is answered when it is dropped
                self._log_failure()
            finally:
                self._lib.TRITONPY_EventEnd(self._event)

    def _log_failure(self) -> None:
        _log.exception("a response of model '%s' cannot be handed on", self._name)

    def _unpack(self, packed: CData) -> None:
        """Handle events that were packed."""
        buffer = self._shim.ffi.buffer
        content = buffer(packed.bytes, packed.byte_size)
        records: Iterator[_Record] = _RECORD.iter_unpack(
            buffer(packed.records, packed.record_count * _RECORD.size)
        )
        all_asked = self._asked
        for record in records:
            tag, _, _, _, flags = record
            asked = all_asked[tag]
            response: InferResponse | None = None
            if flags & _HAS_RESPONSE:
                outputs = [record]
                while outputs[-1][4] & _HAS_MORE:
                    outputs.append(next(records))
                try:
                    response = self._packed_response(outputs, content, asked.request)
                except Exception:  # the others in these records are to be answered, too
                    self._log_failure()
                    self._kinds.clear()  # a new one may have been among them
                    text = f"{asked.request.label}model '{self._name}': its response cannot be handed on"
                    response = InferResponse(error=Internal(text))
            try:
                if flags & (_HAS_RESPONSE | _IS_FINAL):
                    self._answer(asked, response, is_final=flags & _IS_FINAL != 0)
                if flags & _IS_RELEASED:
                    self._release(asked)
            except Exception:  # as above
                self._log_failure()
            if flags & _IS_OVER:
                del all_asked[tag]

    def _packed_response(
        self, records: Sequence[_Record], content: CData, request: InferRequest
    ) -> InferResponse:
        """A response, each of whose outputs is in a record; the first is there also where it has none."""
        outputs = []
        fault = ""
        for _, byte_size, place, number, flags in records:
            if not flags & _HAS_OUTPUT:
                break
            known = None if flags & _IS_NEW else self._kinds.get(number)
            kind = known or self._read_kind(number)
            bytes_: Buffer
            if flags & _IS_INLINE:
                bytes_ = content[place : place + byte_size]
            else:
                bytes_ = self._own(place, byte_size, self._lease)
            if byte_size != kind.byte_size >= 0:
                fault = fault or _size_fault(kind, byte_size)
            outputs.append(Tensor(kind.name, kind.datatype, kind.shape, bytes_))
        if fault:
            return InferResponse(error=Internal(f"{request.label}model '{self._name}': {fault}"))
        return InferResponse(outputs)

    def _own(self, address: int, byte_size: int, lease: Lease) -> Buffer:
        """The bytes of a backend's buffer, which goes with them."""
        block = self._output_blocks.take(address, byte_size, lease)
        if block is not None:
            return block
        ffi = self._shim.ffi
        data = ffi.gc(ffi.cast("void *", address), self._lib.TRITONPY_DataEnd, byte_size)
        return memoryview(ffi.buffer(data, byte_size))

    def _read_kind(self, number: int) -> _OutputKind:
        output = self._shim.ffi.new("TRITONPY_SentOutput *")
        self._lib.TRITONPY_OutputKind(self._events, number, output)
        kind = self._kinds[number] = self._kind(output)
        return kind

    def _kind(self, output: CData) -> _OutputKind:
        shape = tuple(output.shape[0 : output.dim_count])
        return _OutputKind(self._shim.text(output.name), _NAMES[output.datatype], shape)

    def _handle(self, event: CData) -> None:
        if event.kind == _END:
            del self._asked[event.tag]
            return
        asked = self._asked[event.tag]
        if event.kind == _RELEASE:
            self._release(asked)
            return
        if event.kind == _ACTIVITY:
            if asked.request.trace is not None:
                asked.request.trace.report_activity(self._shim.text(event.error), event.time_ns)
            return
        if event.kind == _FAILURE:
            asked.request.report_failure()
            return
        if event.kind == _STATE:
            if asked.states is None:
                asked.states = {}
            state = self._output(self._kind(event.outputs[0]), event.outputs[0], _lease_nothing)
            asked.states[state.name] = state
            return
        if event.kind == _RESCHEDULE:
            asked.block = None
            if asked.states:
                asked.request.respond(InferResponse(asked.states.values()), final=False)
            asked.request.reschedule()
            return
        response = self._read(event, asked.request) if event.has_response else None
        self._answer(asked, response, is_final=bool(event.is_final))

    def _answer(self, asked: Asked, response: InferResponse | None, *, is_final: bool) -> None:
        asked.is_final = is_final
        if self._is_decoupled and not (is_final and self._has_states):
            self._send(asked, response, is_final=is_final)
            return
        if response is not None:
            if asked.response is not None:
                text = f"{asked.request.label}model '{self._name}': expected a single response, got 2"
                response = InferResponse(error=Internal(text))
            asked.response = response
        self._finish(asked)

    def _release(self, asked: Asked) -> None:
        asked.block = None
        if self._has_states:
            self._finish(asked)

    def _is_due(self, asked: Asked) -> bool:
        """True if its final response may be given; states can come until the request is released."""
        return asked.is_final and not (self._has_states and asked.block is not None)

    def _finish(self, asked: Asked) -> None:
        """Give the final response if it is due, and does not go with the others of its execution."""
        if not self._is_due(asked):
            return
        if self._is_decoupled:
            self._send(asked, self._with_states(asked), is_final=True)
        elif not asked.is_held:
            asked.request.respond(self._response(asked))

    def _send(self, asked: Asked, response: InferResponse | None, *, is_final: bool) -> None:
        """Send a response, or have it sent by a thread that waits for its client: others are not to wait."""
        if asked.unsent is not None:
            asked.unsent.append((response, is_final))
        elif is_final or self._is_iterative or not asked.request.would_wait():
            # An iterative model reschedules a request before its execution is over: no client may delay that.
            asked.request.respond(response, final=is_final)
        else:
            asked.unsent = deque([(response, is_final)])
            self._lib.TRITONPY_EventsHold(self._events, asked.tag, True)
            name = f"slow client of {self._name}"
            threading.Thread(
                target=self._send_unsent, args=(asked, asked.unsent), name=name, daemon=True
            ).start()

    def _send_unsent(self, asked: Asked, unsent: deque[tuple[InferResponse | None, bool]]) -> None:
        while True:
            with self._lock:
                if not unsent:
                    asked.unsent = None
                    if not self._is_closed:
                        self._lib.TRITONPY_EventsHold(self._events, asked.tag, False)
                    return
                response, is_final = unsent.popleft()
            try:
                asked.request.respond(response, final=is_final)
            except Exception:  # costs this response, as above
                self._log_failure()

    def _with_states(self, asked: Asked) -> InferResponse | None:
        response = asked.response
        if asked.states and (response is None or response.error is None):
            response = response or InferResponse()
            # One that is an output of the model as well may be in the response already.
            outputs = [output for output in response.outputs if output.name not in asked.states]
            response.outputs = [*outputs, *asked.states.values()]
        return response

    def _response(self, asked: Asked) -> InferResponse:
        if asked.response is not None:
            return self._with_states(asked) or asked.response
        return InferResponse(
            error=Internal(
                f"{asked.request.label}model '{self._name}' is not decoupled, and its backend sent the final "
                f"flag without a response"
            )
        )

    def _read(self, event: CData, request: InferRequest) -> InferResponse:
        kinds = [self._kind(event.outputs[index]) for index in range(event.output_count)]
        outputs = [self._output(kind, event.outputs[index], self._lease) for index, kind in enumerate(kinds)]
        if event.has_error:
            text = self._shim.text(event.error)
            return InferResponse(error=TritonError.with_code(event.error_code, text))
        for kind, output in zip(kinds, outputs, strict=True):
            if output.byte_size != kind.byte_size >= 0:
                fault = _size_fault(kind, output.byte_size)
                return InferResponse(error=Internal(f"{request.label}model '{self._name}': {fault}"))
        parameters = [event.parameters[index] for index in range(event.parameter_count)]
        return InferResponse(
            outputs, parameters={self._shim.text(each.name): self._value(each) for each in parameters}
        )

    def _output(self, kind: _OutputKind, output: CData, lease: Lease) -> Tensor:
        """A tensor whose bytes are the backend's buffer, which goes with it."""
        bytes_: Buffer = b""
        if output.data != self._shim.ffi.NULL:
            bytes_ = self._own(int(self._shim.ffi.cast("uintptr_t", output.data)), output.byte_size, lease)
        return Tensor(kind.name, kind.datatype, kind.shape, bytes_)

    def _value(self, parameter: CData) -> ParameterValue:
        if parameter.type == _BOOL:
            return bool(parameter.boolean)
        if parameter.type == _INT:
            return int(parameter.integer)
        if parameter.type == _DOUBLE:
            return float(parameter.number)
        return self._shim.text(parameter.text)


def _lease_nothing(_: int) -> None:
    return None


def _size_fault(kind: _OutputKind, byte_size: int) -> str:
    """The reason why a buffer cannot be an output's elements."""
    return (
        f"output '{kind.name}' has a buffer of {byte_size} bytes, expected {kind.byte_size} for "
        f"{kind.datatype} of shape {list(kind.shape)}"
    )
