"""Run a backend's models through its hooks as a server would: same order, same kind of threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

from tritonpy.handles import JsonObject, Model, ModelInstance
from tritonpy.lifecycle.loading.op_plugins import OpPlugins
from tritonpy.lifecycle.resolved_config import proposed_config, read_config, settled_config
from tritonpy.model.backend import BoundBackend
from tritonpy.model.placement import place_instances
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.layout import ModelDirectory, read_model
from tritonpy.repository.stores.local import LocalStore
from tritonpy.request import InferRequest
from tritonpy.reshape import read_reshape
from tritonpy.response import InferResponse

ANSWER_TIMEOUT_S = 30.0
"""How long a backend that answers by itself may take after `model_instance_execute` returned."""


@dataclass(slots=True)
class Answer:
    """The responses of one request.

    Attributes:
        responses: in the order they came; a final flag that came alone is none.
        final_count: how often the backend said that nothing follows; 1 is right.
    """

    responses: list[InferResponse] = field(default_factory=list)
    final_count: int = 0

    @property
    def only(self) -> InferResponse:
        """The response of a request that got exactly one."""
        assert len(self.responses) == 1, f"expected one response, got {self.responses}"
        return self.responses[0]


class BackendDriver:
    """One backend plugin and the repository its models lie in.

    Example:
        >>> with BackendDriver("onnxruntime", repository).load("net") as model:
        ...     (answer,) = model.execute([request])

    Args:
        backend: the name of an installed plugin, a plugin object, or the path of a library.
        repository: a model repository, as a server reads it.
        settings: what `--backend-config` would say.
        op_libraries: plugins of that kind by name, instead of those that are installed.
    """

    def __init__(
        self,
        backend: str | object,
        repository: Path,
        settings: Mapping[str, str] | None = None,
        op_libraries: Mapping[str, object] | None = None,
    ) -> None:
        self._manager = PluginManager("backends", discover=isinstance(backend, str))
        op_plugins = PluginManager("op_libraries", discover=op_libraries is None and isinstance(backend, str))
        for name, plugin in (op_libraries or {}).items():
            op_plugins.register(name, plugin)
        self._op_plugins = OpPlugins(op_plugins)
        if isinstance(backend, str):
            name = backend
        else:
            name = (
                backend.stem.removeprefix("libtriton_")
                if isinstance(backend, Path)
                else getattr(backend, "__name__", type(backend).__name__)
            )
            self._manager.register(name, backend)
        self.bound = BoundBackend(name, self._manager, settings or {})
        names = LocalStore(str(repository)).model_names()
        self._directories = {name: read_model(Path(repository, name)) for name in names}

    @property
    def model_names(self) -> list[str]:
        """The models of the repository, sorted."""
        return sorted(self._directories)

    def load(self, name: str, *, alias: str = "", path: Path | None = None) -> DrivenModel:
        """Prepare the newest version of a model; entering the result runs the hooks that load it.

        Args:
            name: a model of the repository.
            alias: call the model so instead.
            path: take its files from this directory instead.
        """
        directory = self._directories[name]
        config = proposed_config(read_config(directory), self.bound.attributes)
        config["name"] = alias or name
        return DrivenModel(self.bound, config, directory, path or directory.path, self._op_plugins)


class DrivenModel:
    """One loaded model version; a context manager that loads on entry and finalises on exit.

    Attributes:
        handle: what the hooks receive.
        instances: what they receive for each instance.
        given: the configuration before auto-complete.
    """

    def __init__(
        self,
        backend: BoundBackend,
        config: JsonObject,
        directory: ModelDirectory,
        path: Path,
        op_plugins: OpPlugins,
    ) -> None:
        self._backend = backend
        self._op_plugins = op_plugins
        self.given = config
        self.handle = Model(config["name"], max(directory.versions), dict(config), path, backend.handle)
        self.instances: list[ModelInstance] = []
        self._threads: list[ThreadPoolExecutor] = []
        self._runners: dict[int, asyncio.Runner] = {}
        self._undo: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        try:
            self._load()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def config(self) -> JsonObject:
        """The settled configuration."""
        return self.handle.config

    def close(self) -> None:
        """Finalise what was initialised, in reverse order."""
        while self._undo:
            self._undo.pop()()
        self.instances.clear()
        self._threads.clear()

    def auto_complete(self) -> JsonObject | None:
        """Call the auto-complete hook once more and return what it says, without using it."""
        hook = self._backend.model_auto_complete_config
        handle = self.handle
        fresh = Model(handle.name, handle.version, self.given, handle.directory, handle.backend)
        completed: JsonObject | None = hook(fresh) if hook else None
        return completed

    def execute(self, requests: Sequence[InferRequest], instance: int = 0) -> list[Answer]:
        """Execute one batch on an instance's thread and wait until every request has its final response.

        Tensors are reshaped on both ways where the configuration says so.

        Raises:
            Exception: what `model_instance_execute` raised.
        """
        reshape = read_reshape(self.handle.config)
        if reshape is not None:
            for request in requests:
                request.inputs = reshape.to_model(request.inputs)
        answers = self._threads[instance].submit(self._execute, requests, instance).result()
        for response in chain.from_iterable(answer.responses for answer in answers):
            if reshape is not None:
                given = reshape.to_clients(response)
                if given is not response and given.error is not None:
                    raise given.error
        return answers

    def is_ready(self, instance: int = 0) -> object:
        """The answer of `model_instance_ready`; True without one."""
        hook = self._backend.instance_ready
        return hook(self.instances[instance]) if hook else True

    def _load(self) -> None:
        backend = self._backend
        if framework := backend.attributes.op_framework:
            self.handle.plugin_op_libraries = self._op_plugins.libraries_of(framework, self.handle)
        backend.acquire()
        self._undo.append(backend.release)
        hook = backend.model_auto_complete_config
        completed: JsonObject | None = hook(self.handle) if hook else None
        config = self.handle.config if completed is None else completed
        # The name is checked against the directory's, which differs where a model goes by an alias.
        directory = self.handle.directory.with_name(self.handle.name)
        self.handle.config = settled_config(config, backend.attributes, directory)
        if backend.model_initialize is not None:
            backend.model_initialize(self.handle)
        if (finalize := backend.model_finalize) is not None:
            self._undo.append(lambda: finalize(self.handle))
        for slot in place_instances(self.handle.config):
            self._start(slot.handle(self.handle))

    def _start(self, instance: ModelInstance) -> None:
        thread = ThreadPoolExecutor(1, thread_name_prefix=instance.name)
        self._undo.append(thread.shutdown)
        if (initialize := self._backend.instance_initialize) is not None:
            thread.submit(initialize, instance).result()
        if (finalize := self._backend.instance_finalize) is not None:
            self._undo.append(lambda: thread.submit(finalize, instance).result())
        self.instances.append(instance)
        self._threads.append(thread)

    def _execute(self, requests: Sequence[InferRequest], index: int) -> list[Answer]:
        hook = self._backend.execute
        assert hook is not None, "the backend brings its own worker program; drive it through a server"
        outbox = _Outbox(requests)
        for request in requests:
            request.ticket.outbox = outbox
        instance = self.instances[index]
        instance.compute_start_ns = instance.compute_end_ns = 0
        try:
            returned = hook(instance, requests)
            if inspect.isawaitable(returned):
                returned = self._await(returned, index)
            if returned is None:
                return outbox.wait()
        except BaseException:
            for request in requests:
                request.ticket.outbox = None
            raise
        for request in requests:
            request.ticket.outbox = None
        assert not any(answer.responses or answer.final_count for answer in outbox.answers), (
            "model_instance_execute returned responses and also sent some through request.respond"
        )
        assert len(returned) == len(requests), f"{len(returned)} responses for {len(requests)} requests"
        return [Answer([response], 1) for response in returned]

    def _await(self, returned: object, index: int) -> Sequence[InferResponse] | None:
        if index not in self._runners:
            self._runners[index] = asyncio.Runner()
            self._undo.append(self._runners[index].close)

        async def settled() -> Sequence[InferResponse] | None:
            return await returned  # type: ignore[misc,no-any-return]

        return self._runners[index].run(settled())


class _Outbox:
    """Collects the answers to requests, from any thread; the lock guards `answers`."""

    def __init__(self, requests: Sequence[InferRequest]) -> None:
        self._index = {id(request): index for index, request in enumerate(requests)}
        self.answers = [Answer() for _ in requests]
        self._lock = threading.Condition()

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        with self._lock:
            answer = self.answers[self._index[id(request)]]
            if response is not None:
                answer.responses.append(response)
            answer.final_count += final
            self._lock.notify()

    def wait(self) -> list[Answer]:
        """Return once every request has had a final response.

        Raises:
            AssertionError: one has not, after `ANSWER_TIMEOUT_S`.
        """
        with self._lock:
            done = self._lock.wait_for(
                lambda: all(answer.final_count for answer in self.answers), ANSWER_TIMEOUT_S
            )
            missing = sum(not answer.final_count for answer in self.answers)
        assert done, f"{missing} of {len(self.answers)} requests got no final response"
        return self.answers
