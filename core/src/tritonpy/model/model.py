"""One loaded version of one model: its check, its scheduler, its instances, its numbers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Protocol

from tritonpy.buffers import MemoryType
from tritonpy.errors import ErrorCode, Internal, TritonError, Unavailable
from tritonpy.flow import Pauses
from tritonpy.handles import JsonObject, MemoryUsage, Model
from tritonpy.model.execution import Instance
from tritonpy.model.instance_set import InstanceChange, InstanceSet
from tritonpy.model.signature import Signature
from tritonpy.request import COUNTS_AS_FAILURE, InferRequest, ResponseSink
from tritonpy.reshape import read_reshape
from tritonpy.response import InferResponse
from tritonpy.response_clock import ResponseClock
from tritonpy.stats import ModelStats

_log = logging.getLogger("tritonpy.model")


class RequestScheduler(Protocol):
    """The scheduler of a loaded model; see `tritonpy.scheduler`."""

    def enqueue(self, request: InferRequest) -> None:
        """Take a checked request."""

    def use(self, instances: Sequence[Instance]) -> None:
        """Feed these instances from now on."""

    def refuse(self, error: TritonError | None) -> None:
        """Fail what waits and refuse what comes, until called with None."""

    def close(self, error: TritonError) -> None:
        """Stop for good."""


class OpenSequences(Protocol):
    """The sequences of a model, which go on from one request to the next."""

    @property
    def open_sequence_count(self) -> int:
        """Those that have begun and are not over."""
        ...

    async def end_sequences(self, error: TritonError) -> None:
        """Wait until they have ended; new ones are refused with `error`."""


class LoadedModel:
    """A model version that takes requests; owned by the loop; see `RequestOwner`.

    Attributes:
        name: the model's name.
        version: its version number.
        version_text: the same as clients write it.
        config: the normalised configuration as a plain dict.
        is_decoupled: whether requests may get any number of responses.
        signature: the compiled check of its requests.
        inputs, outputs: what the configuration says of each, by name.
        max_batch_size: rows of a batch; 0 for a model that does not batch.
        stats: its counters.
        instances: its execution slots; they may be exchanged while it serves.
        strategy_name: the batching strategy, "" for none.
        load_duration_s: how long loading took.
        labels: names of the elements of outputs, by output and index.
        steps: the models that an ensemble is made of, each once.
        generation: differs between loads whose answers may differ.
        sequences: of a model that has some.
        pauses: the steps of ensembles that pause it.

    Args:
        instance_set: has the instances.
        close: finalises instances, strategy, model and backend; with an error, that answers what still runs.
        is_debugged: outputs that contradict the configuration are errors, not one warning.
    """

    def __init__(
        self,
        handle: Model,
        signature: Signature,
        stats: ModelStats,
        scheduler: RequestScheduler,
        instance_set: InstanceSet,
        close: Callable[[TritonError | None], Awaitable[None]],
        *,
        strategy_name: str = "",
        load_duration_s: float = 0.0,
        labels: Mapping[str, Sequence[bytes]] | None = None,
        steps: Sequence[LoadedModel] = (),
        generation: bytes = b"",
        sequences: OpenSequences | None = None,
        is_debugged: bool = False,
    ) -> None:
        self.handle = handle
        self.name = handle.name
        self.version = handle.version
        self.version_text = str(handle.version)
        self.config: JsonObject = handle.config
        self.is_decoupled = handle.is_decoupled
        self.signature = signature
        self.inputs = signature.inputs
        self.outputs = signature.outputs
        self.max_batch_size = signature.max_batch_size
        self.stats = stats
        self.scheduler = scheduler
        self.instance_set = instance_set
        self.instances: Sequence[Instance] = instance_set.instances
        self.strategy_name = strategy_name
        self.load_duration_s = load_duration_s
        self.labels = labels or {}
        self.steps = steps
        self.generation = generation
        self.sequences = sequences
        self.pauses = Pauses()
        self._user_count = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._reshape = read_reshape(self.config)
        self._is_debugged = is_debugged
        self._has_contradicted = False
        self._close = close
        self._inflight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._down: TritonError | None = None
        scheduler.use(self.instances)

    @property
    def is_ready(self) -> bool:
        """True if at least one instance would take an execution now, or soon will have finished one.

        An ensemble is, when all its models are.
        """
        return self._down is None and all(step.is_ready for step in self.steps)

    @property
    def down_reason(self) -> str:
        """The reason for not being ready; "" while it is."""
        if self._down is None:
            return next((step.down_reason for step in self.steps if not step.is_ready), "")
        return self._down.message

    @property
    def inflight_count(self) -> int:
        """Requests accepted and not finally answered."""
        return self._inflight

    @property
    def memory_usage(self) -> list[MemoryUsage]:
        """Memory that the model and its instances have reported to use, added up for each kind and device."""
        totals: dict[tuple[MemoryType, int], int] = {}
        for usage in chain(self.handle.memory_usage, *(each.memory_usage for each in self.instances)):
            place = usage.memory_type, usage.device_id
            totals[place] = totals.get(place, 0) + usage.byte_size
        return [MemoryUsage(*place, byte_size) for place, byte_size in sorted(totals.items())]

    def infer(self, request: InferRequest, sink: ResponseSink) -> None:
        """Check a request and queue it; its responses go to `sink`.

        Raises:
            TritonError: the request does not fit the model, or nothing can run it now; the sink gets nothing.
        """
        ticket = request.ticket
        ticket.sink = sink
        trace = ticket.trace
        if trace is not None:
            trace.started(request.model_name, request.model_version, request.id)
        self.signature.check(request)
        reshape = self._reshape
        if reshape is not None:
            request.inputs = reshape.to_model(request.inputs)
            ticket.reshape = reshape
        request.model_version = self.version_text
        ticket.owner = self
        if self.is_decoupled:
            ticket.clock = ResponseClock(self.stats)
        self._inflight += 1
        if self._inflight == 1:
            self._idle.clear()
        if trace is not None:
            trace.queued(request.model_version, request.inputs.values())
        try:
            self.scheduler.enqueue(request)
        except BaseException:
            ticket.owner = None
            self._finish_one()
            raise

    def check_outputs(self, request: InferRequest, response: InferResponse) -> InferResponse:
        if self._has_contradicted and not self._is_debugged:
            return response
        batch_size = 0 if self.is_decoupled else request.batch_size
        contradiction = self.signature.contradiction(response.outputs, batch_size)
        if not contradiction:
            return response
        if self._is_debugged:
            error = Internal(f"model '{self.name}' version {self.version}: {contradiction}")
            return InferResponse(error=error)
        self._has_contradicted = True
        _log.warning(
            "model '%s' version %d: %s. Clients get it as it is; this is logged once, and is an error with "
            "--debug-model=%s",
            self.name,
            self.version,
            contradiction,
            self.name,
            extra=request.about,
        )
        return response

    def request_finished(self, request: InferRequest, error: TritonError | None) -> None:
        if request.ticket.tally:
            self._count_late(request, error)
        self._finish_one()

    def exchange(self, change: InstanceChange, config: JsonObject) -> None:
        """Go on with other instances; everything else stays, what waits and what was counted too.

        Args:
            change: prepared by its instance set.
            config: the configuration that asks for it.
        """
        self.handle.config = self.config = config
        self.instance_set.switch(change)
        self.instances = self.instance_set.instances
        self.scheduler.use(self.instances)
        if any(instance.is_ready for instance in self.instances):
            self.instance_up()

    def instance_down(self, error: TritonError) -> None:
        """An instance cannot be brought back for now; with no other left, requests are refused."""
        if not any(instance.is_ready for instance in self.instances):
            self._down = Unavailable(
                f"model '{self.name}' version {self.version} has no live instance: {error}"
            )
            self.scheduler.refuse(self._down)

    def instance_up(self) -> None:
        """An instance takes executions again."""
        if self._down is not None:
            self._down = None
            self.scheduler.refuse(None)

    async def probe(self) -> bool:
        """True if requests are taken and, where the model can be asked, one of its instances is ready."""
        if not self.is_ready:
            return False
        if self.steps:
            return all(await asyncio.gather(*(step.probe() for step in self.steps)))
        return any(await asyncio.gather(*(instance.probe() for instance in self.instances)))

    @property
    def all_models(self) -> frozenset[LoadedModel]:
        """Itself and, of an ensemble, all that it is made of."""
        return frozenset((self,)).union(*(step.all_models for step in self.steps))

    def hold(self) -> None:
        """Count an ensemble that is made of it, and must be closed before it."""
        self._user_count += 1
        self._unused.clear()

    def release(self) -> None:
        """Such an ensemble is closed: undo `hold`."""
        self._user_count -= 1
        if not self._user_count:
            self._unused.set()

    async def unused(self) -> None:
        """Wait until all ensembles that are made of it are closed."""
        await self._unused.wait()

    async def drain(self) -> None:
        """Wait until every accepted request is answered."""
        await self._idle.wait()

    async def close(self, error: TritonError) -> None:
        """Answer what still waits with `error`, then finalise instances, strategy and model.

        What still runs is answered with `error` too, and its instances are not waited for: callers that
        can wait call `drain` first.
        """
        self.scheduler.close(error)
        await self._close(error if self._inflight else None)

    def _count_late(self, request: InferRequest, error: TritonError | None) -> None:
        """Count a request that was open when its execution was over."""
        duration_ns = time.monotonic_ns() - request.queue_start_ns
        if request.ticket.is_given_up or (error is not None and error.code is ErrorCode.CANCELLED):
            self.stats.count_failure("CANCELED", duration_ns)
        elif request.ticket.tally == COUNTS_AS_FAILURE:
            self.stats.count_failure("BACKEND", duration_ns)
        else:
            self.stats.count_success(duration_ns)

    def _finish_one(self) -> None:
        self._inflight -= 1
        if self._inflight == 0:
            self._idle.set()
