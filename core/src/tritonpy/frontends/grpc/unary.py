"""One `ModelInfer` call, from the bytes of its request to its outcome."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from tritonpy.admission import Admission
from tritonpy.dataplane import Dataplane
from tritonpy.errors import Internal, TritonError, Unavailable, Unsupported
from tritonpy.frontends.grpc.convert import parse_infer_request, to_infer_request
from tritonpy.frontends.grpc.encoder import ResponseEncoder
from tritonpy.frontends.grpc.errors import as_triton_error
from tritonpy.frontends.grpc.forwarding import Metadata, MetadataForwarding
from tritonpy.frontends.grpc.stream import STOPPING
from tritonpy.frontends.grpc.tracing import begin_trace
from tritonpy.frontends.outputs import UNTREATED, References, of_model
from tritonpy.request import InferRequest
from tritonpy.request_trace import RequestTrace
from tritonpy.response import InferResponse
from tritonpy.tracing.tracing import Tracing

_log = logging.getLogger("tritonpy.grpc")


@dataclass(slots=True)
class UnaryPort:
    """The state that all unary inference calls of a server share.

    Attributes:
        dataplane: takes the requests.
        encoder: writes the responses.
        references: what requests may name beside their own bytes.
        admission: counts the bytes of open requests; those that it does not admit are refused.
        tracing: says which requests are traced.
        forwarding: makes parameters of metadata; None for none.
        on_end: called when a call has ended.
        open_count: calls that have been accepted and not answered.
        is_stopping: new calls are refused.
    """

    dataplane: Dataplane
    encoder: ResponseEncoder
    references: References
    admission: Admission
    tracing: Tracing
    forwarding: MetadataForwarding | None
    on_end: Callable[[], None]
    open_count: int = 0
    is_stopping: bool = False


class UnaryInfer:
    """The state of one call; on the loop only. Satisfies `ResponseSink`.

    A transport derives from it and says in `_answer` where the outcome goes. An error is an outcome, not
    raised: it may be shared by a whole batch, and raising would tie each call's frame, and the tensors in it,
    to it.

    Args:
        port: where the call came in.

    Attributes:
        trace: takes notes of the request, when it is traced.
    """

    __slots__ = (
        "__weakref__",
        "_byte_size",
        "_is_abandoned",
        "_is_open",
        "_port",
        "_request",
        "_response",
        "_treatments",
        "trace",
    )

    def __init__(self, port: UnaryPort) -> None:
        self._port = port
        self._byte_size = 0
        self._is_open = False
        self._is_abandoned = False
        self._request: weakref.ref[InferRequest] | None = None
        self._response: InferResponse | None = None
        self._treatments = UNTREATED
        self.trace: RequestTrace | None = None

    def start(self, body: bytes | memoryview, metadata: Metadata = ()) -> None:
        """Hand a serialized `ModelInferRequest` to the data plane; the outcome may come before this returns.

        Args:
            body: the request.
            metadata: what the client sent along, if the servicer reads it.

        Raises:
            TritonError: the request is refused; there is no outcome then.
        """
        port = self._port
        if port.is_stopping:
            raise Unavailable(STOPPING)
        admission = port.admission
        self._byte_size = byte_size = len(body)
        if not admission.admits(byte_size):
            raise admission.refusal(byte_size)
        admission.hold(byte_size)
        port.open_count += 1
        self._is_open = True
        try:
            self._hand_over(body, metadata)
        except BaseException:
            self._close()
            raise

    def cancel(self) -> None:
        """The client has gone away, or its deadline has passed: there will be no outcome."""
        if not self._is_open:
            return
        alive = None if self._request is None else self._request()
        if alive is None or alive.ticket.answered:
            self._close()
            return
        # Its bytes count until the model, which has the tensors, is done with them.
        self._is_open = False
        self._is_abandoned = True
        port = self._port
        port.open_count -= 1
        port.on_end()
        _log.debug("Cancellation notification received for ModelInferHandler", extra=alive.about)
        alive.cancel()

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if not self._is_open:  # answered, or the client is gone
            if final and self._is_abandoned:
                self._is_abandoned = False
                self._port.admission.release(self._byte_size)
            return
        if response is None:
            response = self._response
        elif self._response is not None:
            self._finish(Internal(f"{request.label}expected a single response, got 2"))
            return
        if not final:
            self._response = response
        elif response is None:
            self._finish(Internal(f"{request.label}model '{request.model_name}' sent no response"))
        elif response.error is not None:
            self._finish(response.error)
        else:
            try:
                outcome: bytes | TritonError = self._encode(request, response)
            except Exception as exc:
                where = f"{request.label}writing the response of model '{request.model_name}'"
                outcome = as_triton_error(exc, where, request.id)
            self._finish(outcome)

    def _encode(self, request: InferRequest, response: InferResponse) -> bytes:
        return self._port.encoder.encode(request, response, self._treatments)

    def _answer(self, outcome: bytes | TritonError) -> None:
        """Take what the call ends with; called once at most."""
        raise NotImplementedError

    def _hand_over(self, body: bytes | memoryview, metadata: Metadata) -> None:
        """Make a request of the body; after this the model alone keeps it alive.

        A backend that drops a request without an answer is found out by the request's death.
        """
        port, arrival_ns = self._port, time.monotonic_ns()
        message, raw_contents = parse_infer_request(body)
        model = port.dataplane.find(message.model_name, message.model_version)
        if model.is_decoupled:
            raise Unsupported("ModelInfer RPC doesn't support models with decoupled transaction policy")
        request, _, treatments = to_infer_request(message, raw_contents, port.references)
        if treatments:
            self._treatments = of_model(treatments, model)
        if port.forwarding is not None:
            request.parameters = {**request.parameters, **port.forwarding.parameters(metadata)}
        request.arrival_ns = arrival_ns
        if port.tracing.is_on:
            request.ticket.trace = self.trace = begin_trace(
                port.tracing, metadata, request.model_name, arrival_ns
            )
        self._request = weakref.ref(request)
        model.infer(request, self)

    def _finish(self, outcome: bytes | TritonError) -> None:
        self._close()
        self._answer(outcome)

    def _close(self) -> None:
        """The call is over: it holds nothing any more."""
        if self._is_open:
            self._is_open = False
            self._response = None
            port = self._port
            port.admission.release(self._byte_size)
            port.open_count -= 1
            port.on_end()
