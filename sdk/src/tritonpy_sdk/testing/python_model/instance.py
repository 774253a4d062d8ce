"""A Python model under test at work: the worker's own code for an instance, on a thread of this process.

Imports the Python backend, so it is imported only when a model is loaded.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from itertools import count
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast

import triton_python_backend_utils as pb_utils
from triton_python_backend_utils._errors import ErrorCode
from triton_python_backend_utils._link import forget_link, set_link
from triton_python_backend_utils._logger import LogLevel
from triton_python_backend_utils._model_control import running
from triton_python_backend_utils._wire import slot_of
from tritonpy.errors import Cancelled, Internal, InvalidArg, TritonError, Unavailable
from tritonpy.handles import JsonObject
from tritonpy.model.placement import place_instances
from tritonpy.model.signature import Signature
from tritonpy.request import SEQUENCE_START, InferRequest
from tritonpy_backend_python.worker.channel import Channel
from tritonpy_backend_python.worker.failure import BadResult, hide_lines_of
from tritonpy_backend_python.worker.instance import ModelInstance
from tritonpy_backend_python.worker.link import ServerLink
from tritonpy_backend_python.worker.model_file import ModelFile

from tritonpy_sdk.testing.python_model.calls import CalledModel, LocalLink, ModelFunction
from tritonpy_sdk.testing.python_model.channel import LocalChannel
from tritonpy_sdk.testing.python_model.imports import ModelImports
from tritonpy_sdk.testing.python_model.replies import Replies
from tritonpy_sdk.testing.python_model.source import ModelSource

P = ParamSpec("P")
T = TypeVar("T")

_LEAST_PATIENCE_S = 10.0  # a busy machine may need it to come to the model's thread
_packages = count(1)
_waiting: ContextVar[tuple[_Turn, ...]] = ContextVar("waiting", default=())

hide_lines_of(os.path.dirname(__file__))


class LocalInstance:
    """One loaded model; satisfies `CalledModel`.

    Args:
        source: where it lies.
        kind: `CPU`, `GPU` or `MODEL`.
        device_id: the device that it is given.
        models: what it may call, by name.
        timeout_s: how long an answer may take once `execute` has returned.

    Attributes:
        name: the model's name.
        version: its version.
        config: the settled configuration.
        signature: the check of its requests.
        is_decoupled: whether it sends any number of responses.
        instance_name: as Triton names it.
        python_object: the `TritonPythonModel`.
        unknown_outputs: outputs it gave that the configuration does not know; filled while it answers.
        is_closed: it takes no more requests.
    """

    def __init__(
        self,
        source: ModelSource,
        kind: str,
        device_id: int,
        models: Mapping[str, CalledModel | ModelFunction],
        timeout_s: float,
    ) -> None:
        self.name = source.directory.name
        self.version = source.version
        self._timeout_s = timeout_s
        directories = str(source.version_directory), str(source.directory)
        self._imports = ModelImports(*directories)
        self._link = LocalLink(models, timeout_s)
        self._channel = LocalChannel(_error, _log)
        self._thread = _InstanceThread(self.name, self._imports)
        self._sequences = count(1)
        self._file: ModelFile | None = None
        self._instance: ModelInstance | None = None
        self.unknown_outputs: list[str] = []
        self.is_closed = False
        try:
            self._load(source, kind, device_id)
        except BaseException:
            self.close()
            raise

    def submit(self, request: InferRequest) -> Replies:
        [replies] = self.submit_batch([request])
        return replies

    def submit_batch(self, requests: Sequence[InferRequest]) -> list[Replies]:
        """Check requests and start to execute them as one batch.

        Raises:
            TritonError: one does not fit the model, or they are more than fit into a batch.
        """
        if self.is_closed:
            raise Unavailable(f"model '{self.name}' has been finalized")
        waiting = _waiting.get()
        if any(turn.instance is self and turn.is_running for turn in waiting):
            path = " waits for ".join(f"'{turn.instance.name}'" for turn in waiting)
            raise Internal(
                f"model '{self.name}' cannot be called: the call would wait for itself for ever "
                f"({path} waits for '{self.name}')"
            )
        for request in requests:
            self.signature.check(request)
        self._check_batch(requests)
        opened = []
        for request in requests:
            label = (
                f"request '{request.id}' for model '{self.name}'" if request.id else f"model '{self.name}'"
            )
            replies = Replies(label, self._timeout_s)
            if self._is_iterative:
                request.flags |= SEQUENCE_START
                request.correlation_id = request.correlation_id or next(self._sequences)
            slot = self._channel.open(request, replies)
            replies.on_cancel = _canceller(self._channel, slot)
            opened.append((slot, replies))
        slots = [slot for slot, _ in opened]
        answered = [replies for _, replies in opened]
        executed = self._thread.post(self._execute, slots, waiting)
        executed.add_done_callback(lambda _: _executed(answered))
        return answered

    def error(self, code: int, text: str) -> pb_utils.TritonError:
        """The error that a client gets, as the model's own kind of exception."""
        return pb_utils.TritonError(text, ErrorCode(code))

    def is_ready(self) -> bool:
        """The answer of the model's `is_ready`; True without one."""
        model = self.python_object
        return not callable(getattr(model, "is_ready", None)) or self._thread.run(self._probe)

    def close(self) -> None:
        """Finalize the model, if it was initialized, and leave nothing of it behind.

        Raises:
            TimeoutError: it still executes, or has not answered, a request that has been cancelled.
            Exception: what `finalize` raised.
        """
        self.is_closed = True
        unanswered_count = self._channel.cancel_all(self._timeout_s)
        try:
            self._thread.close(self._finalize, self._timeout_s)
            if unanswered_count:
                raise TimeoutError(
                    f"model '{self.name}' has not answered {unanswered_count} of its requests "
                    f"{self._timeout_s:g} s after they were cancelled (answer_timeout_s)"
                )
        finally:
            self._channel.close(self.error(ErrorCode.UNAVAILABLE, f"model '{self.name}' has been finalized"))
            self._imports.close()
            forget_link(self._link)
            if self._file is not None:
                self._file.forget()

    def _load(self, source: ModelSource, kind: str, device_id: int) -> None:
        run = self._thread.run
        run(set_link, self._link)
        spec = {
            "name": self.name,
            "version": self.version,
            "directory": str(source.directory),
            "config": source.config,
        }
        file = self._file = ModelFile(spec, f"{_identifier(self.name)}_v{self.version}_{next(_packages)}")
        config = source.settle(lambda: _parsed(run(_complete, file)), device_id)
        self.config = config
        self.signature = Signature(config)
        self.is_decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled", False))
        self._is_iterative = bool(config.get("sequence_batching", {}).get("iterative_sequence", False))
        slots = place_instances(config)
        self.instance_name = slots[0].name if slots else f"{self.name}_0"
        self.python_object, self._instance = run(self._initialize, file, f"KIND_{kind}", device_id)

    def _initialize(self, file: ModelFile, kind: str, device_id: int) -> tuple[Any, ModelInstance]:
        spec = {"name": self.instance_name, "kind": kind, "device_id": device_id, "config": self.config}
        with running("initialize"):
            model = file.instantiate(spec)
        channel = cast(Channel, self._channel)  # of which an instance only sends and asks for cancellations
        link = cast(ServerLink, self._link)
        instance = ModelInstance(channel, link, file, _observed(model, self._channel.raised), spec)
        instance.outputs = _KnownOutputs(instance.outputs, self.unknown_outputs)
        return model, instance

    def _finalize(self) -> None:
        if self._instance is not None:
            with running("finalize"):
                self._instance.finalize()

    def _probe(self) -> bool:
        assert self._instance is not None  # loaded
        is_ready, failure = self._instance.probe()
        if failure is not None:
            raise self.error(ErrorCode.INTERNAL, failure)
        return is_ready

    def _check_batch(self, requests: Sequence[InferRequest]) -> None:
        limit = max(1, self.signature.max_batch_size)
        rows = sum(request.batch_size for request in requests)
        if len(requests) > 1 and rows > limit:
            raise InvalidArg(
                f"a batch of {len(requests)} requests with {rows} rows for model '{self.name}': a server "
                f"makes none of more than {limit} (max_batch_size {self.signature.max_batch_size})"
            )

    def _execute(self, slots: Sequence[int], waiting: tuple[_Turn, ...]) -> None:
        instance = self._instance
        assert instance is not None  # loaded
        turn = _Turn(self)
        _waiting.set((*waiting, turn))
        set_link(self._link)  # threads that the model starts from here take it
        try:
            while slots:
                batch, wires = self._channel.batch_of(slots)
                instance.execute(batch, wires)
                slots = [slot for slot in self._channel.take_rescheduled() if self._may_go_on(slot)]
        except BaseException as exc:
            self._channel.fail(slots, exc)
        finally:
            turn.is_running = False
            _waiting.set(())

    def _may_go_on(self, slot: int) -> bool:
        """True if a request that the model wants to execute again is executed; if not, it is answered."""
        if not self._is_iterative:
            error: TritonError = InvalidArg(
                f"model '{self.name}' rescheduled a request, which only a model with "
                f"'sequence_batching {{ iterative_sequence: true }}' may do"
            )
        elif self._channel.is_cancelled(slot):
            error = Cancelled("request was cancelled")
        else:
            self._channel.go_on(slot)
            return True
        self._channel.fail([slot], _error(int(error.code), error.message))
        return False


class _Turn:
    """One run of `execute`; calls of models from inside make it wait for them.

    Attributes:
        is_running: it has not returned, so the instance can take nothing else.
    """

    __slots__ = ("instance", "is_running")

    def __init__(self, instance: LocalInstance) -> None:
        self.instance = instance
        self.is_running = True


class _InstanceThread:
    """The thread on which all methods of a model run, one after the other, as in a worker."""

    def __init__(self, name: str, imports: ModelImports) -> None:
        self._name = name
        self._imports = imports
        self._steps: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"model {name}", daemon=True)
        self._thread.start()

    def post(self, step: Callable[P, T], *args: P.args, **options: P.kwargs) -> Future[T]:
        """Run a step after those before it."""
        future: Future[T] = Future()
        self._steps.put((future, lambda: step(*args, **options)))
        return future

    def run(self, step: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a step and wait for it; what it raises is raised."""
        return self.post(step, *args, **options).result()

    def close(self, last: Callable[[], None], timeout_s: float) -> None:
        """Run a last step and end the thread; the second time nothing happens.

        Raises:
            TimeoutError: the step before it goes on for over `timeout_s` seconds; the thread is left to it.
        """
        if not self._thread.is_alive():
            return
        has_begun = threading.Event()

        def step() -> None:
            has_begun.set()
            last()

        future = self.post(step)
        self._steps.put(None)
        if not has_begun.wait(max(timeout_s, _LEAST_PATIENCE_S)):
            raise TimeoutError(
                f"model '{self._name}' cannot be finalized: it still executes {timeout_s:g} s after all its "
                f"requests were cancelled (answer_timeout_s)"
            )
        try:
            future.result()
        finally:
            self._thread.join()

    def _run(self) -> None:
        while (work := self._steps.get()) is not None:
            future, step = work
            try:
                with self._imports.at_work():
                    result = step()
            except BaseException as exc:
                future.set_exception(exc)
            else:
                future.set_result(result)
            del work, future, step


class _KnownOutputs(dict[str, bool]):
    """The configured outputs; notes the others that the model gives, which a server drops silently."""

    def __init__(self, outputs: Mapping[str, bool], unknown: list[str]) -> None:
        super().__init__(outputs)
        self._unknown = unknown

    def __contains__(self, name: object) -> bool:
        is_known = super().__contains__(name)
        if not is_known:
            self._unknown.append(str(name))
        return is_known


def _observed(model: Any, raised: dict[int, BaseException]) -> Any:  # Any: the model's own class
    """The model's methods; what `execute` raises is noted, so that a test gets it with its traceback."""
    if not hasattr(model, "execute"):
        return model

    def execute(requests: list[pb_utils.InferenceRequest]) -> Any:  # Any: what the model returns
        slots = [slot_of(request) for request in requests]
        try:
            outcome = model.execute(requests)
        except BaseException as exc:
            raised.update(dict.fromkeys(slots, exc))
            raise
        if type(outcome) is not list and hasattr(outcome, "__await__"):
            return wait(outcome, slots)
        return outcome

    async def wait(outcome: Awaitable[Any], slots: list[int]) -> Any:  # Any: what the model returns
        try:
            return await outcome
        except BaseException as exc:
            raised.update(dict.fromkeys(slots, exc))
            raise

    others = {name: getattr(model, name) for name in ("finalize", "is_ready") if hasattr(model, name)}
    return SimpleNamespace(execute=execute, **others)


def _complete(file: ModelFile) -> str | None:
    with running("auto_complete_config"):
        try:
            return file.complete()
        except BadResult as exc:
            raise _error(int(pb_utils.TritonError.INTERNAL), str(exc)) from None


def _parsed(completed: str | None) -> JsonObject | None:
    return None if completed is None else json.loads(completed)


def _error(code: int, text: str) -> pb_utils.TritonError:
    return pb_utils.TritonError(text, ErrorCode(code))


def _log(level: int, text: str) -> None:
    pb_utils.Logger.log(text, LogLevel(level))


def _canceller(channel: LocalChannel, slot: int) -> Callable[[], None]:
    return lambda: channel.cancel(slot)


def _executed(answered: Sequence[Replies]) -> None:
    for replies in answered:
        replies.executed()


def _identifier(name: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in name)
