"""The load of one model version, step by step, and its end."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tritonpy.config.named_files import Labels, read_labels, read_states
from tritonpy.errors import TritonError, Unsupported
from tritonpy.handles import EXECUTIONS, BackendAttributes, JsonObject, Model
from tritonpy.lifecycle.loading.caching import generation_of, with_cache
from tritonpy.lifecycle.loading.progress import LoadProgress
from tritonpy.lifecycle.loading.settings import LoadTools
from tritonpy.lifecycle.resolved_config import settled_config
from tritonpy.model.backend import BoundBackend
from tritonpy.model.execution import Instance
from tritonpy.model.instance_set import InstanceSet
from tritonpy.model.model import LoadedModel
from tritonpy.model.placement import Slot, first_slot
from tritonpy.model.signature import Signature
from tritonpy.model.threads import ThreadLauncher
from tritonpy.model.warmup import Warmup, WarmupSample, read_warmup
from tritonpy.own_thread import on_own_thread
from tritonpy.protos import ModelConfig
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.scheduler.selection import make_scheduler
from tritonpy.states import StateSpecs
from tritonpy.stats import ModelStats
from tritonpy.workers.instance import WorkerEvents
from tritonpy.workers.launcher import WorkerLauncher
from tritonpy.workers.thread_link import ThreadLink
from tritonpy.workers.worker_services import Caller
from tritonpy.workers.worker_settings import read_worker_settings

_log = logging.getLogger("tritonpy.repository")

ISOLATION_PARAMETER = "TRITONPY_ISOLATION"
PARALLEL_VARIABLE = "TRITON_PARALLEL_INSTANCE_LOADING"

_PATIENCE_S = 15.0
"""How long a strategy may take to end, as long as a repository agent: afterwards it is left alone."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """A settled configuration, and what was made of it and of the files that it names.

    Attributes:
        signature: the check of requests.
        labels: of outputs.
        states: of sequences; None for a model without.
        samples: of the warmup.
        may_have_strategy: a batching strategy is named, or lies where one is looked for.
    """

    signature: Signature
    labels: Labels
    states: StateSpecs | None
    samples: Sequence[WarmupSample]
    may_have_strategy: bool


class Loading:
    """The steps of loading one version, and what they leave to take down; on the loop only.

    Args:
        tools: what every load works with.
        backend: of the model.
        handle: describes the version; its configuration is not complete yet.
        proposed: the same configuration, as the message that it was made from.
        is_override: the configuration came with a load request.
    """

    def __init__(
        self, tools: LoadTools, backend: BoundBackend, handle: Model, proposed: ModelConfig, is_override: bool
    ) -> None:
        self._tools = tools
        self._proposed = proposed
        self._is_override = is_override
        self._backend = backend
        self._handle = handle
        self._launcher: ThreadLauncher | WorkerLauncher | None = None
        self._strategy: BoundStrategy | None = None
        self._scheduler: Scheduler | None = None
        self._instances: InstanceSet | None = None
        self._model: LoadedModel | None = None
        self._progress = LoadProgress(
            f"{handle.name}:{handle.version}", interval_s=tools.settings.progress_interval_s
        )

    async def run(self) -> LoadedModel:
        """Take all steps; when one of them fails, the caller takes down what was begun.

        Raises:
            TritonError: why the version cannot be served.
        """
        with self._progress:
            return await self._run()

    async def settle(self) -> JsonObject:
        """The steps as far as the settled configuration, which hooks see from then on."""
        document = await self._completed_config()
        return await asyncio.to_thread(self._settle, document)

    async def _completed_config(self) -> JsonObject:
        self._progress.begin("start of the backend")
        framework = self._backend.attributes.op_framework
        if framework:
            ask = partial(self._tools.op_plugins.libraries_of, framework, self._handle)
            self._handle.plugin_op_libraries = await on_own_thread(ask, "hook")
        self._launcher = launcher = self._make_launcher(await self._execution())
        await launcher.open()
        self._progress.begin("auto-complete")
        completed = await launcher.complete_config() if self._tools.settings.auto_complete_config else None
        return self._handle.config if completed is None else completed

    def _settle(self, document: JsonObject) -> JsonObject:
        """Blocking."""
        handle = self._handle
        handle.config = settled_config(
            document,
            self._backend.attributes,
            handle.directory,
            self._tools.settings.gpus,
            name=handle.name,
            proposed=self._proposed,
        )
        return handle.config

    def _settle_and_read(self, document: JsonObject) -> _Settled:
        """Blocking; all that is read before the model sees its configuration, on one thread."""
        config, directory = self._settle(document), self._handle.directory
        signature = Signature(config)
        return _Settled(
            signature,
            read_labels(config, directory),
            read_states(config, directory),
            read_warmup(config, signature, directory),
            self._tools.strategies.is_expected(self._handle, self._backend),
        )

    async def _run(self) -> LoadedModel:
        handle, backend = self._handle, self._backend
        settled = await asyncio.to_thread(self._settle_and_read, await self._completed_config())
        config, signature, states = handle.config, settled.signature, settled.states
        self._progress.begin("initialize", "model")
        launcher = self._launcher
        assert launcher is not None  # `settle` made it
        await launcher.initialize_model(config)
        self._progress.begin("batching strategy")
        strategy = None
        if settled.may_have_strategy:
            find = partial(self._tools.strategies.find, handle, backend, is_strict=self._is_override)
            strategy = await on_own_thread(find, "hook")
        if strategy is not None:
            self._strategy = strategy
            await on_own_thread(strategy.open, "hook")
            _log.info(
                "model '%s' version %d has batching strategy '%s'", handle.name, handle.version, strategy.name
            )
            strategy.on_slow_scan = partial(self._note_slow_scan, strategy.name)
        stats = ModelStats(latencies=self._tools.settings.latencies(config))
        self._scheduler = scheduler = make_scheduler(
            config, stats, strategy, states, self._tools.access.flow_limits
        )
        warmup = Warmup(
            settled.samples, handle.name, str(handle.version), signature.max_batch_size, stats, states
        )

        async def start(slot: Slot) -> Instance:
            if slot.kind == "KIND_GPU":
                await asyncio.to_thread(self._tools.settings.gpus.check_load, slot.name, slot.device_id)
            _log.info("TRITONBACKEND_ModelInstanceInitialize: %s (%s)", slot.name, slot.device)
            warm_up = warmup.run if settled.samples else None
            return await launcher.start_instance(slot, scheduler.pump, scheduler.enqueue_again, warm_up)

        if handle.name in self._tools.settings.debugged_models:
            _log.info("model '%s' runs on a thread of process %d, to be debugged", handle.name, os.getpid())
        limiter = self._tools.settings.rate_limiter
        contender = scheduler.contend(limiter) if limiter is not None else None
        self._instances = instances = InstanceSet(
            contender.limited(start) if contender is not None else start,
            is_parallel=_is_parallel(backend.attributes),
            on_start=partial(self._progress.begin, "initialize"),
            release=scheduler.release,
            on_end=contender.leave if contender is not None else None,
        )
        instances.switch(await instances.prepare(self._tools.slots(handle)))
        generation = await generation_of(handle, self._tools.settings.cache)
        self._model = LoadedModel(
            handle,
            signature,
            stats,
            with_cache(scheduler, handle, stats, self._tools.settings.cache, generation),
            instances,
            self.take_down,
            strategy_name=strategy.name if strategy is not None else "",
            load_duration_s=self._progress.duration_s,
            labels=settled.labels,
            generation=generation,
            sequences=scheduler if config.get("sequence_batching") is not None else None,
            is_debugged=handle.name in self._tools.settings.debugged_models,
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
            await self._end_strategy(strategy)
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            await launcher.close()

    async def _end_strategy(self, strategy: BoundStrategy) -> None:
        ending = asyncio.create_task(on_own_thread(strategy.close, "hook"))
        await asyncio.wait((ending,), timeout=_PATIENCE_S)
        if ending.done():
            return ending.result()
        _log.error(
            "batching strategy '%s' of model '%s' has not ended after %g s; it is left alone",
            strategy.name,
            self._handle.name,
            _PATIENCE_S,
        )
        return None

    async def _execution(self) -> str:
        """Thread or process: `--debug-model` wins over the configuration, and that over the backend."""
        name = self._handle.name
        if name in self._tools.settings.debugged_models:
            return "thread"
        wish = self._handle.parameter(ISOLATION_PARAMETER)
        if not wish:
            if self._backend.model_execution is None:
                return self._backend.attributes.execution
            return await on_own_thread(partial(self._backend.execution_of, self._handle), "hook")
        if wish not in EXECUTIONS:
            raise TritonError(
                f"model '{name}': parameter {ISOLATION_PARAMETER} is '{wish}', expected 'thread' or 'process'"
            )
        return wish

    def _make_launcher(self, execution: str) -> ThreadLauncher | WorkerLauncher:
        name = self._handle.name
        settings = self._tools.settings
        first = first_slot(self._handle.config)
        first_policy = settings.host_policies.find(first.host_policy) if first is not None else None
        is_debugged = name in settings.debugged_models
        if execution == "thread" and self._backend.worker_serve is None:
            if self._backend.execute is None:
                raise Unsupported(
                    f"model '{name}': backend '{self._backend.name}' runs in processes of its own only, but "
                    f"'thread' was asked for by parameter {ISOLATION_PARAMETER}, --debug-model or the backend"
                )
            return ThreadLauncher(
                self._backend,
                self._handle,
                self._tools.bridge,
                policies=settings.host_policies,
                first_policy=first_policy,
                is_parallel=_is_parallel(self._backend.attributes),
                aside=partial(self._tools.gate.step_aside, (name, self._handle.version)),
                link=ThreadLink(
                    self._tools.bridge, self._tools.access, Caller(name, self._handle.version, name)
                ),
            )
        workers = read_worker_settings(
            self._backend.name,
            self._backend.handle.settings,
            start_timeout_s=settings.worker_start_timeout_s,
        )
        return WorkerLauncher(
            self._backend,
            self._handle,
            access=self._tools.access,
            events=WorkerEvents(
                self._instance_down, self._instance_restarted, self._note_unanswered, self._instance_died
            ),
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

    def _instance_died(self, instance: Instance, error: TritonError) -> None:
        if self._scheduler is not None:
            self._scheduler.lose(instance, error)

    def _instance_restarted(self) -> None:
        self._tools.server_metrics.count_worker_restart(self._handle.name, str(self._handle.version))
        if self._model is not None:
            self._model.instance_up()

    def _note_unanswered(self) -> None:
        self._tools.server_metrics.count_unanswered_request(self._handle.name, str(self._handle.version))

    def _note_slow_scan(self, strategy: str) -> None:
        self._tools.server_metrics.count_slow_scan(self._handle.name, str(self._handle.version), strategy)


def _is_parallel(attributes: BackendAttributes) -> bool:
    """True if loading hooks run at the same time; the server's environment overrides the backend."""
    wish = os.environ.get(PARALLEL_VARIABLE, "")
    return attributes.parallel_instance_loading if wish not in ("0", "1") else wish == "1"
