"""Functions that programs have bound, and the batches that they execute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol

from tritonpy.plugin import (
    BackendAttributes,
    InferRequest,
    InferResponse,
    Internal,
    InvalidArg,
    JsonObject,
    Model,
    ModelInstance,
    NotFound,
    TritonError,
    Unavailable,
    hookimpl,
)
from tritonpy_sdk.remote.messages import Parts, request_entry

BACKEND = "bind"
"""The backend's name in configurations."""

_LOOK_S = 0.1
_TOLD_COUNT = 64
_TOLD_BYTES = 2 * 1024 * 1024
_MOST_WAITING = 1024
_MOST_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """A response of a stream that has come."""

    request: int
    response: InferResponse | None
    is_final: bool


@dataclass(frozen=True, slots=True)
class End:
    """The end of a call: a response to each request, None after a stream, or an error for all of them.

    Attributes:
        compute_ns: nanoseconds that the function took.
    """

    responses: Sequence[InferResponse] | None = None
    error: TritonError | None = None
    compute_ns: int = 0


class Call:
    """A batch on its way to a program and back.

    Args:
        binding: of the function.
        instance: the index of the one that waits for it.
        requests: how many there are.

    Attributes:
        number: on its connection.
        waiting: what has come and is not dealt with; put on the loop, taken by the instance.
    """

    def __init__(self, binding: Binding, instance: int, requests: int) -> None:
        self.binding = binding
        self.instance = instance
        self.request_count = requests
        self.number = 0
        self.waiting: SimpleQueue[Part | End] = SimpleQueue()
        self._put_bytes = self._taken_bytes = 0  # each changed by one side only

    def put(self, part: Part) -> bool:
        """Take a response of a stream; False if the program sends more than it was told that it may."""
        self._put_bytes += byte_size(part.response)
        self.waiting.put(part)
        held = self._put_bytes - self._taken_bytes
        return self.waiting.qsize() <= _MOST_WAITING and (held <= _MOST_BYTES or self.waiting.qsize() <= 1)

    def took(self, byte_size: int) -> None:
        """A response was dealt with."""
        self._taken_bytes += byte_size


class Connection(Protocol):
    """The way to a program."""

    def begin(self, call: Call, head: JsonObject, parts: Parts) -> None:
        """Send a batch, or end it with an error; from any thread."""

    def tell(self, call: Call, head: JsonObject) -> None:
        """Send something about a call that is open; from any thread."""

    def closed(self, binding: Binding) -> None:
        """A function is served no more; from any thread."""

    @property
    def max_frame_bytes(self) -> int:
        """The most bytes of tensors in a frame."""


@dataclass(eq=False, slots=True)
class Binding:
    """A function that a program has bound.

    Attributes:
        connection: to the program.
        number: that the program has given it.
        name: of its model.
        version: of its model.
        config: of its model.
        reason: why it will be served no more, for the program; "" while it is.
        again: the program is to bind it again when it can.
        is_lost: it cannot go on.
        is_gone: its program is not connected any more.
        is_open: a model uses it.
    """

    connection: Connection
    number: int
    name: str
    version: int
    config: JsonObject
    reason: str = ""
    again: bool = False
    is_lost: bool = False
    is_gone: bool = False
    is_open: bool = field(default=False, repr=False)


class BindBackend:
    """Hooks of the backend `bind`: instances are threads that wait for their program.

    Args:
        find: the binding that a model of this name and version is to be loaded for.
    """

    def __init__(self, find: Callable[[str], Binding | None]) -> None:
        self._find = find

    @hookimpl
    def backend_attributes(self) -> BackendAttributes:
        return BackendAttributes(execution="thread", parallel_instance_loading=True, uses_gpus=False)

    @hookimpl
    def model_initialize(self, model: Model) -> None:
        """See `BackendHooks`.

        Raises:
            NotFound: no program has bound a function of this name.
        """
        binding = self._find(model.name)
        if binding is None or binding.version != model.version:
            raise NotFound(f"model '{model.name}': no program has bound a function by that name")
        binding.is_open = True
        states = model.config.get("sequence_batching", {}).get("state", ())
        names = [output["name"] for output in model.config.get("output", ())]
        model.state = _Served(binding, [*names, *(state["output_name"] for state in states)])

    @hookimpl
    def model_finalize(self, model: Model) -> None:
        binding: Binding = model.state.binding
        binding.is_open = False
        binding.connection.closed(binding)

    @hookimpl
    def model_instance_execute(
        self, instance: ModelInstance, requests: Sequence[InferRequest]
    ) -> Sequence[InferResponse] | None:
        """See `BackendHooks`.

        Raises:
            TritonError: the program has said so, or is gone.
        """
        served: _Served = instance.model.state
        binding = served.binding
        parts: Parts = []
        entries = [request_entry(request, served.outputs, parts) for request in requests]
        size = sum(memoryview(part).nbytes for part in parts)
        most = binding.connection.max_frame_bytes
        if size > most:
            raise InvalidArg(
                f"model '{instance.model.name}': the batch has {size} bytes, and the program that has bound "
                f"it is sent {most} at most (--frontend-config={BACKEND},max-frame-bytes, or a smaller "
                f"max_batch_size)"
            )
        call = Call(binding, instance.index, len(requests))
        head: JsonObject = {"kind": "execute", "binding": binding.number, "requests": entries}
        binding.connection.begin(call, head, parts)
        del parts, entries, head
        return _Waiting(instance, call, requests).end()

    @hookimpl
    def model_instance_ready(self, instance: ModelInstance) -> bool:
        binding: Binding = instance.model.state.binding
        return not binding.is_lost and not binding.is_gone


@dataclass(frozen=True, slots=True)
class _Served:
    """A loaded model: its function, and all outputs that it may be asked for."""

    binding: Binding
    outputs: Sequence[str]


class _Waiting:
    """The wait of an instance for its program, during which responses of a stream are handed on."""

    def __init__(self, instance: ModelInstance, call: Call, requests: Sequence[InferRequest]) -> None:
        self._instance = instance
        self._call = call
        self._requests = requests
        self._finished = [False] * len(requests)
        self._cancelled = [False] * len(requests)
        self._told = [0, 0]

    def end(self) -> Sequence[InferResponse] | None:
        """Return, or raise, what the call ends with."""
        while True:
            came = self._next()
            if isinstance(came, End):
                break
            self._hand_on(came)
        if came.error is not None:
            raise came.error
        now = self._instance.now_ns()
        self._instance.report_compute(max(now - came.compute_ns, 0), now)
        if came.responses is not None:
            return came.responses
        if self._instance.model.is_decoupled and all(self._finished):
            return None
        raise Internal(f"model '{self._instance.model.name}': its program has not answered every request")

    def _next(self) -> Part | End:
        while True:
            try:
                # Clients that give up are told of nowhere: look now and then while the program works.
                return self._call.waiting.get(timeout=_LOOK_S)
            except Empty:
                self._tell_cancelled()

    def _tell_cancelled(self) -> None:
        for index, request in enumerate(self._requests):
            if request.is_cancelled() and not self._cancelled[index]:
                self._cancelled[index] = True
                self._call.binding.connection.tell(self._call, {"kind": "cancel", "request": index})

    def _hand_on(self, part: Part) -> None:
        request = self._requests[part.request]
        if not self._finished[part.request]:
            self._finished[part.request] = part.is_final
            request.respond(part.response, final=part.is_final)  # waits for clients that are slow
        if request.is_cancelled():
            self._tell_cancelled()
        size = byte_size(part.response)
        self._call.took(size)
        self._told[0] += 1
        self._told[1] += size
        if self._told[0] >= _TOLD_COUNT or self._told[1] >= _TOLD_BYTES:
            count, size = self._told
            self._told = [0, 0]
            head = {"kind": "took", "count": count, "byte_size": size}
            self._call.binding.connection.tell(self._call, head)


def byte_size(response: InferResponse | None) -> int:
    """Bytes of the outputs of a response."""
    return sum(tensor.byte_size for tensor in response.outputs) if response is not None else 0


def gone(binding: Binding, reason: str) -> Unavailable:
    """The error of requests whose program is not there any more."""
    return Unavailable(f"model '{binding.name}': the program that has bound it is gone: {reason}")
