"""An instance of a model: executes batches, checks what the model returns, and answers."""

from __future__ import annotations

import threading
import time
from _queue import SimpleQueue  # the C part alone: its `put` may be called from a finalizer
from collections.abc import Callable, Sequence
from typing import Any, Optional

from triton_python_backend_utils import InferenceRequest, InferenceResponse, TritonModelException
from triton_python_backend_utils._server_metrics import flush_metrics
from triton_python_backend_utils._wire import (
    Answer,
    close,
    decode_request,
    discard,
    encode_response,
    finish,
    has_sender,
    is_rescheduled,
    requested_of,
    slot_of,
)

from .channel import Channel, frame, window
from .failure import BadResult, Failure, describe
from .failure_log import FailureLog
from .link import ServerLink, own_batch
from .model_file import JsonObject, ModelFile
from .output import end_line, own_requests

_INTERNAL = 1


Outcome = tuple[  # evaluated, also by Python 3.9
    tuple[int, int, int, int],
    Optional[list[Answer]],  # noqa: UP045
    Optional[Failure],  # noqa: UP045
]
"""What EXECUTED says of a batch: times, answers, failure."""


class ModelInstance:
    """A `TritonPythonModel` at work; it is the `Server` of its requests.

    Args:
        channel: where answers go.
        link: the server as the model reaches it.
        file: the file the model came from.
        model: the initialized model.
        spec: what INITIALIZE says.

    Attributes:
        is_decoupled: whether a request may have any number of responses.
        max_batch_size: 0 for a model that does not batch.
        outputs: the outputs in the configuration, and the states it gives back; and whether each is BF16.
        is_probed: the model has an `is_ready` to be asked.
    """

    def __init__(
        self, channel: Channel, link: ServerLink, file: ModelFile, model: Any, spec: JsonObject
    ) -> None:
        config = spec["config"]
        self.name: str = spec["name"]
        self.is_decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled", False))
        self.max_batch_size: int = config.get("max_batch_size", 0)
        self.outputs: dict[str, bool] = {
            output["name"]: output.get("data_type") == "TYPE_BF16" for output in config.get("output", ())
        }
        for state in config.get("sequence_batching", {}).get("state", ()):
            self.outputs[state["output_name"]] = state["data_type"] == "TYPE_BF16"
        self.is_probed = callable(getattr(model, "is_ready", None))
        self._model_name = file.name
        self._model = model
        self._channel = channel
        self._link = link
        self._takes_several = spec.get("concurrent_batches", 1) > 1
        self._endpoint = channel.endpoint
        self._execute: Callable[[list[InferenceRequest]], Any] = getattr(model, "execute", self._no_execute)
        self._path = file.path
        self._failures = FailureLog(channel, self.name, file.path, file.settings)
        self._marks: dict[int, int] = {}  # by slot: when its execution began, or its last response was sent
        self._windows: dict[int, Any] = {}  # by slot; Any: `SendWindow` of the ipc package
        self._abandoned: SimpleQueue[tuple[int, str] | None] = SimpleQueue()
        self._reaper: threading.Thread | None = None
        self._coroutines: Any = None  # Any: `Coroutines`, imported when needed
        self._is_forked = False

    def execute(self, batch: int, wires: Sequence[tuple[Any, ...]]) -> None:  # Any: see `frame.py`
        """Run one batch and say that it is done."""
        link = self._link
        own_batch.set(batch)
        own_requests.set(wires)
        if not (self.is_decoupled or self._takes_several):
            link.running_batch = batch
        outcome = self._run(batch, wires)
        link.running_batch = 0
        end_line()
        flush_metrics()
        if outcome is not None:
            # The requests are gone by now, so this frame takes along the blocks their inputs were in.
            self._channel.send(frame.EXECUTED, batch, *outcome)

    def probe(self) -> tuple[bool, str | None]:
        """Ask the model's `is_ready`, plain or async; with the text of what it raised, if anything."""
        own_requests.set(())
        try:
            answer = self._model.is_ready()
            if hasattr(answer, "__await__"):
                answer = self._event_loop().wait(answer)
            if isinstance(answer, bool):
                return answer, None
            return False, f"is_ready must return a bool, got {type(answer).__name__}"
        except BaseException as exc:
            return False, describe(exc)

    def finalize(self) -> None:
        """Let the model clean up."""
        own_requests.set(())
        finalize = getattr(self._model, "finalize", None)
        try:
            if finalize is not None:
                finalize()
        finally:
            self._abandoned.put(None)
            if self._coroutines is not None:
                self._coroutines.close()

    def refuse_responses(self) -> None:
        """Have senders raise from now on; in a forked child, whose parent answers the requests."""
        self._is_forked = True

    def is_cancelled(self, slot: int) -> bool:
        return self._channel.is_cancelled(slot)

    def wait_to_send(self, slot: int) -> None:
        own = self._windows.get(slot)
        if own is not None and not self._is_forked:
            own.wait()

    def respond(
        self, slot: int, requested: tuple[str, ...] | None, response: InferenceResponse | None, final: bool
    ) -> None:
        if self._is_forked:
            raise TritonModelException(
                "Unable to send response. This process was forked by the model's: only that one can send "
                "responses."
            )
        computed_ns = time.monotonic_ns() if self.is_decoupled else 0
        answer = None
        if response is not None:
            answer = encode_response(response, requested, self.outputs, self._endpoint)
        flush_metrics()
        self._send_response(slot, answer, final, computed_ns)

    def abandon(self, slot: int, request_id: str) -> None:
        # Perhaps inside a garbage collection, in a thread that holds the channel's lock: only note it here.
        self._abandoned.put((slot, request_id))

    def _run(self, batch: int, wires: Sequence[tuple[Any, ...]]) -> Outcome | None:
        clock = time.monotonic_ns
        start = clock()
        requests = [decode_request(wire, self, self._endpoint) for wire in wires]
        answers: list[Answer] | None = None
        failure: Failure | None = None
        begin = clock()
        if self.is_decoupled:
            for wire in wires:
                self._marks[wire[0]] = begin
                self._windows[wire[0]] = window.SendWindow()
            window.execute_several(len(wires) > 1)
        end = 0
        try:
            outcome = self._execute(list(requests))  # a list of its own: a model may take requests out of it
            if outcome is not None and type(outcome) is not list and hasattr(outcome, "__await__"):
                if self._takes_several and not self.is_decoupled:
                    self._await_apart(batch, outcome, requests, start, begin)
                    return None
                outcome = self._await(outcome, requests)
            end = clock()
            answers = self._answers(requests, outcome)
        except BaseException as exc:  # SystemExit too: a fault of a model costs its batch only
            end = end or clock()
            failure = self._fail(requests, self._failures.failure(exc))
        return (start, begin, end, clock()), answers, failure

    def _answers(self, requests: list[InferenceRequest], outcome: Any) -> list[Answer] | None:
        if outcome is None:
            self._leave_open(requests)
            return None
        self._check(requests, outcome)
        for request, response in zip(requests, outcome):  # noqa: B905 (Python 3.9)
            if response is None or has_sender(request):
                self._answer_apart(requests, outcome)
                return None
        outputs, endpoint = self.outputs, self._endpoint
        answers: list[Answer] = []
        try:
            for request, response in zip(requests, outcome):  # noqa: B905 (Python 3.9)
                answers.append(encode_response(response, requested_of(request), outputs, endpoint))
        except BaseException:
            discard(answers, endpoint)
            raise
        for request in requests:
            finish(request)
        return answers

    def _check(self, requests: list[InferenceRequest], outcome: Any) -> None:
        if self.is_decoupled:
            raise BadResult(
                f"Python model '{self.name}' is using the decoupled mode and the execute function "
                f"must return None."
            )
        if not isinstance(outcome, list):
            raise BadResult(f"Expected a list in the execute return, found type '{type(outcome)}'.")
        if len(outcome) != len(requests):
            raise BadResult(
                f"Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, "
                f"and InferenceResponse(s) size is:{len(outcome)}\n"
            )
        for request, response in zip(requests, outcome):  # noqa: B905 (Python 3.9)
            if response is None:
                continue
            if not isinstance(response, InferenceResponse):
                raise BadResult(
                    f"Expected an 'InferenceResponse' object in the execute function return list, "
                    f"found type '{type(response)}'."
                )
            if is_rescheduled(request):  # Triton's spelling
                raise BadResult(
                    f"Expected a None object in the execute function return list for reschduled request, "
                    f"found type '{type(response)}'."
                )

    def _answer_apart(
        self, requests: list[InferenceRequest], outcome: list[InferenceResponse | None]
    ) -> None:
        """Some requests are answered by the list, others by their senders."""
        for request, response in zip(requests, outcome):  # noqa: B905 (Python 3.9)
            if response is None:
                self._leave_open([request])
            elif close(request):
                self._respond_or_fail(request, response)
            else:
                self._channel.send(
                    frame.LOG,
                    2,
                    f"Failed to process the request(s) for model '{self.name}', message: Unable to send "
                    f"response. Non-decoupled model cannot send more than one response.",
                    request.request_id(),
                    self._path,
                    0,
                    "",
                )

    def _respond_or_fail(self, request: InferenceRequest, response: InferenceResponse) -> None:
        try:
            self.respond(slot_of(request), requested_of(request), response, True)
        except Exception as exc:
            self._send_error(request, self._failures.failure(exc))

    def _fail(self, requests: list[InferenceRequest], failure: Failure) -> Failure:
        """Send nothing more: the server answers all open requests with this."""
        waiting = [request for request in requests if close(request)]
        for request in waiting:
            self._end_window(slot_of(request))
        if not waiting:
            self._failures.insist(failure)
        return failure

    def _end_window(self, slot: int) -> None:
        """Nothing more is sent to the request in this slot."""
        own = self._windows.pop(slot, None)
        permission = own.end() if own is not None else None
        if permission is not None:
            permission.close()

    def _send_error(self, request: InferenceRequest, failure: Failure) -> None:
        self._send_response(slot_of(request), ([], None, failure), True, time.monotonic_ns())

    def _send_response(self, slot: int, answer: Answer | None, final: bool, computed_ns: int) -> None:
        """Send one response of a request that answers by itself, with the time it took."""
        durations = None
        if self.is_decoupled:
            ready_ns = time.monotonic_ns()
            durations = computed_ns - self._marks[slot], ready_ns - computed_ns
            self._marks[slot] = ready_ns
        if final:
            # Before the frame: once the server has it, the slot may belong to another request.
            self._end_window(slot)
        self._channel.send(frame.RESPONSE, slot, answer, final, durations)
        own = self._windows.get(slot) if not final else None
        if own is not None:
            byte_size = 0
            for _, _, _, data in answer[0] if answer is not None else ():
                byte_size += len(data) if isinstance(data, bytes) else data[1]
            own.sent(byte_size, lambda: self._link.ask_to_go_on(slot))

    def _leave_open(self, requests: list[InferenceRequest]) -> None:
        """The model answers these later; should it forget one, its sender's end is noticed."""
        for request in requests:
            if is_rescheduled(request):
                if close(request):  # or it has had its final response
                    self._channel.send(frame.RESCHEDULE, slot_of(request))
            else:
                request.get_response_sender()
        if self._reaper is None:
            self._reaper = threading.Thread(target=self._reap, name="abandoned-requests", daemon=True)
            self._reaper.start()

    def _reap(self) -> None:
        while True:
            abandoned = self._abandoned.get()
            if abandoned is None:
                return
            slot, request_id = abandoned
            text = (
                f"[request id: {request_id or '<id_unknown>'}] model '{self._model_name}' "
                f"dropped the request without a final response"
            )
            self._send_response(slot, ([], None, (_INTERNAL, text)), True, time.monotonic_ns())

    def _await_apart(
        self, batch: int, awaitable: Any, requests: list[InferenceRequest], start: int, begin: int
    ) -> None:
        """Let a batch go on beside others; it is answered when it is done."""

        def on_done(outcome: Any, error: BaseException | None) -> None:
            clock = time.monotonic_ns
            end = clock()
            answers: list[Answer] | None = None
            failure: Failure | None = None
            try:
                if error is not None:
                    raise error
                answers = self._answers(requests, outcome)
            except BaseException as exc:
                failure = self._fail(requests, self._failures.failure(exc))
            requests.clear()
            end_line()
            flush_metrics()
            self._channel.send(frame.EXECUTED, batch, (start, begin, end, clock()), answers, failure)

        self._event_loop().start(awaitable, on_done)

    def _event_loop(self) -> Any:  # Any: `Coroutines`, imported when needed
        if self._coroutines is None:
            from .coroutines import Coroutines  # late: asyncio is slow to import

            self._coroutines = Coroutines()
        return self._coroutines

    def _await(self, awaitable: Any, requests: list[InferenceRequest]) -> Any:
        if not self.is_decoupled:
            return self._event_loop().wait(awaitable)

        def on_done(outcome: Any, error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                if outcome is not None:
                    self._check(requests, outcome)
            except BaseException as exc:
                failure = self._failures.failure(exc)
                waiting = [request for request in requests if close(request)]
                for request in waiting:
                    self._send_error(request, failure)
                if not waiting:
                    self._failures.insist(failure)
            end_line()

        self._event_loop().start(awaitable, on_done)
        return None

    def _no_execute(self, _: list[InferenceRequest]) -> None:
        raise BadResult(f"Python model {self._path} does not implement `execute` method.")
