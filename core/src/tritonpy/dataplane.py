"""The server as its frontends see it; it knows no protocol, and nothing behind it knows a frontend."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tritonpy.admission import Admission
from tritonpy.errors import Unsupported
from tritonpy.handles import JsonObject
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.request_trace import ServerTrace
from tritonpy.response import InferResponse


@dataclass(frozen=True, slots=True)
class Unready:
    """The reason why the server is not ready.

    Attributes:
        reason: in words.
        models: rows as in the repository index, of what is in the way.
    """

    reason: str
    models: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model, as its configuration has it.

    Attributes:
        name: the tensor's name.
        datatype: protocol name, such as `FP32`.
        shape: as clients see it: a leading -1 when the model batches; -1 for any size.
        optional: a request may leave the input out.
        is_shape_tensor: it has no dimension for the batch.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False
    is_shape_tensor: bool = False


class ModelActivity(NamedTuple):
    """What a model version has under way now, and has done since it was loaded: cheap to ask for often.

    Attributes:
        name: the model.
        version: its number.
        inflight_count: requests that it has accepted and not finally answered.
        pending_count: those of them that wait for an execution.
        executed_count: requests that were executed.
        queue_ns: what they waited for that, added up.
        compute_ns: what their executions took, added up; each request counts the whole of its batch.
        instance_count: instances that execute; 0 for an ensemble.
    """

    name: str
    version: int
    inflight_count: int
    pending_count: int
    executed_count: int
    queue_ns: int
    compute_ns: int
    instance_count: int


class ServedModel(Protocol):
    """A model version that takes requests.

    It may be replaced or unloaded at any time, so find it anew after each `await`.
    """

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def version(self) -> int:
        """The version's number."""

    @property
    def config(self) -> JsonObject:
        """The normalised configuration; not to be changed."""

    @property
    def is_decoupled(self) -> bool:
        """True if a request may get any number of responses, or none but a final flag."""

    @property
    def max_batch_size(self) -> int:
        """Rows of a batch; 0 for a model that does not batch."""

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """The inputs by name."""

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """The outputs by name."""

    @property
    def labels(self) -> Mapping[str, Sequence[bytes]]:
        """Names of the elements of outputs, by output and index; an output without labels is left out."""

    def infer(self, request: InferRequest, sink: ResponseSink) -> None:
        """Accept a request.

        Args:
            request: names this model; its inputs are checked here.
            sink: gets the responses, exactly one of them final.

        Raises:
            TritonError: the request is refused; the sink gets nothing.
        """


class Dataplane(Protocol):
    """The server as a frontend sees it; on the loop only.

    Versions are strings as the client wrote them, "" for the newest ready one. Methods that take a model
    raise `NotFound`, `Unavailable` or `InvalidArg` with Triton's text when there is no such version.
    """

    def find(self, name: str, version: str = "") -> ServedModel:
        """The model version that a client means, to infer or for its configuration."""

    def is_live(self) -> bool:
        """True unless the server cannot serve any model."""

    def is_ready(self) -> bool:
        """True if every model that should serve does; see `--strict-readiness`."""

    def why_not_ready(self) -> Unready | None:
        """The reason why `is_ready` is False; None if it is True."""

    async def model_ready(self, name: str, version: str = "") -> bool:
        """True if a model version takes requests and its backend, if it can be asked, says so too.

        An unknown model is not ready.
        """

    async def why_model_not_ready(self, name: str, version: str = "") -> str:
        """The reason why `model_ready` is False; "" if it is True."""

    def server_metadata(self) -> JsonObject:
        """Name, version and extensions of the server."""

    def model_metadata(self, name: str, version: str = "") -> JsonObject:
        """Versions, platform, inputs and outputs of a model."""

    def model_statistics(self, name: str = "", version: str = "") -> JsonObject:
        """`model_stats` of one version, of all versions of a model, or of everything."""

    def model_activity(self) -> Sequence[ModelActivity]:
        """What every loaded model version has under way; for those who look several times a second."""

    def model_explanation(self, name: str, version: str = "") -> JsonObject:
        """`models`: what one version does with its requests, or all versions of a model that are loaded."""

    async def repository_index(self, ready: bool = False) -> list[JsonObject]:
        """Name, version, state and reason of every model version, or of the ready ones only."""

    def check_model_control(self) -> None:
        """Refuse to load and unload, before a large request is read.

        Raises:
            Unavailable: the server does not do it, or not now.
        """

    async def load_model(
        self,
        name: str,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Load a model, or load it anew beside itself; returns when it serves.

        Args:
            name: the model.
            config: its configuration as JSON; None for what lies in its directory.
            files: contents by path, such as `file:1/model.py`; with any, these are all the files there are.
            force: also when nothing has changed.

        Raises:
            TritonError: what served before still does.
        """

    async def unload_model(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service; it is finalised when it has answered what it accepted.

        Raises:
            Unavailable: the server does not unload on request.
        """

    async def offer_model(
        self, name: str, config: JsonObject, files: Mapping[str, bytes], backend: object
    ) -> None:
        """Serve a model that a frontend brings itself, in any control mode; returns when it serves.

        It takes the place of one that was offered by that name before, which answers what it has accepted.

        Args:
            name: the model.
            config: its configuration, in the shape of `GET …/config`.
            files: contents by path, such as `file:1/weights`; at least one in the directory of a version.
            backend: executes it: a plugin object of the kind `backends`, known from now on by the name that
                the configuration has as `backend`. All models of one name of a backend have the same object.

        Raises:
            AlreadyExists: a model of that name is served that was not offered, or another backend has the
                name of this one.
            Unavailable: the server stops.
            TritonError: it cannot be served; what was offered before still is.
        """

    async def withdraw_model(self, name: str, backend: str) -> None:
        """Take a model out of service that was offered; nothing happens where another one has its place.

        Returns before the requests that it has accepted are answered.

        Args:
            name: the model.
            backend: its name in the configuration.
        """


class Address(NamedTuple):
    """A place on the network that a frontend listens on.

    Attributes:
        host: an address of this machine, or a name for one or several.
        port: 0 lets the system choose.
        is_shared: other servers may listen on the same port.
    """

    host: str
    port: int
    is_shared: bool = False


class Tracer(Protocol):
    """Decides which requests are traced."""

    def begin(
        self, model_name: str, traceparent: str | None = None, tracestate: str | None = None
    ) -> ServerTrace | None:
        """The trace of a request that has just come; None when it is not traced."""


class _OneResponse(asyncio.Future[InferResponse]):
    """The response of a model that gives one."""

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if response is not None and not self.done():  # it may have been cancelled
            self.set_result(response)


@dataclass(slots=True)
class Frontend:
    """A way in, as its plugin sees it; on the loop only.

    Attributes:
        name: the name of its entry point.
        settings: what `--frontend-config` says to it, by key.
        dataplane: the server, as HTTP and gRPC see it.
        admission: counts the bytes of requests that are held, for all frontends together.
        addresses: that it listens on, for the frontend to set: in `frontend_initialize` as they are wanted,
            so that the server refuses those that cannot be had before it loads models; in `frontend_start`
            with the ports that the system chose.
        state: the plugin's own.
        tracer: decides what `trace` does.
    """

    name: str
    settings: Mapping[str, str]
    dataplane: Dataplane
    admission: Admission = field(default_factory=lambda: Admission(0))
    addresses: Sequence[Address] = ()
    state: Any = None  # Any: the plugin's own
    tracer: Tracer | None = None
    _drained: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)
    _end_s: float = field(default=math.inf, init=False, repr=False)

    def trace(
        self, request: InferRequest, traceparent: str | None = None, tracestate: str | None = None
    ) -> None:
        """Have a request traced, where tracing chooses it; before it is given to its model.

        Args:
            request: has just come.
            traceparent: the header of this name, of W3C Trace Context.
            tracestate: likewise.
        """
        if self.tracer is not None:
            request.ticket.trace = self.tracer.begin(request.model_name, traceparent, tracestate)

    async def infer(self, model: ServedModel, request: InferRequest) -> InferResponse:
        """Have a model answer a request; it is cancelled with the task that waits, as when its client leaves.

        Args:
            model: has just been found.
            request: names it.

        Raises:
            Unsupported: the model is decoupled; `ServedModel.infer` asks such a model.
            TritonError: the request is refused, or has failed.
        """
        if model.is_decoupled:
            raise Unsupported(f"model '{model.name}' is decoupled: it gives any number of responses")
        waiting = _OneResponse()
        model.infer(request, waiting)
        try:
            response = await waiting
        except asyncio.CancelledError:
            request.cancel()
            raise
        if response.error is not None:
            raise response.error
        return response

    async def drained(self) -> None:
        """Return when the stopping server has answered every request and unloaded its models."""
        await self._drained.wait()

    @property
    def left_s(self) -> float:
        """Seconds that a stopping server still gives to requests under way; infinite before it stops."""
        return max(0.0, self._end_s - asyncio.get_running_loop().time())

    # For the server only.

    def begin_stop(self, left_s: float) -> None:
        """The server stops: requests are answered for `left_s` more seconds."""
        self._end_s = asyncio.get_running_loop().time() + left_s

    def set_drained(self) -> None:
        """No request is left, and no model."""
        self._drained.set()
