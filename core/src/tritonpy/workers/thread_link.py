"""The server as hooks on its own threads reach it: over the loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from tritonpy.errors import Cancelled, Internal, TritonError
from tritonpy.flow import FlowLimits, Pauses
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.execution import Execution
from tritonpy.model.model import LoadedModel
from tritonpy.request import InferRequest, checked_correlation_id
from tritonpy.response import InferResponse
from tritonpy.server_link import OnResponse
from tritonpy.workers.call_cycles import refuse_cycle
from tritonpy.workers.calls import ServerAccess, UnreadResponses
from tritonpy.workers.worker_services import Caller

_log = logging.getLogger("tritonpy.model")


class ThreadLink:
    """Satisfies `ServerLink` and `ExecutionLink`, for one version of a model.

    Args:
        bridge: to the loop.
        access: what can be reached.
        caller: the model, for services.

    Attributes:
        has_called: see `ExecutionLink`.
    """

    def __init__(self, bridge: LoopBridge, access: ServerAccess, caller: Caller) -> None:
        self._bridge = bridge
        self._access = access
        self._caller = caller
        self._running: dict[str, Callable[[], Execution | None]] = {}
        self._open: set[ThreadCall] = set()
        self.has_called = False
        self._questions: set[asyncio.Task[None]] = set()

    # From any thread.

    def infer(
        self, request: InferRequest, on_response: OnResponse, *, awaited_by: str | None = None
    ) -> ThreadCall:
        """See `ServerLink`; responses come on the loop."""
        call = ThreadCall(self._bridge, request, on_response, awaited_by)
        self._bridge.call(self._begin, call)
        return call

    def ask(self, question: str, *args: Any) -> Future[Any]:  # Any: plain values
        """See `ServerLink`."""
        answer: Future[Any] = Future()
        self._bridge.call(self._begin_question, question, args, answer)
        return answer

    # On the loop.

    def opened(self, instance: str, running: Callable[[], Execution | None]) -> None:
        """See `ExecutionLink`."""
        self._running[instance] = running
        self._caller.is_loading = False

    def awaited(self, instance: str) -> Sequence[InferRequest]:
        """See `ExecutionLink`."""
        return [call.request for call in self._open if call.awaited_by == instance]

    def close(self) -> None:
        """See `ExecutionLink`."""
        for call in tuple(self._open):
            call.request.cancel()
        for task in self._questions:
            task.cancel()
        self._access.services.caller_gone(self._caller)

    def _begin(self, call: ThreadCall) -> None:
        self.has_called = True
        request = call.request
        request.arrival_ns = time.monotonic_ns()
        self._open.add(call)
        sink = _CallSink(self, call, self._access.flow_limits)
        try:
            target = self._access.models.find(request.model_name, request.model_version)
            if isinstance(request.correlation_id, str):
                checked_correlation_id(request.correlation_id)
            running = self._running.get(call.awaited_by or "")
            execution = running() if running is not None else None
            if execution is not None:
                refuse_cycle(request, execution, target, self._caller.model, call.awaited_by or "")
            if target.is_decoupled:
                sink.keep_running(target)
            if call.is_cancelled:
                raise Cancelled(f"{request.label}the request was cancelled before it was sent")
            target.infer(request, sink)
        except TritonError as error:
            sink.on_response(request, InferResponse(error=error), True)
        except Exception as exc:  # costs this call
            _log.exception("a call of model '%s' failed", request.model_name)
            failure = Internal(f"{type(exc).__name__}: {exc}")
            sink.on_response(request, InferResponse(error=failure), True)

    def forget(self, call: ThreadCall) -> None:
        """The last response is on its way."""
        self._open.discard(call)

    def _begin_question(self, question: str, args: tuple[Any, ...], answer: Future[Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(question, args, answer))
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    async def _ask(self, question: str, args: tuple[Any, ...], answer: Future[Any]) -> None:
        try:
            answer.set_result(await self._access.services.ask(self._caller, question, args))
        except TritonError as error:
            answer.set_exception(error)
        except asyncio.CancelledError:
            answer.set_exception(Cancelled(f"model '{self._caller.model}' is unloaded"))
            raise
        except Exception as exc:  # a service that fails costs this question
            _log.exception("model '%s': '%s' failed", self._caller.model, question)
            answer.set_exception(Internal(f"{type(exc).__name__}: {exc}"))


class ThreadCall:
    """Satisfies `OpenCall`.

    Attributes:
        request: what was sent.
        on_response: takes the responses.
        awaited_by: the instance whose execution waits for it; None for none.
        is_cancelled: nobody wants it any more.
        unread: the responses that have not been dealt with, from when it has been sent to its end.
    """

    def __init__(
        self, bridge: LoopBridge, request: InferRequest, on_response: OnResponse, awaited_by: str | None
    ) -> None:
        self.request = request
        self.on_response = on_response
        self.awaited_by = awaited_by
        self.is_cancelled = False
        self.unread: UnreadResponses | None = None
        self._bridge = bridge

    def cancel(self) -> None:
        """See `OpenCall`."""
        self.is_cancelled = True
        self._bridge.call(self.request.cancel)

    def took(self, byte_size: int) -> None:
        """See `OpenCall`; the loop knows the sizes itself."""
        self._bridge.call(self._take)

    def _take(self) -> None:
        if self.unread is not None:
            self.unread.take(1)


class _CallSink:
    """Brings the responses of one call to who made it; satisfies `ResponseSink`.

    When the last one has come it lets go of the call: the bytes of a request may be its maker's, who waits
    until nobody has them.
    """

    def __init__(self, link: ThreadLink, call: ThreadCall, limits: FlowLimits) -> None:
        self._link = link
        self._call: ThreadCall | None = call
        self._kept_running: list[Pauses] = []
        call.unread = UnreadResponses(limits, self._give_up)

    def keep_running(self, target: LoadedModel) -> None:
        """Keep the models that the call waits for from being paused."""
        self._kept_running = [model.pauses for model in target.all_models if model.is_decoupled]
        for each in self._kept_running:
            each.caller_came()

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """See `ResponseSink`."""
        call = self._call
        if call is None or call.unread is None:
            return
        if final:
            self._call = None
            call.unread.close()
            call.unread = None
            self._link.forget(call)
            for each in self._kept_running:
                each.caller_left()
        elif not call.unread.add(request, response):
            return
        call.on_response(response, final)

    def _give_up(self, reason: str) -> None:
        """End the call, because its responses are not dealt with."""
        if self._call is None:
            return
        request = self._call.request
        _log.warning("%sa call of '%s' is ended: %s", request.label, request.model_name, reason)
        self.on_response(request, InferResponse(error=Cancelled(reason)), True)
        request.give_up()
