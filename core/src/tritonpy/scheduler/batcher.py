"""Call a model's batching strategy so that it can harm nothing but its own requests."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from tritonpy.errors import InvalidArg, TritonError
from tritonpy.handles import Batch, Batcher, Model
from tritonpy.model.backend import BATCHING_HOOKS, hook_failure
from tritonpy.plugin_files import Binder
from tritonpy.request import InferRequest

_log = logging.getLogger("tritonpy.batching")

_SLOW_SCAN_NS = 1_000_000
_SLOW_SCANS_TO_WARN = 3
_SCANS_IN_VIEW = 100


class BoundStrategy:
    """A batching strategy's hooks, bound for one model version.

    Attributes:
        name: the installed name or the path, for messages.
        model: whose requests are batched.
        bind: gives the implementation of a hook, or None.
        on_slow_scan: called after each scan of the queue in which it took over a millisecond.
    """

    def __init__(
        self, name: str, bind: Binder, model: Model, clock: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        hooks = {hook: bind(hook) for hook in BATCHING_HOOKS}
        missing = [hook for hook in BATCHING_HOOKS[:5] if hooks[hook] is None]
        if missing:
            raise InvalidArg(
                f"batching strategy '{name}' does not define all required custom batching functions for "
                f"model {model.name}: {', '.join(missing)} missing"
            )
        self.name = name
        self.model = model
        self.on_slow_scan: Callable[[], None] | None = None
        self._clock = clock
        self._hooks = hooks
        self.bind = bind  # held as long as the hooks are: see `bind_file`
        self._batcher = Batcher(model)
        self._batch: Batch | None = None
        self._life = threading.Lock()  # a load that is given up ends the strategy while it still begins
        self._is_open = False
        self._is_ended = False
        self._admit = hooks["model_batcher_admit_request"]
        self._initialize = hooks["model_batch_initialize"]
        self._include_many = hooks["model_batch_include_requests"]
        self._padded_size = hooks["model_batch_padded_size"]
        self._scan_start_ns: int | None = None  # of one that has begun an attempt
        self._has_refused_alone = False
        self._scan_count = 0
        self._slow_scans: deque[int] = deque(maxlen=_SLOW_SCANS_TO_WARN)
        self._has_warned = False

    @property
    def blame(self) -> str:
        """The running hook as the log names it should it never return; see `stop_signals`."""
        return f"batching strategy '{self.name}' of model '{self._batcher.model.name}'"

    def open(self) -> None:
        """Call `model_batcher_initialize`; blocking, on a loading thread."""
        model = self._batcher.model
        with self._life:
            try:
                self._batcher.state = self._call("model_batcher_initialize", model)
            except Exception as exc:
                raise hook_failure(
                    f"batching strategy '{self.name}' failed to initialize for model '{model.name}'", exc
                ) from exc
            self._is_open = True
        if self._is_ended:
            self._finalize()

    def close(self) -> None:
        """Finalise what is open; blocking. An `open` that is still under way does it when it is over."""
        self._is_ended = True
        if not self._life.locked():
            self._finalize()

    def _finalize(self) -> None:
        with self._life:
            if self._is_open:
                self._is_open = False
                self.end()
                self._call_and_log("model_batcher_finalize", self._batcher)

    def admit(self, request: InferRequest) -> None:
        """Note what is needed of a request that has entered the queue.

        Raises:
            TritonError: the request fails with it.
        """
        if self._admit is not None:
            try:
                request.batching_state = self._admit(self._batcher, request)
            except BaseException as exc:
                raise self._request_failure(request, exc) from exc

    def begin(self, head: InferRequest) -> TritonError | None:
        """A new attempt starts, with this request at its head; an error fails that one."""
        assert self._initialize is not None  # checked when bound
        self._scan_start_ns = self._clock()
        try:
            self._batch = Batch(self._batcher, self._initialize(self._batcher))
        except BaseException as exc:
            return self._request_failure(head, exc)
        return None

    def refused_alone(self, request: InferRequest) -> None:
        """A request may not even join an empty batch; it runs alone."""
        if self._has_refused_alone:
            return
        self._has_refused_alone = True
        _log.warning(
            "%sbatching strategy '%s' refuses a request of model '%s' even for an empty batch; it runs alone "
            "and so will others that are refused like it (said once for each load of the model)",
            request.label,
            self.name,
            self._batcher.model.name,
            extra=request.about,
        )

    def accept(self, requests: Sequence[InferRequest]) -> tuple[int, TritonError | None]:
        """The number of these requests, from the first on, that may join.

        The error, if any, belongs to the first request that may not.
        """
        start = self._scan_start_ns
        self._scan_start_ns = None
        if start is None:
            start = self._clock()
        try:
            return self._accept(requests)
        finally:
            self._scan_count += 1
            if self._clock() - start > _SLOW_SCAN_NS:
                self._note_slow_scan()

    def padded_size(self, rows: int) -> int:
        """The rows that the attempt's batch is executed with; `rows`, where nothing is added."""
        if self._padded_size is None:
            return rows
        try:
            return int(self._padded_size(self._batch, rows))
        except BaseException:
            _log.exception("batching strategy '%s' failed; the batch is not padded", self.name)
            return rows

    def end(self) -> None:
        """The attempt is over."""
        batch, self._batch = self._batch, None
        if batch is not None:
            self._call_and_log("model_batch_finalize", batch)

    def _accept(self, requests: Sequence[InferRequest]) -> tuple[int, TritonError | None]:
        batch = self._batch
        if self._include_many is not None:
            try:
                return self._answer(self._include_many(batch, requests), requests)
            except BaseException:
                # Which request it stumbled over is not known: ask for each, so that only that one fails.
                _log.exception("batching strategy '%s' failed; asking request by request", self.name)
        for index, request in enumerate(requests):
            try:
                if not self._call("model_batch_include_request", request, batch):
                    return index, None
            except BaseException as exc:
                return index, self._request_failure(request, exc)
        return len(requests), None

    def _answer(
        self, answer: int | tuple[int, Exception], requests: Sequence[InferRequest]
    ) -> tuple[int, TritonError | None]:
        """The answer of `model_batch_include_requests`, limited to the requests asked about."""
        if not isinstance(answer, tuple):
            return max(0, min(int(answer), len(requests))), None
        count = max(0, min(int(answer[0]), len(requests) - 1))
        return count, self._request_failure(requests[count], answer[1])

    def _request_failure(self, request: InferRequest, exc: BaseException) -> TritonError:
        _log.error("%sbatching strategy '%s' failed: %r", request.label, self.name, exc, extra=request.about)
        return hook_failure(f"{request.label}batching strategy '{self.name}' failed", exc)

    def _note_slow_scan(self) -> None:
        if self.on_slow_scan is not None:
            self.on_slow_scan()
        # A single one may have waited for a thread that holds the interpreter; over weeks those add up.
        slow = self._slow_scans
        slow.append(self._scan_count)
        if len(slow) < _SLOW_SCANS_TO_WARN or slow[-1] - slow[0] >= _SCANS_IN_VIEW or self._has_warned:
            return
        self._has_warned = True
        _log.warning(
            "batching strategy '%s' of model '%s' repeatedly takes over 1 ms for a scan of the queue; "
            "every request of this server waits meanwhile",
            self.name,
            self._batcher.model.name,
        )

    def _call(self, hook: str, *args: object) -> object:
        function = self._hooks[hook]
        assert function is not None  # checked when bound
        return function(*args)

    def _call_and_log(self, hook: str, *args: object) -> object:
        try:
            return self._call(hook, *args)
        except BaseException:
            _log.exception("%s of batching strategy '%s' failed", hook, self.name)
            return None
