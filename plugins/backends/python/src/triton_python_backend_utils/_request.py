"""One request, as a model sees it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Union, overload

from ._arguments import flag, integer, text
from ._calls import ResponseIterator, only_response
from ._errors import TritonModelException
from ._link import Call, Wire, require_link
from ._memory import PreferredMemory
from ._response import InferenceResponse, ParameterValue, checked_parameters
from ._sender import InferenceResponseSender, Server
from ._tensor import Tensor

if TYPE_CHECKING:
    import asyncio

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2

_MOST_UINT32 = 2**32 - 1
_MOST_UINT64 = 2**64 - 1

CorrelationId = Union[int, str]  # noqa: UP007 (evaluated, also by Python 3.9)

TRITONSERVER_REQUEST_RELEASE_ALL = 1
"""The request is done with once it has been answered; the default."""
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
"""The request is to be executed again, in a later batch."""


class InferenceTrace:
    """The trace of a request, to be given to requests that are made for it; an empty one is of no request."""

    __slots__ = ("_context", "_number", "_slot")

    _context: str | None
    _number: int  # 0 for an empty one
    _slot: int  # of the request that is traced

    def __init__(self) -> None:
        self._context = None
        self._number = 0
        self._slot = -1

    def get_context(self) -> str | None:
        """The trace's context for an OpenTelemetry propagator, as JSON; None without one."""
        return self._context


class InferenceRequest:
    """One request: in `execute` from a client, in a test made by hand.

    Args:
        request_id: the client's id, "" when it gave none.
        correlation_id: names the sequence the request belongs to; 0 or "" for none.
        inputs: the input tensors.
        requested_output_names: the outputs to produce.
        model_name: the model.
        model_version: -1 lets the server choose.
        flags: `TRITONSERVER_REQUEST_FLAG_SEQUENCE_START` and `_END`, combined.
        timeout: how long the request may wait in a queue, in microseconds; 0 for no limit.
        preferred_memory: where the outputs should be; they come in host memory so far.
        trace: the trace that the called model's belongs to.
        parameters: custom parameters.

    Raises:
        TypeError: an argument is missing, of the wrong type or out of range.
        TritonModelException: an input is None, or a parameter or the correlation id is of a type that cannot
            travel.
    """

    __slots__ = ("_inputs", "_release_flags", "_sender", "_server", "_target", "_wire")

    _inputs: list[Tensor]
    _release_flags: int
    _sender: InferenceResponseSender | None  # made when asked for
    _server: Server | None  # None in a request made by hand
    _target: tuple[str, int]  # only in a request made by hand: model and version
    _wire: Wire

    def __init__(
        self,
        request_id: str = "",
        correlation_id: CorrelationId = 0,
        inputs: Iterable[Tensor] | None = None,
        requested_output_names: Iterable[str] | None = None,
        model_name: str | None = None,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        if inputs is None or requested_output_names is None or model_name is None:
            raise TypeError("InferenceRequest: inputs, requested_output_names and model_name are required")
        request_id = text("InferenceRequest: request_id", request_id)
        model_name = text("InferenceRequest: model_name", model_name)
        self._inputs = list(inputs)
        for tensor in self._inputs:
            if tensor is None:
                raise TritonModelException(
                    f"Input tensor for request with id '{request_id}' and model name '{model_name}' "
                    f"should not be empty."
                )
            _check("inputs", "hold Tensors", tensor, Tensor)
        _check("preferred_memory", "be a PreferredMemory", preferred_memory, PreferredMemory, type(None))
        _check("trace", "be an InferenceTrace", trace, InferenceTrace, type(None))
        flags = integer("InferenceRequest: flags", flags, 0, _MOST_UINT32)
        timeout = integer("InferenceRequest: timeout", timeout, 0, _MOST_UINT64)
        model_version = integer("InferenceRequest: model_version", model_version, -(2**63), 2**63 - 1)
        if correlation_id is None:
            raise TypeError("InferenceRequest: correlation_id must be an int or a str, got None")
        if isinstance(correlation_id, int):
            correlation_id = integer("InferenceRequest: correlation_id", correlation_id, 0, _MOST_UINT64)
        elif isinstance(correlation_id, str):
            correlation_id = text("InferenceRequest: correlation_id", correlation_id)
        else:
            raise TritonModelException("Correlation ID must be integer or string")
        if isinstance(requested_output_names, (str, bytes)):  # or its letters would be taken for names
            kind = type(requested_output_names).__name__
            raise TypeError(f"InferenceRequest: requested_output_names must be a list of str, got {kind}")
        outputs = tuple(text("InferenceRequest: an output's name", name) for name in requested_output_names)
        if "" in outputs:
            raise TritonModelException(
                f"Requested output name for request with id '{request_id}' and model name '{model_name}' "
                f"should not be empty."
            )
        checked = None if parameters is None else checked_parameters(parameters)
        self._wire = (-1, request_id, flags, correlation_id, timeout, 0, checked, outputs, ())
        if trace is not None and trace._number:
            self._wire += (trace,)
        self._target = model_name, max(model_version, -1)
        self._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        self._server = None
        self._sender = None

    def inputs(self) -> list[Tensor]:
        """The input tensors, in the order the client sent them."""
        return list(self._inputs)

    def request_id(self) -> str:
        """The client's id, "" when it gave none."""
        return self._wire[1]  # type: ignore[no-any-return]

    def correlation_id(self) -> CorrelationId:
        """The sequence the request belongs to; 0 or "" for none."""
        return self._wire[3]  # type: ignore[no-any-return]

    def flags(self) -> int:
        """`TRITONSERVER_REQUEST_FLAG_SEQUENCE_START` and `_END`, combined."""
        return self._wire[2]  # type: ignore[no-any-return]

    def set_flags(self, flags: int) -> None:
        """Change the flags.

        Raises:
            TypeError: they are no integer of 32 bits.
        """
        flags = integer("set_flags: flags", flags, 0, _MOST_UINT32)
        self._wire = (*self._wire[:2], flags, *self._wire[3:])

    def timeout(self) -> int:
        """The time that the request may wait in a queue, in microseconds; 0 when the client set no limit."""
        return self._wire[4]  # type: ignore[no-any-return]

    def parameters(self) -> str:
        """The custom parameters as JSON text; `{}` when there are none."""
        # Triton writes those of a request that came, and leaves to Python those of one that a model has made.
        separators = (", ", ": ") if self._server is None else (",", ":")
        return json.dumps(self._wire[6] or {}, separators=separators)

    def trace(self) -> InferenceTrace:
        """The request's trace; an empty one if it is not traced."""
        if len(self._wire) <= 9:
            return InferenceTrace()
        noted = self._wire[9]
        if isinstance(noted, InferenceTrace):
            return noted
        trace = InferenceTrace()
        trace._slot = self._wire[0]
        trace._number, trace._context = noted[:2]
        return trace

    def requested_output_names(self) -> set[str]:
        """The outputs the client wants; all outputs of the configuration when it named none."""
        requested = self._wire[7]
        if requested is not None:
            return set(requested)
        server = self._server
        return set(server.outputs) if server is not None else set()

    def set_release_flags(self, flags: int) -> None:
        """Say what becomes of the request when `execute` has returned.

        Args:
            flags: `TRITONSERVER_REQUEST_RELEASE_ALL`; or `TRITONSERVER_REQUEST_RELEASE_RESCHEDULE`, and the
                request comes again in a later batch. The model's configuration must have
                `iterative_sequence`, and `execute` returns None in the request's place.

        Raises:
            TypeError: they are no integer of 32 bits.
            TritonModelException: other flags.
        """
        flags = integer("set_release_flags: flags", flags, 0, _MOST_UINT32)
        if flags not in (TRITONSERVER_REQUEST_RELEASE_ALL, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE):
            raise TritonModelException(f"set_release_flags: unsupported flags {flags!r}")
        self._release_flags = flags

    @overload
    def exec(self, decoupled: Literal[False] = False) -> InferenceResponse: ...
    @overload
    def exec(self, decoupled: Literal[True]) -> ResponseIterator: ...
    @overload
    def exec(self, decoupled: bool) -> InferenceResponse | ResponseIterator: ...
    def exec(self, decoupled: bool = False) -> InferenceResponse | ResponseIterator:
        """Have another model answer this request, and wait for it.

        Args:
            decoupled: the model may send any number of responses.

        Returns:
            The response, which may carry an error; with `decoupled`, an iterator over the responses.

        Raises:
            TritonModelException: no server has started this process.
        """
        decoupled = flag("exec: decoupled", decoupled)
        link = require_link("InferenceRequest.exec")
        call = link.call(self._target, self._wire, self._inputs, decoupled)
        return ResponseIterator(call) if decoupled else only_response(call.next())

    @overload
    def async_exec(self, decoupled: Literal[False] = False) -> asyncio.Future[InferenceResponse]: ...
    @overload
    def async_exec(self, decoupled: Literal[True]) -> asyncio.Future[ResponseIterator]: ...
    @overload
    def async_exec(self, decoupled: bool) -> asyncio.Future[Any]: ...  # Any: one of the above
    def async_exec(self, decoupled: bool = False) -> asyncio.Future[Any]:  # Any: see the overloads
        """The same on the running event loop: the call is under way at once, the result is to be awaited.

        With `decoupled`, the result is there with the first response: a `for` that takes it does not hold up
        the loop.

        Raises:
            RuntimeError: no event loop runs in this thread.
            TritonModelException: no server has started this process.
        """
        import asyncio  # late: slow to import, and most models do without

        decoupled = flag("async_exec: decoupled", decoupled)
        loop = asyncio.get_running_loop()
        link = require_link("InferenceRequest.async_exec")
        call = link.call(self._target, self._wire, self._inputs, decoupled)
        return loop.create_task(_outcome(call, decoupled))

    def get_response_sender(self) -> InferenceResponseSender:
        """The sender of this request's responses; always the same one."""
        sender = self._sender
        if sender is None:
            wire = self._wire
            sender = self._sender = InferenceResponseSender(self._server, wire[0], wire[1], wire[7])
        return sender

    def is_cancelled(self) -> bool:
        """True if the client no longer wants an answer."""
        if self._sender is not None:
            return self._sender.is_cancelled()
        server = self._server
        return server is not None and server.is_cancelled(self._wire[0])

    def __repr__(self) -> str:
        return f"InferenceRequest(request_id={self._wire[1]!r}, inputs={self._inputs})"


async def _outcome(call: Call, decoupled: bool) -> InferenceResponse | ResponseIterator:
    first = await call.next_async()
    return ResponseIterator(call, first) if decoupled else only_response(first)


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The input called `name`, or None when the request does not carry it."""
    for tensor in inference_request._inputs:
        if tensor._name == name:
            return tensor
    return None


def _check(what: str, must: str, value: object, *types: type) -> None:
    if not isinstance(value, types):
        raise TypeError(f"InferenceRequest: {what} must {must}, got {type(value).__name__}")
