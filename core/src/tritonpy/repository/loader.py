"""Bring one model version from its files to the point where it takes requests, and take it down again."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tritonpy.config.schema import ModelConfig
from tritonpy.errors import TritonError
from tritonpy.handles import JsonObject, Model
from tritonpy.model.backend import BoundBackend
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.execution import Instance
from tritonpy.model.host import ProcessRunner
from tritonpy.model.model import LoadedModel
from tritonpy.model.placement import place_instances
from tritonpy.model.signature import Signature
from tritonpy.model.threads import ThreadRunner
from tritonpy.model.worker_settings import read_worker_settings
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.layout import ModelDirectory
from tritonpy.repository.settle import first_config, settled_config
from tritonpy.scheduler.batcher import BoundStrategy, StrategyFinder
from tritonpy.scheduler.decision import BatchingPolicy
from tritonpy.scheduler.direct import DirectPolicy
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy.scheduler.ordering import ResponseOrder
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.stats import ModelStats

_log = logging.getLogger("tritonpy.repository")

ISOLATION_PARAMETER = "TRITONPY_ISOLATION"
DELAY_VARIABLE = "TRITONSERVER_DELAY_SCHEDULER"


class LoadObserver(Protocol):
    """What the server wants to hear of loaded models, for its metrics."""

    def worker_restarted(self, model: str, version: str) -> None:
        """A worker of the model was started again."""

    def scan_was_slow(self, model: str, version: str) -> None:
        """The model's batching strategy took over a millisecond for one scan."""


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """The few options that loading needs.

    Attributes:
        auto_complete_config: let backends fill in what a configuration leaves out.
        backend_config: `(backend, key, value)` each; the backend is "" for all of them.
        worker_start_timeout_s: how long a worker may take for each step of its start.
        worker_finalize_timeout_s: how long it may take to finalize before it is killed.
    """

    auto_complete_config: bool = True
    backend_config: tuple[tuple[str, str, str], ...] = ()
    worker_start_timeout_s: float = 30.0
    worker_finalize_timeout_s: float = 10.0

    def for_backend(self, name: str) -> dict[str, str]:
        """The settings of one backend; its own win over those of all backends."""
        shared = {key: value for backend, key, value in self.backend_config if not backend}
        return shared | {key: value for backend, key, value in self.backend_config if backend == name}


class ModelLoader:
    """Loads model versions; on the loop, with everything that blocks on loading threads.

    Args:
        backends: installed backends.
        strategies: finds batching strategies.
        settings: see `LoaderSettings`.
        bridge: the way back from instance threads.
        observer: hears of restarts and slow strategies.
    """

    def __init__(
        self,
        backends: PluginManager,
        strategies: StrategyFinder,
        settings: LoaderSettings,
        bridge: LoopBridge,
        observer: LoadObserver,
    ) -> None:
        self._backends = backends
        self._strategies = strategies
        self._settings = settings
        self._bridge = bridge
        self._observer = observer
        self._bound: dict[str, BoundBackend] = {}

    def bind_backend(self, name: str) -> BoundBackend:
        """The backend called `name`, its hooks bound once for all its models."""
        bound = self._bound.get(name)
        if bound is None:
            bound = BoundBackend(name, self._backends, self._settings.for_backend(name))
            self._bound[name] = bound
        return bound

    async def load(self, directory: ModelDirectory, version: int, config: ModelConfig) -> LoadedModel:
        """Load one version whose configuration has been read and found sound.

        Raises:
            TritonError: why it cannot be served; everything begun has been taken down again.
        """
        backend = self.bind_backend(config.backend)
        document = first_config(config, backend.attributes)
        handle = Model(directory.name, version, document, directory.path, backend.handle)
        loading = _Loading(self, backend, handle)
        try:
            return await loading.run()
        except BaseException:
            await loading.take_down()
            raise

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


class _Loading:
    """The steps of loading one version, and what they leave to take down."""

    def __init__(self, loader: ModelLoader, backend: BoundBackend, handle: Model) -> None:
        self._loader = loader
        self._backend = backend
        self._handle = handle
        self._runner: ThreadRunner | ProcessRunner | None = None
        self._strategy: BoundStrategy | None = None
        self._instances: list[Instance] = []
        self._model: LoadedModel | None = None

    async def run(self) -> LoadedModel:
        start = time.monotonic()
        handle, backend = self._handle, self._backend
        self._runner = runner = self._make_runner()
        await runner.open()
        completed = await runner.complete_config() if self._loader.settings.auto_complete_config else None
        document = handle.config if completed is None else completed
        config = settled_config(document, backend.attributes, handle.directory)
        handle.config = config
        await runner.initialize_model(config)
        strategy = await asyncio.to_thread(self._loader.strategies.find, handle, backend)
        if strategy is not None:
            await asyncio.to_thread(strategy.open)
            strategy.on_slow_scan = self._note_slow_scan
            self._strategy = strategy
        stats = ModelStats()
        scheduler = make_scheduler(config, stats, strategy)
        for slot in place_instances(config):
            self._instances.append(await runner.start_instance(slot, scheduler.pump))
        self._model = LoadedModel(
            handle,
            Signature(config),
            stats,
            scheduler,
            self._instances,
            self.take_down,
            strategy_name=strategy.name if strategy is not None else "",
            load_duration_s=time.monotonic() - start,
        )
        scheduler.use(self._instances)
        return self._model

    async def take_down(self, error: TritonError | None = None) -> None:
        """Finalise what was begun, in reverse order; errors are logged where they happen.

        With `error`, executions that still run are answered with it instead of being waited for.
        """
        instances, self._instances = list(self._instances), []
        await asyncio.gather(*(instance.close(error) for instance in instances))
        strategy, self._strategy = self._strategy, None
        if strategy is not None:
            await asyncio.to_thread(strategy.close)
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.close()

    def _make_runner(self) -> ThreadRunner | ProcessRunner:
        execution = self._handle.parameter(ISOLATION_PARAMETER) or self._backend.attributes.execution
        if execution == "thread":
            return ThreadRunner(self._backend, self._handle, self._loader.bridge)
        if execution != "process":
            raise TritonError(
                f"model '{self._handle.name}': parameter {ISOLATION_PARAMETER} is '{execution}', "
                f"expected 'thread' or 'process'"
            )
        settings = self._loader.settings
        workers = read_worker_settings(
            self._backend.name,
            self._backend.handle.settings,
            start_timeout_s=settings.worker_start_timeout_s,
        )
        return ProcessRunner(
            self._backend,
            self._handle,
            start_timeout_s=workers.start_timeout_s,
            memory=workers.memory,
            finalize_timeout_s=settings.worker_finalize_timeout_s,
            on_down=self._instance_down,
            on_restart=self._instance_restarted,
        )

    def _instance_down(self, error: TritonError) -> None:
        if self._model is not None:
            self._model.instance_down(error)

    def _instance_restarted(self) -> None:
        self._loader.observer.worker_restarted(self._handle.name, str(self._handle.version))
        if self._model is not None:
            self._model.instance_up()

    def _note_slow_scan(self) -> None:
        self._loader.observer.scan_was_slow(self._handle.name, str(self._handle.version))


def make_scheduler(config: JsonObject, stats: ModelStats, strategy: BoundStrategy | None) -> Scheduler:
    """The scheduler that a normalised configuration asks for."""
    batching: Mapping[str, object] | None = config.get("dynamic_batching")
    if batching is None:
        return Scheduler(DirectPolicy(), stats)
    order = ResponseOrder() if batching.get("preserve_ordering") else None
    policy = _dynamic_policy(config, strategy)
    return Scheduler(policy, stats, order=order)


def _dynamic_policy(config: JsonObject, strategy: BoundStrategy | None) -> BatchingPolicy:
    batching = config["dynamic_batching"]
    inputs: Iterable[JsonObject] = config.get("input", ())
    return DynamicPolicy(
        max_batch_size=config["max_batch_size"],
        preferred_batch_sizes=batching.get("preferred_batch_size", ()),
        queue_delay_ns=batching.get("max_queue_delay_microseconds", 0) * 1000,
        equal_shape_inputs=[
            tensor["name"]
            for tensor in inputs
            if -1 in tensor["dims"] and not tensor.get("allow_ragged_batch", False)
        ],
        has_optional_inputs=any(tensor.get("optional", False) for tensor in inputs),
        strategy=strategy,
        hold_until_count=int(os.environ.get(DELAY_VARIABLE, "0") or 0),
    )
