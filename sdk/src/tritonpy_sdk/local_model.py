"""Models of a server in the same process, asked without sockets."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import TIMEOUT_MAX
from typing import Any, Self

import numpy as np
from tritonpy.dataplane import ServedModel
from tritonpy.errors import Internal, InvalidArg, TritonError, Unavailable, Unsupported
from tritonpy.flow import Backlog, FlowLimits
from tritonpy.handles import JsonObject
from tritonpy.model.bridge import LoopBridge
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.server import Server
from tritonpy.server_link import OpenCall
from tritonpy.tensor import Array, Tensor

from tritonpy_sdk.functions.context import current_context, is_called_by_server

Inputs = Mapping[str, Any]  # Any: arrays of whatever library, see `LocalModel`
Found = InferResponse | TritonError


class Outputs(dict[str, Array]):
    """The outputs of a response by name; those of BYTES are objects, of BF16 `uint16` with the raw bits.

    Attributes:
        id: of the request.
        parameters: of the response.
        tensors: the same outputs with their datatypes; they speak DLPack.
    """

    __slots__ = ("id", "parameters", "tensors")

    def __init__(self, request: InferRequest, response: InferResponse) -> None:
        super().__init__([(tensor.name, tensor.numpy()) for tensor in response.outputs])
        self.id = request.id
        self.parameters: Mapping[str, ParameterValue] = response.parameters
        self.tensors = {tensor.name: tensor for tensor in response.outputs}


class ResponseStream:
    """The responses to one request, as they come: an iterator, also an asynchronous one.

    A model that answers faster than they are taken is made to wait. Closing it early cancels the request, as
    does leaving it as a context manager.

    Raises:
        TritonError: the request was refused, or has failed; from the step at which it is found out.
    """

    def __init__(self, caller: Caller, request: InferRequest) -> None:
        self._caller = caller
        self._request = request
        self._lock = threading.Lock()
        self._items: deque[InferResponse | TritonError | None] = deque()  # None: nothing follows
        self._waiting: deque[Future[InferResponse | TritonError | None]] = deque()
        self._is_over = False
        self._backlog: Backlog | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Outputs:
        item = self._next().result()
        if item is None:
            raise StopIteration
        return self._taken(item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outputs:
        item = await asyncio.wrap_future(self._next())
        if item is None:
            raise StopAsyncIteration
        return self._taken(item)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what has not come yet."""
        self._caller.bridge.call(self._request.cancel)

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Take a response, on the server's loop."""
        if response is not None:
            if response.error is not None:
                self._put(response.error)
            else:
                self._hold(request, response)
                self._put(response)
        if final:
            self.end(None)

    def end(self, error: TritonError | None) -> None:
        """Nothing follows, or only an error."""
        if error is not None:
            self._put(error)
        if self._backlog is not None:
            self._backlog.close()
        self._put(None)

    def _hold(self, request: InferRequest, response: InferResponse) -> None:
        if self._backlog is None:
            self._backlog = Backlog(self._caller.limits, lambda reason: self._stalled(request, reason))
        self._backlog.add(_byte_size(response), request.response_flow)

    def _stalled(self, request: InferRequest, reason: str) -> None:
        request.give_up()
        self.end(Unavailable(reason))

    def _put(self, item: InferResponse | TritonError | None) -> None:
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                if waiter.set_running_or_notify_cancel():
                    waiter.set_result(item)
                    return
            self._items.append(item)

    def _next(self) -> Future[InferResponse | TritonError | None]:
        future: Future[InferResponse | TritonError | None] = Future()
        with self._lock:
            if self._is_over:
                future.set_result(None)
            elif self._items:
                future.set_result(self._items.popleft())
            else:
                self._waiting.append(future)
        return future

    def _taken(self, item: InferResponse | TritonError) -> Outputs:
        if isinstance(item, TritonError):
            self._is_over = True
            raise item
        if self._backlog is not None:
            self._caller.bridge.call(self._backlog.take, _byte_size(item))
        return Outputs(self._request, item)


class LocalModel:
    """A model of a server in this process.

    Inputs are arrays by name: of numpy, of anything that speaks DLPack, numbers and strings in lists, or
    `tritonpy.plugin.Tensor`s; what lies in the memory of this process is not copied. Outputs are arrays.

    Args:
        caller: the way to the server.
        name: of the model.
        version: "" for the newest that is ready.
    """

    def __init__(self, caller: Caller, name: str, version: str = "") -> None:
        self._caller = caller
        self.name = name
        self.version = version

    def infer(
        self,
        inputs: Inputs,
        *,
        outputs: Sequence[str] | None = None,
        timeout_s: float | None = None,
        **attributes: Any,
    ) -> Outputs:
        """Ask the model and wait for its response.

        Args:
            inputs: see above.
            outputs: those that are wanted; None for all.
            timeout_s: after which the request is cancelled.
            **attributes: see `submit`.

        Raises:
            TritonError: the request was refused, or has failed.
            TimeoutError: it took too long.
        """
        request = self._request(inputs, outputs, **attributes)
        waiter = _Waiter()
        try:
            self._caller.ask(request, waiter.take)
            found = waiter.wait(timeout_s)
        except BaseException:  # such as that of Ctrl-C
            self._caller.bridge.call(request.cancel)
            raise
        if found is None:
            self._caller.bridge.call(request.cancel)
            raise TimeoutError(f"model '{self.name}' gave no response within {timeout_s} s")
        if isinstance(found, TritonError):
            raise found
        return Outputs(request, found)

    async def infer_async(
        self, inputs: Inputs, *, outputs: Sequence[str] | None = None, **attributes: Any
    ) -> Outputs:
        """Ask the model from any event loop; cancelling the task cancels the request. See `infer`."""
        request = self._request(inputs, outputs, **attributes)
        waiter = _AsyncWaiter(asyncio.get_running_loop())
        try:
            self._caller.ask(request, waiter.take)
            found = await waiter.future
        except BaseException:
            self._caller.bridge.call(request.cancel)
            raise
        if isinstance(found, TritonError):
            raise found
        return Outputs(request, found)

    def submit(
        self, inputs: Inputs, *, outputs: Sequence[str] | None = None, **attributes: Any
    ) -> Future[Outputs]:
        """Ask the model; the future has the response, and cancelling it cancels the request.

        Args:
            inputs: see above.
            outputs: those that are wanted; None for all.
            **attributes: `id`, `parameters`, `priority` and `timeout_us` of the request; `sequence_id`,
                `sequence_start` and `sequence_end`.
        """
        request = self._request(inputs, outputs, **attributes)
        future: Future[Outputs] = Future()

        def cancel_if_given_up(future: Future[Outputs]) -> None:
            if future.cancelled():
                self._caller.bridge.call(request.cancel)

        def take(found: Found) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if isinstance(found, TritonError):
                future.set_exception(found)
                return
            try:
                outputs = Outputs(request, found)
            except Exception as exc:
                future.set_exception(exc)
            else:
                future.set_result(outputs)

        future.add_done_callback(cancel_if_given_up)
        self._caller.ask(request, take)
        return future

    def stream(
        self, inputs: Inputs, *, outputs: Sequence[str] | None = None, **attributes: Any
    ) -> ResponseStream:
        """Ask a model for any number of responses; see `submit`."""
        request = self._request(inputs, outputs, **attributes)
        return self._caller.open_stream(request)

    def is_ready(self) -> bool:
        """True if the model takes requests."""
        ready: bool = self._caller.wait(
            self._caller.server.runtime.dataplane.model_ready(self.name, self.version)
        )
        return ready

    @property
    def config(self) -> JsonObject:
        """Its configuration.

        Raises:
            TritonError: there is no such model.
        """
        config: JsonObject = self._caller.run(
            lambda: self._caller.server.runtime.dataplane.find(self.name, self.version).config
        )
        return config

    @property
    def metadata(self) -> JsonObject:
        """Versions, platform, inputs and outputs, as `GET v2/models/<name>` has them."""
        dataplane = self._caller.server.runtime.dataplane
        found: JsonObject = self._caller.run(lambda: dataplane.model_metadata(self.name, self.version))
        return found

    @property
    def statistics(self) -> JsonObject:
        """Counts and times, as `GET v2/models/<name>/stats` has them."""
        dataplane = self._caller.server.runtime.dataplane
        found: JsonObject = self._caller.run(lambda: dataplane.model_statistics(self.name, self.version))
        return found

    def _request(
        self,
        inputs: Inputs,
        outputs: Sequence[str] | None,
        *,
        id: str = "",
        parameters: Mapping[str, ParameterValue] | None = None,
        priority: int = 0,
        timeout_us: int = 0,
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
    ) -> InferRequest:
        return InferRequest(
            self.name,
            {name: _tensor(name, value) for name, value in inputs.items()},
            model_version=self.version,
            id=id,
            requested_outputs=None if outputs is None else tuple(outputs),
            parameters=parameters,
            flags=SEQUENCE_START * sequence_start | SEQUENCE_END * sequence_end,
            correlation_id=sequence_id,
            priority=priority,
            timeout_us=timeout_us,
            arrival_ns=time.monotonic_ns(),
        )


class Caller:
    """The way from other threads to a server's loop.

    Args:
        server: it runs.
        limits: how far a reader of a stream may fall behind.

    Attributes:
        bridge: has the loop call functions.
    """

    def __init__(self, server: Server, limits: FlowLimits) -> None:
        self.server = server
        self.limits = limits
        self._loop_thread = 0
        self.bridge: LoopBridge = self.wait(self._make_bridge())

    def run(self, function: Any) -> Any:  # Any: what it returns
        """What a function returns that is called on the loop."""

        async def called() -> Any:
            return function()

        return self.wait(called())

    def wait(self, coroutine: Any) -> Any:  # Any: what it returns
        """What a coroutine returns that runs on the loop.

        Raises:
            Unsupported: this is the loop's own thread, which cannot wait for itself.
        """
        if threading.get_ident() == self._loop_thread:
            coroutine.close()
            raise Unsupported("the server's own thread cannot wait for the server")
        return asyncio.run_coroutine_threadsafe(coroutine, self.server.loop).result()

    def ask(self, request: InferRequest, take: Callable[[Found], None]) -> None:
        """Hand a request to its model; from any thread.

        Args:
            request: which expects one response.
            take: is called once, on the server's loop, and must not wait.
        """
        self._send(request, _Answer(take), is_stream=False)

    def open_stream(self, request: InferRequest) -> ResponseStream:
        """Hand a request to its model; from any thread."""
        stream = ResponseStream(self, request)
        self._send(request, stream, is_stream=True)
        return stream

    def _send(self, request: InferRequest, sink: _Answer | ResponseStream, *, is_stream: bool) -> None:
        context = current_context() if is_called_by_server() else None
        if context is None or context.server is None:
            self.bridge.call(self._begin, request, sink, is_stream)
            return
        # A function that asks: the server has to know which instance waits, or it could wait for itself.
        calls: list[OpenCall] = []

        def on_response(response: InferResponse | None, final: bool) -> None:
            sink.on_response(request, response, final)
            if response is not None and calls:
                calls[0].took(_byte_size(response))

        calls.append(context.server.infer(request, on_response, awaited_by=context.instance_name))

    def _begin(self, request: InferRequest, sink: _Answer | ResponseStream, is_stream: bool) -> None:
        try:
            model: ServedModel = self.server.runtime.dataplane.find(request.model_name, request.model_version)
            if model.is_decoupled and not is_stream:
                raise _decoupled(model.name)
            model.infer(request, sink)
        except TritonError as error:
            sink.end(error)
        except Exception as exc:  # costs this call
            sink.end(Internal(f"{type(exc).__name__}: {exc}"))

    async def _make_bridge(self) -> LoopBridge:
        self._loop_thread = threading.get_ident()
        return LoopBridge(asyncio.get_running_loop())


class _Answer:
    """Takes the response of a request and hands it on once; satisfies `ResponseSink`."""

    __slots__ = ("_is_over", "_response", "_take")

    def __init__(self, take: Callable[[Found], None]) -> None:
        self._take = take
        self._response: InferResponse | None = None
        self._is_over = False

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if response is not None:
            if self._response is not None:
                self.end(_decoupled(request.model_name))
            self._response = response
        if not final or self._is_over:
            return
        found = self._response
        if found is None:
            self.end(Internal(f"model '{request.model_name}' gave no response"))
        else:
            self._is_over = True
            self._take(found if found.error is None else found.error)

    def end(self, error: TritonError) -> None:
        if not self._is_over:
            self._is_over = True
            self._take(error)


class _Waiter:
    """Holds up a thread until there is a response; a future would cost a third of the whole call."""

    __slots__ = ("_found", "_is_pending")

    def __init__(self) -> None:
        self._found: Found | None = None
        self._is_pending = threading.Lock()
        self._is_pending.acquire()

    def take(self, found: Found) -> None:
        """Let the thread go on."""
        self._found = found
        self._is_pending.release()

    def wait(self, timeout_s: float | None) -> Found | None:
        """The response; None if there is none after `timeout_s`."""
        self._is_pending.acquire(timeout=-1 if timeout_s is None else min(max(timeout_s, 0), TIMEOUT_MAX))
        return self._found


class _AsyncWaiter:
    """Holds up a task until there is a response.

    Args:
        loop: of the task.
    """

    __slots__ = ("_loop", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[Found] = loop.create_future()

    def take(self, found: Found) -> None:
        """Let the task go on."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._end, found)

    def _end(self, found: Found) -> None:
        if not self.future.done():
            self.future.set_result(found)


def _decoupled(name: str) -> Unsupported:
    return Unsupported(
        f"model '{name}' is decoupled: it gives any number of responses; call stream() instead of infer()"
    )


def _tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value if value.name == name else value.renamed(name)
    if isinstance(value, np.ndarray):
        return Tensor.from_numpy(name, value)
    if hasattr(value, "__dlpack__"):
        try:
            return Tensor.from_numpy(name, np.from_dlpack(value))
        except (BufferError, RuntimeError, TypeError) as exc:
            raise InvalidArg(
                f"input '{name}': {type(value).__name__} cannot be read as DLPack: {exc}"
            ) from exc
    return Tensor.from_numpy(name, np.asarray(value))


def _byte_size(response: InferResponse) -> int:
    return sum(tensor.byte_size for tensor in response.outputs)
