"""BLS: the calls of other models that the model in a worker makes, and what else it asks of the server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from tritonpy.buffers import MemoryType
from tritonpy.errors import Cancelled, Internal, TritonError, exception_text
from tritonpy.flow import DEFAULT_LIMITS, Backlog, FlowLimits, Pauses
from tritonpy.handles import MemoryUsage
from tritonpy.ipc import frame
from tritonpy.ipc.arena import SharedMemoryExhausted
from tritonpy.ipc.child_channel import ChildChannel
from tritonpy.ipc.frame import MEMORY_NOTICE, OPEN_QUESTION, TAKEN_NOTICE, TRACE_NOTICE, Message
from tritonpy.model.model import LoadedModel
from tritonpy.request import InferRequest, checked_correlation_id
from tritonpy.request_trace import ServerTrace
from tritonpy.response import InferResponse
from tritonpy.workers.call_cycles import refuse_cycle
from tritonpy.workers.in_flight import InFlight
from tritonpy.workers.request_frames import decode_call, discard, encode_response
from tritonpy.workers.worker_services import Caller, Services

_log = logging.getLogger("tritonpy.worker")


class ModelFinder(Protocol):
    """Finds models by name and version; a `ModelRegistry`."""

    def find(self, name: str, version: str = "") -> LoadedModel:
        """The model version that is meant; see `ModelRegistry`."""


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The part of the server that models in workers can reach.

    Attributes:
        models: other models.
        services: everything else.
        flow_limits: how far a model may fall behind with the responses of one it has called.
        passed_variables: names of variables that workers get although they hold secrets of the server.
    """

    models: ModelFinder
    services: Services
    flow_limits: FlowLimits = DEFAULT_LIMITS
    passed_variables: frozenset[str] = frozenset()


class WorkerCalls:
    """Everything one worker has asked for and has not been answered; on the loop only.

    Args:
        channel: where answers go.
        caller: the worker, for services.
        access: what can be reached.

    Attributes:
        work: what the instance in the worker has in flight, once there is one.
    """

    def __init__(self, channel: ChildChannel, caller: Caller, access: ServerAccess) -> None:
        self.work: InFlight | None = None
        self._channel = channel
        self._caller = caller
        self._access = access
        self._open: dict[int, tuple[InferRequest, int]] = {}
        self._unread: dict[int, UnreadResponses] = {}
        self._kept_running: dict[int, list[Pauses]] = {}
        self._questions: set[asyncio.Task[None]] = set()

    def take(self, message: Message) -> None:
        """Handle CALL, CANCEL, ASK and TELL."""
        kind = message[0]
        if kind == frame.CALL:
            self._call(message)
        elif kind == frame.CANCEL:
            request, _ = self._open.get(message[2], (None, 0))
            if request is not None:
                request.cancel()
        elif kind == frame.ASK and message[3] == OPEN_QUESTION and self.work is not None:
            self.work.when_open(message[4][0], partial(self._answer, message[2]))
        elif kind == frame.ASK:
            task = asyncio.get_running_loop().create_task(self._ask(message))
            self._questions.add(task)
            task.add_done_callback(self._questions.discard)
        else:
            _, _, what, args = message
            if what == TRACE_NOTICE:
                self._note_activity(*args)
                return
            if what == TAKEN_NOTICE:
                unread = self._unread.get(args[0])
                if unread is not None:
                    unread.take(args[1])
                return
            if what == MEMORY_NOTICE:
                self._caller.memory_usage = [
                    MemoryUsage(MemoryType(number), device_id, byte_size)
                    for number, device_id, byte_size in args[0]
                ]
                return
            try:
                self._access.services.tell(self._caller, what, args)
            except Exception:  # a service that fails costs what it was told, not the channel
                _log.exception("instance '%s': '%s' failed", self._caller.instance, what)

    def give_up(self, batch: int) -> None:
        """Cancel the calls that a batch waits for, whose results are not wanted any more."""
        for request, waiting in list(self._open.values()):
            if waiting == batch:
                request.cancel()

    def awaited(self) -> Mapping[int, Sequence[InferRequest]]:
        """Unanswered calls by the batch that waits for them."""
        calls: dict[int, list[InferRequest]] = {}
        for request, batch in self._open.values():
            calls.setdefault(batch, []).append(request)
        return calls

    def close(self) -> None:
        """The worker is gone: give up its calls."""
        calls, self._open = self._open, {}
        self.work = None  # its flags are memory of the worker
        for unread in self._unread.values():
            unread.close()
        self._unread.clear()
        for call, (request, _) in calls.items():
            self._allow_pauses(call)
            request.cancel()
        for task in self._questions:
            task.cancel()
        self._access.services.caller_gone(self._caller)

    def is_awaited(self, call: int) -> bool:
        """True if a call has had no final response, and its caller is there."""
        return call in self._open

    def reply(self, call: int, response: InferResponse | None, final: bool) -> None:
        """Send one response to a call."""
        if final:
            self._open.pop(call, None)
            self._allow_pauses(call)
            unread = self._unread.pop(call, None)
            if unread is not None:
                unread.close()
        channel = self._channel
        if not channel.is_connected:
            return
        encoded: Message | None = None
        try:
            encoded = encode_response(response, channel.endpoint) if response is not None else None
            channel.send(frame.CALLED, call, encoded, final)
        except ConnectionError:  # the worker is gone
            return
        except Exception as exc:  # the caller waits for an answer, whatever is wrong with this one
            if encoded is not None:
                discard(encoded[0], channel.endpoint)
            text = str(exc)
            if not isinstance(exc, SharedMemoryExhausted):
                _log.exception("a response to instance '%s' cannot be sent", self._caller.instance)
                text = f"the response cannot be sent: {exception_text(exc)}"
            channel.send(frame.CALLED, call, ((), None, (int(Internal("").code), text)), final)

    def _call(self, message: Message) -> None:
        _, _, call, batch, decoupled, model, version, encoded = message
        if self.work is not None:
            self.work.has_called = True
        request = decode_call(model, version, encoded, self._channel.endpoint)
        request.arrival_ns = time.monotonic_ns()
        if len(encoded) > 9:
            slot, number = encoded[9]
            request.ticket.trace = self._child_trace(slot, number, model)
        if decoupled:
            self._unread[call] = unread = UnreadResponses(
                self._access.flow_limits, partial(self._give_up, call, model)
            )
            sink = _CallSink(self, call, unread)
        else:
            sink = _CallSink(self, call, None)
        self._open[call] = request, batch
        try:
            target = self._access.models.find(model, request.model_version)
            if target.is_decoupled and not decoupled:
                raise Internal(
                    f"Model {model} is using the decoupled. The current BLS request call doesn't support "
                    f"models using the decoupled transaction policy. Please use 'decoupled=True' argument to "
                    f"the 'exec' or 'async_exec' calls for decoupled models."
                )
            if isinstance(request.correlation_id, str):
                checked_correlation_id(request.correlation_id)
            self._refuse_cycle(request, batch, target)
            if target.is_decoupled:
                self._keep_running(call, target)
            target.infer(request, sink)
        except TritonError as error:
            self.reply(call, InferResponse(error=error), True)
        except Exception as exc:  # costs this call, not the channel and the worker behind it
            _log.exception("the call of '%s' by instance '%s' failed", model, self._caller.instance)
            self.reply(call, InferResponse(error=Internal(f"{type(exc).__name__}: {exc}")), True)

    def _child_trace(self, slot: int, number: int, model: str) -> ServerTrace | None:
        """The trace of a call, a part of that of the request in a slot, if it is that request still."""
        trace = self._trace_of(slot, number)
        return trace.child(model) if trace is not None else None

    def _trace_of(self, slot: int, number: int) -> ServerTrace | None:
        request = self.work.requests.get(slot) if self.work is not None else None
        trace = request.ticket.trace if request is not None else None
        return trace if trace is not None and trace.id == number else None

    def _note_activity(self, slot: int, number: int, name: str, timestamp_ns: int) -> None:
        trace = self._trace_of(slot, number)
        if trace is not None:
            trace.report_activity(name, timestamp_ns)

    def _refuse_cycle(self, request: InferRequest, batch: int, target: LoadedModel) -> None:
        """Note the executions that wait for the request, and refuse it if they form a cycle."""
        execution = self.work.running(batch) if self.work is not None else None
        if execution is None:
            return
        refuse_cycle(request, execution, target, self._caller.model, self._caller.instance)

    def _give_up(self, call: int, model: str, reason: str) -> None:
        """End a call whose caller does not take its responses."""
        request, _ = self._open.get(call, (None, 0))
        if request is None:
            return
        _log.warning(
            "%sa call of '%s' by instance '%s' is ended: %s",
            request.label,
            model,
            self._caller.instance,
            reason,
            extra=request.about,
        )
        self.reply(call, InferResponse(error=Cancelled(reason)), True)
        request.give_up()

    def _keep_running(self, call: int, target: LoadedModel) -> None:
        """Keep the models that the call waits for from being paused."""
        pauses = [model.pauses for model in target.all_models if model.is_decoupled]
        self._kept_running[call] = pauses
        for each in pauses:
            each.caller_came()

    def _allow_pauses(self, call: int) -> None:
        """Undo `_keep_running` for a call."""
        if self._kept_running:
            for each in self._kept_running.pop(call, ()):
                each.caller_left()

    def _answer(self, ask: int) -> None:
        self._channel.send(frame.ANSWER, ask, None, None)

    async def _ask(self, message: Message) -> None:
        _, _, ask, what, args = message
        value: Any = None  # Any: a plain value
        error: tuple[int, str] | None = None
        try:
            value = await self._access.services.ask(self._caller, what, args)
        except TritonError as exc:
            error = int(exc.code), exc.message
        except Exception as exc:  # a service that fails costs this question, not the channel
            _log.exception("instance '%s': '%s' failed", self._caller.instance, what)
            error = int(Internal("").code), f"{type(exc).__name__}: {exc}"
        self._channel.send(frame.ANSWER, ask, value, error)


class UnreadResponses:
    """The responses of one call that its caller has not taken from its iterator; on the loop only."""

    __slots__ = ("_backlog", "_byte_sizes")

    def __init__(self, limits: FlowLimits, on_stalled: Callable[[str], None]) -> None:
        self._backlog = Backlog(limits, on_stalled)
        self._byte_sizes: deque[int] = deque()

    def add(self, request: InferRequest, response: InferResponse | None) -> bool:
        """Count one that is sent to the caller; False when the call was given up instead."""
        byte_size = sum(output.byte_size for output in response.outputs) if response is not None else 0
        self._byte_sizes.append(byte_size)
        return self._backlog.add(byte_size, request.response_flow)

    def take(self, count: int) -> None:
        """The caller has taken `count` more."""
        for _ in range(min(count, len(self._byte_sizes))):
            self._backlog.take(self._byte_sizes.popleft())

    def close(self) -> None:
        """Forget all of them."""
        self._byte_sizes.clear()
        self._backlog.close()


class _CallSink:
    """Brings the responses of one call back to the worker; satisfies `ResponseSink`.

    Args:
        calls: sends them.
        call: its number.
        unread: counts them; None for a call that takes one response only.
    """

    __slots__ = ("_call", "_calls", "_unread")

    def __init__(self, calls: WorkerCalls, call: int, unread: UnreadResponses | None) -> None:
        self._calls = calls
        self._call = call
        self._unread = unread

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        # What stands before this sink, such as a place in a line, hears of the end of a request in any case.
        if not self._calls.is_awaited(self._call):
            return
        if self._unread is None:
            final = True  # the caller takes one response only
        elif not final and not self._unread.add(request, response):
            return
        self._calls.reply(self._call, response, final)
