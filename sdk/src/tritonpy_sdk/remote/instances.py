"""A bound function on threads of this program, and the calls that a server elsewhere makes of it."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol

from tritonpy.errors import Internal, TritonError
from tritonpy.model.async_hooks import AsyncHooks
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

from tritonpy_sdk.functions.bound import Bound
from tritonpy_sdk.functions.calls import FunctionInstance
from tritonpy_sdk.functions.context import FunctionContext

_log = logging.getLogger("tritonpy.remote")

MOST_RESPONSES = 256
"""Responses of one call that may be on their way."""
MOST_RESPONSE_BYTES = 8 * 1024 * 1024
"""Their bytes; one that is larger goes alone."""


class Answers(Protocol):
    """The way back to the server; from any thread."""

    def respond(self, call: Call, request: int, response: InferResponse | None, final: bool) -> None:
        """Send one response of a stream."""

    def executed(
        self,
        call: Call,
        responses: Sequence[InferResponse] | None,
        error: TritonError | None,
        *,
        compute_ns: int,
        is_lost: bool,
    ) -> None:
        """End a call: with a response to each request, after a stream None, or an error for all."""


class Call:
    """A batch that is being executed.

    Args:
        number: of the call, on its connection.
        requests: of the batch.
        answers: where they go.
        is_decoupled: responses go out one by one.
    """

    def __init__(
        self, number: int, requests: Sequence[InferRequest], answers: Answers, *, is_decoupled: bool
    ) -> None:
        self.number = number
        self.requests = requests
        self.answers = answers
        self._room = threading.Condition()
        self._count = 0
        self._byte_size = 0
        self._is_over = False
        if is_decoupled:
            for index, request in enumerate(requests):
                request.ticket.outbox = _Outbox(self, index)

    def cancel(self, index: int) -> None:
        """The client of a request has given up."""
        if 0 <= index < len(self.requests):
            self.requests[index].ticket.cancelled = True

    def took(self, count: int, byte_size: int) -> None:
        """The server has dealt with responses."""
        with self._room:
            self._count -= count
            self._byte_size -= byte_size
            self._room.notify_all()

    def give_up(self) -> None:
        """The server is not there any more."""
        for request in self.requests:
            request.ticket.cancelled = True
        with self._room:
            self._is_over = True
            self._room.notify_all()

    def end(self) -> None:
        """Everything has been answered: requests are not to answer themselves."""
        for request in self.requests:
            request.ticket.outbox = None

    def post(self, index: int, response: InferResponse | None, final: bool) -> None:
        """Send a response when there is room for it."""
        byte_size = sum(tensor.byte_size for tensor in response.outputs) if response is not None else 0
        with self._room:
            while not self._is_over and (
                self._count >= MOST_RESPONSES or self._byte_size >= MOST_RESPONSE_BYTES
            ):
                self._room.wait()
            if self._is_over:
                return
            self._count += 1
            self._byte_size += byte_size
        self.answers.respond(self, index, response, final)


class _Outbox:
    """Takes the responses of one request of a stream; satisfies `Outbox`."""

    __slots__ = ("_call", "_index")

    def __init__(self, call: Call, index: int) -> None:
        self._call = call
        self._index = index

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self._call.post(self._index, response, final)


class InstanceThread:
    """An instance of a bound function, on a thread of its own.

    Args:
        bound: what is served.
        index: of the instance.

    Attributes:
        opened: ends when the function is ready to be called, or with what its `initialize` raised.
    """

    def __init__(self, bound: Bound, index: int) -> None:
        self._bound = bound
        self._index = index
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self.opened: Future[None] = Future()
        name = f"{bound.name}_0_{index}"
        self._context = FunctionContext(bound.name, bound.config(), bound.inputs, bound.outputs, index, name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Call) -> None:
        """Have a batch executed behind those that wait."""
        self._calls.put(call)

    def close(self) -> None:
        """End once everything is executed; does not wait."""
        self._calls.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait for the end; a function that does not return is left behind."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            _log.warning("instance '%s' still executes and is left behind", self._thread.name)

    def _run(self) -> None:
        try:
            function = FunctionInstance(self._bound, self._context, owns_inputs=True, can_reschedule=False)
        except BaseException as exc:  # sys.exit() in the author's code as well
            self.opened.set_exception(exc)
            return
        self.opened.set_result(None)
        hooks = AsyncHooks()
        while self._execute(function, hooks, hooks.next(self._calls.get)):  # nothing keeps the last call
            pass
        try:
            function.close()
        except Exception:
            _log.exception("'finalize' of instance '%s' failed", self._thread.name)
        hooks.close()

    def _execute(self, function: FunctionInstance, hooks: AsyncHooks, call: Call | None) -> bool:
        if call is None:
            return False
        start_ns = time.monotonic_ns()
        responses: Any = None  # Any: of a hook, see `FunctionInstance.execute`
        error: TritonError | None = None
        try:
            responses = function.execute(call.requests)
            if inspect.isawaitable(responses):
                responses = hooks.wait(responses)
        except TritonError as exc:
            error = exc.with_traceback(None)
        except BaseException as exc:  # sys.exit() ends a batch, not the instance
            _log.exception("instance '%s' failed to execute a batch", self._thread.name)
            error = Internal(
                f"Failed to process the request(s) for model '{self._bound.name}', message: "
                f"{type(exc).__name__}: {exc}"
            )
        call.end()
        call.answers.executed(
            call,
            responses,
            error,
            compute_ns=time.monotonic_ns() - start_ns,
            is_lost=function.is_lost,
        )
        return True
