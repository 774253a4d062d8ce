"""Bring one model version from its files to the point where it takes requests, and take it down again."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from tritonpy.config.schema import ModelConfig
from tritonpy.devices.gpus import NO_GPUS, Gpus
from tritonpy.devices.host_policy import HostPolicies
from tritonpy.errors import TritonError, Unavailable, Unsupported
from tritonpy.handles import BackendAttributes, JsonObject, Model
from tritonpy.model.backend import BoundBackend
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.calls import ServerAccess
from tritonpy.model.execution import Instance
from tritonpy.model.host import ProcessRunner, WorkerEvents
from tritonpy.model.instance_set import InstanceSet
from tritonpy.model.model import LoadedModel
from tritonpy.model.placement import Slot, place_instances
from tritonpy.model.signature import Signature
from tritonpy.model.threads import ThreadRunner
from tritonpy.model.warmup import Warmup, read_warmup
from tritonpy.model.worker_settings import read_worker_settings
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.backend_files import BackendFiles, find_backend_files
from tritonpy.repository.instance_update import InstanceUpdate, copied_config, updated_config
from tritonpy.repository.labels import read_labels
from tritonpy.repository.layout import ModelDirectory
from tritonpy.repository.load_gate import LoadGate
from tritonpy.repository.progress import INTERVAL_S, LoadProgress
from tritonpy.repository.settle import first_config, settled_config
from tritonpy.scheduler.batcher import BoundStrategy, StrategyFinder
from tritonpy.scheduler.choice import make_scheduler
from tritonpy.stats import ModelStats

_log = logging.getLogger("tritonpy.repository")

ISOLATION_PARAMETER = "TRITONPY_ISOLATION"
Loaded = TypeVar("Loaded")

PARALLEL_VARIABLE = "TRITON_PARALLEL_INSTANCE_LOADING"


class LoadObserver(Protocol):
    """What the server wants to hear of loaded models, for its metrics."""

    def worker_restarted(self, model: str, version: str) -> None:
        """A worker of the model was started again."""

    def request_unanswered(self, model: str, version: str) -> None:
        """A request has been open for long after the model's `execute` returned."""

    def scan_was_slow(self, model: str, version: str) -> None:
        """The model's batching strategy took over a millisecond for one scan."""


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """The few options that loading needs.

    Attributes:
        auto_complete_config: let backends fill in what a configuration leaves out.
        backend_config: `(backend, key, value)` each; the backend is "" for all of them.
        backend_directory: where backends lie that are files.
        worker_start_timeout_s: how long a worker's program may take to start.
        worker_finalize_timeout_s: how long it may take to finalize before it is killed.
        debugged_models: names of models that run on threads of the server, where a debugger reaches them.
        load_thread_count: how many versions are loaded at once.
        load_retry_count: how often a version whose load failed is tried again.
        progress_interval_s: how often a load that takes long is mentioned in the log; 0 for never.
        gpus: where models can be placed beside the CPU.
        host_policies: which processors instances keep to.
    """

    auto_complete_config: bool = True
    backend_config: tuple[tuple[str, str, str], ...] = ()
    backend_directory: str = "/opt/tritonserver/backends"
    worker_start_timeout_s: float = 30.0
    worker_finalize_timeout_s: float = 10.0
    debugged_models: frozenset[str] = frozenset()
    load_thread_count: int = 4
    load_retry_count: int = 0
    progress_interval_s: float = INTERVAL_S
    gpus: Gpus = NO_GPUS
    host_policies: HostPolicies = field(default_factory=HostPolicies)

    def for_backend(self, *names: str) -> dict[str, str]:
        """The settings of one backend; its own win over those of all backends.

        A backend of several names is one that another runs: the last name's settings win.
        """
        return {
            key: value
            for name in ("", *names)
            for backend, key, value in self.backend_config
            if backend == name
        }


class ModelLoader:
    """Loads model versions; on the loop, with everything that blocks on loading threads.

    Args:
        backends: installed backends.
        strategies: finds batching strategies.
        settings: see `LoaderSettings`.
        bridge: the way back from instance threads.
        observer: hears of restarts and slow strategies.
        access: what models in workers can reach.

    Attributes:
        gate: lets so many loads run at once as the settings say.
    """

    def __init__(
        self,
        backends: PluginManager,
        strategies: StrategyFinder,
        settings: LoaderSettings,
        bridge: LoopBridge,
        observer: LoadObserver,
        access: ServerAccess,
    ) -> None:
        self._backends = backends
        self._strategies = strategies
        self._settings = settings
        self._bridge = bridge
        self._observer = observer
        self._access = access
        self.gate = LoadGate(settings.load_thread_count)
        self._bound: dict[tuple[str, BackendFiles | None], BoundBackend] = {}

    def bind_backend(self, config: ModelConfig) -> BoundBackend:
        """The backend of a model, its hooks bound once for all its models.

        Args:
            config: its `runtime` is filled in for a backend that is a file.
        """
        name = config.backend
        directory = Path(self._settings.backend_directory)
        files = find_backend_files(config, directory, self._backends.names())
        if files is not None:
            config.runtime = files.runtime
        bound = self._bound.get((name, files))
        if bound is None:
            runner = files.runner if files is not None else name
            bound = BoundBackend(
                name,
                self._backends,
                self._settings.for_backend(runner, name),
                runner=runner,
                directory=files.directory if files is not None else None,
            )
            self._bound[name, files] = bound
        return bound

    def backends_in_use(self) -> list[tuple[str, str, Mapping[str, str]]]:
        """Name, file and settings of each backend that models have asked for so far, sorted by name."""
        in_use = [
            (name, str(files.directory / files.runtime) if files else bound.source, bound.handle.settings)
            for (name, files), bound in self._bound.items()
        ]
        return sorted(in_use, key=lambda backend: backend[:2])

    async def load(
        self, directory: ModelDirectory, version: int, config: ModelConfig, *, is_override: bool = False
    ) -> LoadedModel:
        """Load one version whose configuration has been read and found sound.

        Whatever it fails for is tried again as often as the settings say, at once, as in Triton.

        Args:
            directory: the model.
            version: which of its versions.
            config: its configuration.
            is_override: the configuration came with a load request; it may name no file outside the model.

        Raises:
            TritonError: why it cannot be served; everything begun has been taken down again.
        """
        return await self._tried(
            directory.name, version, lambda: self._load(directory, version, config, is_override)
        )

    async def _tried(self, name: str, version: int, load: Callable[[], Awaitable[Loaded]]) -> Loaded:
        """Load when there is room for it, and as often as it takes or the settings allow."""
        most = 1 + self._settings.load_retry_count
        async with self.gate.enter((name, version)):
            for attempt in range(1, most):
                try:
                    return await load()
                except Exception as error:
                    reason = error.described() if isinstance(error, TritonError) else repr(error)
                    _log.error(
                        "failed to load '%s' version %d, attempt %d of %d: %s",
                        name,
                        version,
                        attempt,
                        most,
                        reason,
                    )
            return await load()

    async def _load(
        self, directory: ModelDirectory, version: int, config: ModelConfig, is_override: bool
    ) -> LoadedModel:
        loading = self._begin(directory, version, config, is_override)
        try:
            return await loading.run()
        except asyncio.CancelledError:
            await loading.take_down(Unavailable("the load was given up"))
            raise
        except BaseException:
            await loading.take_down()
            raise

    async def update(self, model: LoadedModel, config: ModelConfig) -> InstanceUpdate:
        """Bring up what a loaded version lacks to have the instances that a changed configuration asks for.

        Args:
            model: goes on as it is until the update is applied.
            config: differs from that of the model in its instance groups and its version policy only.

        Raises:
            TritonError: why it cannot be done; nothing has changed.
        """
        return await self._tried(model.name, model.version, lambda: self._update(model, config))

    async def _update(self, model: LoadedModel, config: ModelConfig) -> InstanceUpdate:
        handle, own = model.handle, copied_config(config)
        settled = updated_config(own, handle, self.bind_backend(own).attributes, self._settings.gpus)
        before, handle.config = handle.config, settled  # what new instances are to see
        try:
            change = await model.instance_set.prepare(self.slots(handle))
        except BaseException:
            handle.config = before
            raise
        return InstanceUpdate(model, settled, change, before)

    def slots(self, handle: Model) -> list[Slot]:
        """Where the instances of a model live, by its configuration."""
        slots = place_instances(handle.config, self._settings.gpus.capabilities())
        # Whoever steps through a model does not want to meet it twice.
        return slots[:1] if handle.name in self._settings.debugged_models else slots

    async def settle(self, directory: ModelDirectory, version: int, config: ModelConfig) -> JsonObject:
        """The configuration that `load` would serve this version with; nothing is left of the model.

        The backend completes it as in a load: it may read the model's files, and a Python model's
        `auto_complete_config` runs in a worker. No instance is made and nothing is executed.

        Args:
            directory: the model.
            version: which of its versions.
            config: its configuration.

        Raises:
            TritonError: why it cannot be served.
        """
        loading = self._begin(directory, version, config, is_override=False)
        try:
            return await loading.settle()
        finally:
            await loading.take_down()

    def _begin(
        self, directory: ModelDirectory, version: int, config: ModelConfig, is_override: bool
    ) -> _Loading:
        own = copied_config(config)  # it is filled in
        backend = self.bind_backend(own)
        document = first_config(own, backend.attributes, self._settings.gpus)
        handle = Model(directory.name, version, document, directory.path, backend.handle)
        return _Loading(self, backend, handle, is_override)

    # For one loading.

    @property
    def settings(self) -> LoaderSettings:
        """The settings given."""
        return self._settings

    @property
    def strategies(self) -> StrategyFinder:
        """The strategies given."""
        return self._strategies

    @property
    def bridge(self) -> LoopBridge:
        """The bridge given."""
        return self._bridge

    @property
    def observer(self) -> LoadObserver:
        """The observer given."""
        return self._observer

    @property
    def access(self) -> ServerAccess:
        """The access given."""
        return self._access


class _Loading:
    """The steps of loading one version, and what they leave to take down."""

    def __init__(self, loader: ModelLoader, backend: BoundBackend, handle: Model, is_override: bool) -> None:
        self._loader = loader
        self._is_override = is_override
        self._backend = backend
        self._handle = handle
        self._runner: ThreadRunner | ProcessRunner | None = None
        self._strategy: BoundStrategy | None = None
        self._instances: InstanceSet | None = None
        self._model: LoadedModel | None = None
        self._progress = LoadProgress(
            f"{handle.name}:{handle.version}", interval_s=loader.settings.progress_interval_s
        )

    async def run(self) -> LoadedModel:
        with self._progress:
            return await self._run()

    async def settle(self) -> JsonObject:
        """The steps as far as the settled configuration, which hooks see from then on."""
        handle, backend = self._handle, self._backend
        self._progress.begin("start of the backend")
        self._runner = runner = self._make_runner()
        await runner.open()
        self._progress.begin("auto-complete")
        completed = await runner.complete_config() if self._loader.settings.auto_complete_config else None
        document = handle.config if completed is None else completed
        gpus = self._loader.settings.gpus
        handle.config = settled_config(document, backend.attributes, handle.directory, gpus, name=handle.name)
        return handle.config

    async def _run(self) -> LoadedModel:
        handle, backend = self._handle, self._backend
        config = await self.settle()
        labels = await asyncio.to_thread(read_labels, config, handle.directory)
        self._progress.begin("initialize", "model")
        runner = self._runner
        assert runner is not None  # `settle` made it
        await runner.initialize_model(config)
        self._progress.begin("batching strategy")
        strategy = await asyncio.to_thread(
            self._loader.strategies.find, handle, backend, is_strict=self._is_override
        )
        if strategy is not None:
            await asyncio.to_thread(strategy.open)
            strategy.on_slow_scan = self._note_slow_scan
            self._strategy = strategy
        stats = ModelStats()
        scheduler = make_scheduler(config, stats, strategy)
        signature = Signature(config)
        samples = await asyncio.to_thread(read_warmup, config, signature, handle.directory)
        warmup = Warmup(samples, handle.name, str(handle.version), signature.max_batch_size, stats)

        async def start(slot: Slot) -> Instance:
            if slot.kind == "KIND_GPU":
                await asyncio.to_thread(self._loader.settings.gpus.check_load, slot.name, slot.device_id)
            _log.info("TRITONBACKEND_ModelInstanceInitialize: %s (%s)", slot.name, slot.device)
            warm_up = warmup.run if samples else None
            return await runner.start_instance(slot, scheduler.pump, scheduler.enqueue_again, warm_up)

        if handle.name in self._loader.settings.debugged_models:
            _log.info("model '%s' runs on a thread of process %d, to be debugged", handle.name, os.getpid())
        self._instances = instances = InstanceSet(
            start,
            is_parallel=_is_parallel(backend.attributes),
            on_start=partial(self._progress.begin, "initialize"),
        )
        instances.switch(await instances.prepare(self._loader.slots(handle)))
        self._model = LoadedModel(
            handle,
            signature,
            stats,
            scheduler,
            instances,
            self.take_down,
            strategy_name=strategy.name if strategy is not None else "",
            load_duration_s=self._progress.duration_s,
            labels=labels,
        )
        return self._model

    async def take_down(self, error: TritonError | None = None) -> None:
        """Finalise what was begun, in reverse order; errors are logged where they happen.

        With `error`, executions that still run are answered with it instead of being waited for.
        """
        if self._instances is not None:
            await self._instances.close(error)
        strategy, self._strategy = self._strategy, None
        if strategy is not None:
            await asyncio.to_thread(strategy.close)
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.close()

    def _make_runner(self) -> ThreadRunner | ProcessRunner:
        name = self._handle.name
        settings = self._loader.settings
        first = next(iter(place_instances(self._handle.config)), None)
        first_policy = settings.host_policies.find(first.host_policy) if first is not None else None
        is_debugged = name in settings.debugged_models
        execution = self._handle.parameter(ISOLATION_PARAMETER) or self._backend.attributes.execution
        if is_debugged:
            execution = "thread"
        if execution not in ("thread", "process"):
            raise TritonError(
                f"model '{name}': parameter {ISOLATION_PARAMETER} is '{execution}', "
                f"expected 'thread' or 'process'"
            )
        if execution == "thread" and self._backend.worker_serve is None:
            if self._backend.execute is None:
                raise Unsupported(
                    f"model '{name}': backend '{self._backend.name}' runs in processes of its own only, but "
                    f"'thread' was asked for by parameter {ISOLATION_PARAMETER} or --debug-model"
                )
            return ThreadRunner(
                self._backend,
                self._handle,
                self._loader.bridge,
                policies=settings.host_policies,
                first_policy=first_policy,
            )
        workers = read_worker_settings(
            self._backend.name,
            self._backend.handle.settings,
            start_timeout_s=settings.worker_start_timeout_s,
        )
        return ProcessRunner(
            self._backend,
            self._handle,
            access=self._loader.access,
            events=WorkerEvents(self._instance_down, self._instance_restarted, self._note_unanswered),
            start_timeout_s=None if is_debugged else workers.start_timeout_s,
            initialize_timeout_s=None if is_debugged else workers.initialize_timeout_s,
            unanswered_after_s=workers.unanswered_after_s,
            memory=workers.memory,
            finalize_timeout_s=settings.worker_finalize_timeout_s,
            in_process=execution == "thread",
            policies=settings.host_policies,
            first_policy=first_policy,
        )

    def _instance_down(self, error: TritonError) -> None:
        if self._model is not None:
            self._model.instance_down(error)

    def _instance_restarted(self) -> None:
        self._loader.observer.worker_restarted(self._handle.name, str(self._handle.version))
        if self._model is not None:
            self._model.instance_up()

    def _note_unanswered(self) -> None:
        self._loader.observer.request_unanswered(self._handle.name, str(self._handle.version))

    def _note_slow_scan(self) -> None:
        self._loader.observer.scan_was_slow(self._handle.name, str(self._handle.version))


def _is_parallel(attributes: BackendAttributes) -> bool:
    """Whether instances are initialised at the same time; whoever starts the server has the last word."""
    wish = os.environ.get(PARALLEL_VARIABLE, "")
    return attributes.parallel_instance_loading if wish not in ("0", "1") else wish == "1"
